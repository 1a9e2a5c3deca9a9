// The vector operations of the forward kernel in AVX-512 (F, BW, DQ, VL).
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "cpu/exp2.hpp"
#include "cpu/simd_avx2.hpp"

namespace tessera::cpu {
namespace {

struct Avx512 {
  static constexpr const char* name = "avx512";
  static constexpr int lanes = 16;
  static constexpr int qk_keys = 12;  // 24 accumulators of the 32 registers
  static constexpr int pv_dims = 8;   // 16: enough to cover the latency, and it divides every usual dim
  static constexpr int k_block = 192;

  using F = __m512;
  using M = __mmask16;
  static F set(float a) { return _mm512_set1_ps(a); }
  static F load(const float* p) { return _mm512_load_ps(p); }
  static F load_any(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F a) { _mm512_store_ps(p, a); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F sqrt(F a) { return _mm512_sqrt_ps(a); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }  // b if a is NaN
  static F min(F a, F b) { return _mm512_min_ps(a, b); }  // the same
  static M gt(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  static M ge(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
  static M eq(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static M both(M a, M b) { return static_cast<M>(a & b); }
  static M either(M a, M b) { return static_cast<M>(a | b); }
  static M none() { return 0; }
  static F select(M m, F a, F b) { return _mm512_mask_blend_ps(m, b, a); }
  // A mask as bits, that of lane 0 lowest, and back (bits above the lanes say nothing).
  static std::uint32_t bits(M m) { return m; }
  static M from_bits(std::uint32_t bits) { return static_cast<M>(bits); }

  // 2^(c x) for x <= 0 < c; exactly 1 at 0, exactly 0 below c x = -126 (no denormal ever reaches a product: they cost
  // 100 cycles each on some cores); NaN stays NaN, since "not less than" holds for it. See exp2.hpp.
  static F exp2(F x, F c) {
    const M normal = _mm512_cmp_ps_mask(x, _mm512_div_ps(set(-126.0f), c), _CMP_NLT_UQ);
    const F n = sub(fma(x, c, set(exp2_magic)), set(exp2_magic));
    const F f = fma(x, c, sub(set(0), n));
    F p = set(exp2_coefficients[5]);
    for (int k = 4; k >= 0; --k) p = fma(p, f, set(exp2_coefficients[k]));
    return _mm512_maskz_scalef_ps(normal, p, n);
  }

  static void widen(DType dtype, const void* source, std::int64_t count, float* out) {
    X86::widen(dtype, source, count, out);
  }
  static void narrow(DType dtype, const float* source, std::int64_t count, void* out) {
    X86::narrow(dtype, source, count, out);
  }
  static void transpose_in(const float* const* rows, std::int64_t dim, float scale, float* out) {
    X86::transpose_in<2 * lanes>(rows, dim, scale, out);
  }
  static void transpose_out(const float* in, std::int64_t dim, const float* divisor, float* const* rows, int count) {
    X86::transpose_out<2 * lanes>(in, dim, divisor, rows, count);
  }
};

}  // namespace
}  // namespace tessera::cpu
