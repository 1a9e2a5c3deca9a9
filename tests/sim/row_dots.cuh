// The example of docs/adding-a-kernel.md: the dot product of each row of two tensors, which a backward pass needs first
// (D = rowsum(dO o O)). A warp for each row; chunks of 256 elements stream through two stages of shared memory.
// Must not know: attention.
#pragma once
#include "kernels/ptx/arithmetic.cuh"
#include "kernels/ptx/base.cuh"
#include "kernels/ptx/copies.cuh"
#include "kernels/ptx/warp.cuh"

namespace row_dots {

using ptx::bf16;
using ptx::i64;
using ptx::u32;

struct Params {
  const bf16 *a, *b;  // [rows, dim], rows 16-byte aligned
  float* dots;        // [rows]
  i64 rows, stride;   // stride in elements
  int dim;            // a multiple of 8
};

constexpr int warps = 4, chunk = 256;
struct alignas(16) Shared {
  bf16 a[warps][2][chunk], b[warps][2][chunk];
};

PTX void load(Shared& s, const Params& p, i64 row, int warp, int lane, int first) {
  const int column = first + lane * 8, stage = first / chunk % 2;
  const u32 bytes = column < p.dim ? 16 : 0;  // the rest of the chunk is zeros
  const i64 at = row * p.stride + (bytes ? column : 0);
  ptx::cp_async16(&s.a[warp][stage][lane * 8], p.a + at, bytes);
  ptx::cp_async16(&s.b[warp][stage][lane * 8], p.b + at, bytes);
  ptx::cp_async_commit();
}

PTX void kernel(const Params& p) {
  auto& s = ptx::shared_memory<Shared>();
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
  const i64 row = (i64)blockIdx.x * warps + warp;
  if (row >= p.rows) return;  // whole warps: nothing below waits for other warps
  float sum = 0.0f;
  load(s, p, row, warp, lane, 0);
  for (int first = 0; first < p.dim; first += chunk) {
    load(s, p, row, warp, lane, first + chunk);
    ptx::cp_async_wait<1>();
    const int stage = first / chunk % 2;
    // A lane reads what it has copied itself: its own wait is enough.
    for (int e = 0; e < 8; ++e)
      sum = ptx::fma(ptx::to_float(s.a[warp][stage][lane * 8 + e]), ptx::to_float(s.b[warp][stage][lane * 8 + e]), sum);
  }
  ptx::cp_async_wait<0>();
  for (u32 mask = 16; mask > 0; mask /= 2) sum += ptx::shfl_xor(sum, mask);
  if (lane == 0) p.dots[row] = sum;
}

}  // namespace row_dots
