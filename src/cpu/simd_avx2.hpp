// The vector operations of the forward kernel in AVX2 + FMA + F16C, and the 8 x 8 transposes that AVX-512 shares.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "cpu/exp2.hpp"
#include "tessera/tensor.hpp"

namespace tessera::cpu {
namespace {

// Rows of 8 floats to columns and back; conversions between fp32 and the 16-bit types. Tails go through masked loads
// (fp32) or element by element (16 bits), so nothing is read or written past a row.
struct X86 {
  static __m256i tail_mask(std::int64_t count) {  // lanes [0, count)
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static void transpose8(__m256 (&r)[8]) {
    __m256 t[8], u[8];
    for (int i = 0; i < 4; ++i) {
      t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
      t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 2; ++i) {
      u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
      u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
      u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
      u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
      r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
  }
  template <int panel>
  static void transpose_in(const float* const* rows, std::int64_t dim, float scale, float* out) {
    const __m256 factor = _mm256_set1_ps(scale);
    for (int lane = 0; lane < panel; lane += 8)
      for (std::int64_t j = 0; j < dim; j += 8) {
        const std::int64_t count = dim - j < 8 ? dim - j : 8;
        __m256 r[8];
        if (count == 8)
          for (int i = 0; i < 8; ++i) r[i] = _mm256_mul_ps(_mm256_loadu_ps(rows[lane + i] + j), factor);
        else
          for (int i = 0; i < 8; ++i)
            r[i] = _mm256_mul_ps(_mm256_maskload_ps(rows[lane + i] + j, tail_mask(count)), factor);
        transpose8(r);
        for (int i = 0; i < count; ++i) _mm256_store_ps(out + (j + i) * panel + lane, r[i]);
      }
  }
  template <int panel>
  static void transpose_out(const float* in, std::int64_t dim, const float* divisor, float* const* rows, int lanes) {
    for (int lane = 0; lane < lanes; lane += 8) {
      const __m256 f = _mm256_loadu_ps(divisor + lane);
      const int live = lanes - lane < 8 ? lanes - lane : 8;
      for (std::int64_t j = 0; j < dim; j += 8) {
        const std::int64_t count = dim - j < 8 ? dim - j : 8;
        __m256 r[8];
        for (int i = 0; i < 8; ++i)
          r[i] = i < count ? _mm256_div_ps(_mm256_load_ps(in + (j + i) * panel + lane), f) : _mm256_setzero_ps();
        transpose8(r);
        if (count == 8)
          for (int i = 0; i < live; ++i) _mm256_storeu_ps(rows[lane + i] + j, r[i]);
        else
          for (int i = 0; i < live; ++i) _mm256_maskstore_ps(rows[lane + i] + j, tail_mask(count), r[i]);
      }
    }
  }
  static __m256 widen8(DType dtype, __m128i bits) {
    if (dtype == DType::f16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  // Nearest even; a NaN keeps its upper bits and is made quiet.
  static __m128i narrow8(DType dtype, __m256 x) {
    if (dtype == DType::f16) return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    const __m256i chosen = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(is_nan)), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
  }
  static void widen(DType dtype, const void* source, std::int64_t count, float* out) {
    const auto* bits = static_cast<const std::uint16_t*>(source);
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8)
      _mm256_storeu_ps(out + i, widen8(dtype, _mm_loadu_si128(reinterpret_cast<const __m128i*>(bits + i))));
    if (i < count) {
      alignas(16) std::uint16_t tail[8] = {};
      for (std::int64_t t = i; t < count; ++t) tail[t - i] = bits[t];
      _mm256_maskstore_ps(out + i, tail_mask(count - i),
                          widen8(dtype, _mm_load_si128(reinterpret_cast<const __m128i*>(tail))));
    }
  }
  static void narrow(DType dtype, const float* source, std::int64_t count, void* out) {
    auto* bits = static_cast<std::uint16_t*>(out);
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(bits + i), narrow8(dtype, _mm256_loadu_ps(source + i)));
    if (i < count) {
      alignas(16) std::uint16_t tail[8];
      _mm_store_si128(reinterpret_cast<__m128i*>(tail),
                      narrow8(dtype, _mm256_maskload_ps(source + i, tail_mask(count - i))));
      for (std::int64_t t = i; t < count; ++t) bits[t] = tail[t - i];
    }
  }
};

struct Avx2 {
  static constexpr const char* name = "avx2";
  static constexpr int lanes = 8;
  static constexpr int qk_keys = 6;  // 12 accumulators of the 16 registers
  static constexpr int pv_dims = 6;
  static constexpr int k_block = 192;

  using F = __m256;
  using M = __m256;
  static F set(float a) { return _mm256_set1_ps(a); }
  static F load(const float* p) { return _mm256_load_ps(p); }
  static F load_any(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F a) { _mm256_store_ps(p, a); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F sqrt(F a) { return _mm256_sqrt_ps(a); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }  // b if a is NaN
  static F min(F a, F b) { return _mm256_min_ps(a, b); }  // the same
  static M gt(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
  static M ge(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
  static M eq(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
  static M both(M a, M b) { return _mm256_and_ps(a, b); }
  static M either(M a, M b) { return _mm256_or_ps(a, b); }
  static M none() { return _mm256_setzero_ps(); }
  static F select(M m, F a, F b) { return _mm256_blendv_ps(b, a, m); }
  // A mask as bits, that of lane 0 lowest, and back (bits above the lanes say nothing).
  static std::uint32_t bits(M m) { return static_cast<std::uint32_t>(_mm256_movemask_ps(m)); }
  static M from_bits(std::uint32_t bits) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane));
  }

  // 2^(c x) for x <= 0 < c; exactly 1 at 0 and exactly 0 below c x = -127; NaN stays NaN. See exp2.hpp.
  static F exp2(F x, F c) {
    x = _mm256_max_ps(_mm256_div_ps(set(-127.0f), c), x);
    const F t = fma(x, c, set(exp2_magic));
    const F power = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t), 23));
    const F f = fma(x, c, sub(set(exp2_magic), t));
    F p = set(exp2_coefficients[5]);
    for (int k = 4; k >= 0; --k) p = fma(p, f, set(exp2_coefficients[k]));
    return mul(p, power);
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
