// How the calibrating kernels write down what each thread got.
// Must not know: what it means.
#pragma once
#include "ptx/arithmetic.cuh"
#include "ptx/base.cuh"

namespace tessera_kernels {

// Writes words down, one after another. Each group begins with a mark, four letters of its name.
struct CalibrateLog {
  u32* at;
  __device__ __forceinline__ void put(u32 x) {
    *at = x;
    at += 128;
  }
  __device__ __forceinline__ void put(float x) { put(ptx::as_bits(x)); }
  __device__ __forceinline__ void put(const uint4& x) {
    put(x.x);
    put(x.y);
    put(x.z);
    put(x.w);
  }
  __device__ __forceinline__ void put(const uint2& x) {
    put(x.x);
    put(x.y);
  }
  __device__ __forceinline__ void mark(char a, char b, char c, char d) {
    put((u32)a | (u32)b << 8 | (u32)c << 16 | (u32)d << 24);
  }
};

}  // namespace tessera_kernels
