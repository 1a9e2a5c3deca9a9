// CUDA's own names, as far as kernels may use them, and the small instructions whose meaning is an expression.
// TESSERA_SIM_CHECKED says that the kernel is built with -fsanitize=thread: g++ then puts a call before every load and
// store, and those functions are defined here. libtsan is not linked.
// Must not know: fibers, schedules, shadow memory.
#pragma once
#include "sim/device.hpp"

#define TESSERA_SIM_DEVICE 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define threadIdx (::tessera::sim::me->thread_idx)
#define blockIdx (::tessera::sim::me->block_idx)
#define blockDim (::tessera::sim::me->block_dim)
#define gridDim (::tessera::sim::me->grid_dim)

namespace sim = tessera::sim;

// The mathematical library, which is there without a header on a device. Nothing of the host's <math.h> stands before a
// kernel: it is most of what a compiler would have to read. On a device exp(float) is a float; here it would be
// computed in double, so it is refused.
extern "C" {
float expf(float) noexcept, exp2f(float) noexcept, logf(float) noexcept, log2f(float) noexcept, tanhf(float) noexcept;
float sqrtf(float) noexcept, erff(float) noexcept, powf(float, float) noexcept, fabsf(float) noexcept;
float floorf(float) noexcept, fminf(float, float) noexcept, fmaxf(float, float) noexcept;
double exp(double) noexcept, exp2(double) noexcept, log(double) noexcept, log2(double) noexcept, tanh(double) noexcept;
double sqrt(double) noexcept, erf(double) noexcept, pow(double, double) noexcept, fabs(double) noexcept;
double floor(double) noexcept, fmin(double, double) noexcept, fmax(double, double) noexcept;
}
float exp(float) = delete, exp2(float) = delete, log(float) = delete, log2(float) = delete, tanh(float) = delete;
float sqrt(float) = delete, erf(float) = delete, fabs(float) = delete, floor(float) = delete;
float pow(float, float) = delete, fmin(float, float) = delete, fmax(float, float) = delete;

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

static __forceinline__ void __syncthreads() { ::sim::barrier(0, 0, true); }
static __forceinline__ void __syncwarp(unsigned lanes = 0xffffffffu) { ::sim::syncwarp(lanes); }

namespace tessera::sim {

static __forceinline__ float as_float(u32 x) { return __builtin_bit_cast(float, x); }
static __forceinline__ u32 as_bits(float x) { return __builtin_bit_cast(u32, x); }
// .ftz: denormals are zeros of their sign.
static __forceinline__ float flushed(float x) { return __builtin_fabsf(x) < 0x1p-126f ? x * 0.0f : x; }

static __forceinline__ float exp2(float x) { return x < -126.0f ? 0.0f : __builtin_exp2f(x); }
static __forceinline__ float log2(float x) { return __builtin_log2f(flushed(x)); }
static __forceinline__ float rcp(float x) { return flushed(1.0f / flushed(x)); }
static __forceinline__ float rsqrt(float x) { return (float)(1.0 / __builtin_sqrt((double)flushed(x))); }
static __forceinline__ float tanh(float x) { return __builtin_tanhf(x); }
static __forceinline__ float max(float a, float b) {
  return a > b || b != b ? a : a == b ? as_float(as_bits(a) & as_bits(b)) : b;  // +0 is more than -0
}
static __forceinline__ float min(float a, float b) {
  return a < b || b != b ? a : a == b ? as_float(as_bits(a) | as_bits(b)) : b;
}
static __forceinline__ float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
// The compiler may contract a product with a sum, but not across this barrier.
static __forceinline__ float mul(float a, float b) { return __builtin_assoc_barrier(a * b); }
static __forceinline__ float add(float a, float b) { return __builtin_assoc_barrier(a) + __builtin_assoc_barrier(b); }

static __forceinline__ u32 bf16_bits(float x) {
  const u32 u = as_bits(x);
  return x != x ? 0x7fffu : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}
static __forceinline__ u32 pack_bf16(float lo, float hi) { return bf16_bits(lo) | bf16_bits(hi) << 16; }
typedef float Floats4 __attribute__((vector_size(16)));
typedef short Halves8 __attribute__((vector_size(16)));
static __forceinline__ u32 pack_f16(float lo, float hi) {
  const Halves8 h = __builtin_ia32_vcvtps2ph(Floats4{lo, hi, 0.0f, 0.0f}, 0);  // 0: to nearest even
  const u32 low = lo != lo ? 0x7fffu : (u16)h[0], high = hi != hi ? 0x7fffu : (u16)h[1];
  return low | high << 16;
}
static __forceinline__ float from_f16(u16 x) {
  return __builtin_ia32_vcvtph2ps(Halves8{(short)x, 0, 0, 0, 0, 0, 0, 0})[0];
}

static __forceinline__ void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, Half type) {
  const Acc4 r = mma_16816({{d[0], d[1], d[2], d[3]}}, {{a[0], a[1], a[2], a[3]}}, b0, b1, type);
  for (int i = 0; i < 4; ++i) d[i] = r.v[i];
}

static __forceinline__ void must_be_global(const void* p, u32 bytes) {
  const bool misaligned = (u64)p % bytes != 0, shared = (u64)((const char*)p - me->smem) < me->smem_bytes;
  if (__builtin_expect(misaligned || shared, 0)) bad_global(p, bytes);
}
template <class T>
static __forceinline__ T load(const void* p) {
  must_be_global(p, sizeof(T));
  return *static_cast<const T*>(p);
}
template <class T>
static __forceinline__ T load_nc(const void* p) {
#ifdef TESSERA_SIM_CHECKED
  read_only(p, sizeof(T));
#endif
  return load<T>(p);
}
template <class T>
static __forceinline__ void store(void* p, T x) {
  must_be_global(p, sizeof(T));
  *static_cast<T*>(p) = x;
}

// How the machine calls a kernel with parameters that it knows as bytes only.
template <class P>
struct Kernel {
  static void call(void (*kernel)(P), const void* params) { kernel(*static_cast<const P*>(params)); }
  static constexpr u64 bytes = sizeof(P);
};
template <class P>
Kernel<P> kernel_of(void (*)(P));

}  // namespace tessera::sim

#ifdef TESSERA_SIM_CHECKED
#define TESSERA_HOOK extern "C" __attribute__((visibility("hidden"), no_sanitize("thread"))) void
#define TESSERA_SEE(bytes, write)                                                         \
  ::sim::Me* t = ::sim::me;                                                               \
  if (!t || p == &::sim::me) return;                                                      \
  if ((::sim::u64)((char*)p - t->stack) < t->stack_bytes) {                               \
    if (t->flying) ::sim::on_register(p, bytes, write, __builtin_return_address(0));      \
    return;                                                                               \
  }                                                                                       \
  if ((::sim::u64)((char*)p - (char*)t) < sizeof(*t)) return; /* threadIdx and its kin */ \
  ::sim::on_access(p, bytes, write, __builtin_return_address(0));
#define TESSERA_ON(name, bytes, write) \
  TESSERA_HOOK name(void* p) { TESSERA_SEE(bytes, write) }
#define TESSERA_ON_ALL(n)                        \
  TESSERA_ON(__tsan_read##n, n, false)           \
  TESSERA_ON(__tsan_write##n, n, true)           \
  TESSERA_ON(__tsan_unaligned_read##n, n, false) \
  TESSERA_ON(__tsan_unaligned_write##n, n, true)
TESSERA_ON_ALL(1)
TESSERA_ON_ALL(2)
TESSERA_ON_ALL(4)
TESSERA_ON_ALL(8)
TESSERA_ON_ALL(16)
#define TESSERA_ON_RANGE(name, write) \
  TESSERA_HOOK name(void* p, unsigned long n) { TESSERA_SEE(n, write) }
TESSERA_ON_RANGE(__tsan_read_range, false)
TESSERA_ON_RANGE(__tsan_write_range, true)
TESSERA_HOOK __tsan_func_entry(void*) {}
TESSERA_HOOK __tsan_func_exit() {}
TESSERA_HOOK __tsan_init() {}
#endif
