// The loops behind StandardRows, plain enough for the compiler to vectorise. Include it in a file that is compiled for
// one instruction set: everything here is local to that file.
#pragma once
#include <string.h>

#include "cli/standard_rows.hpp"

namespace tessera::cli {
namespace {

template <class To, class From>
inline __attribute__((always_inline)) To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// 2^x for x <= 0: round, a polynomial of degree 5 (relative error 1e-7), and the exponent added as an integer.
inline __attribute__((always_inline)) float exp2_of(float x) {
  constexpr float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which stands in the low bits
  x = x < -126.0f ? -126.0f : x;
  const float rounded = x + shift;
  const float f = x - (rounded - shift);
  float p = 0.00132647146f;
  p = p * f + 0.00967151352f;
  p = p * f + 0.0555073378f;
  p = p * f + 0.240222421f;
  p = p * f + 0.693146978f;
  p = p * f + 1.0f;
  return bits_as<float>(bits_as<uint32_t>(p) + (bits_as<uint32_t>(rounded) << 23));
}

float softmax_row(float* scores, int64_t keys, const KeyRange* ranges, int range_count) {
  float top = -__builtin_inff();
  for (int r = 0; r < range_count; ++r) {
#pragma omp simd reduction(max : top)
    for (int64_t i = ranges[r].begin; i < ranges[r].end; ++i) top = scores[i] > top ? scores[i] : top;
  }
  float sum = 0;
  int64_t done = 0;
  for (int r = 0; r < range_count; ++r) {
    memset(scores + done, 0, static_cast<size_t>(ranges[r].begin - done) * sizeof(float));
#pragma omp simd reduction(+ : sum)
    for (int64_t i = ranges[r].begin; i < ranges[r].end; ++i) {
      const float p = exp2_of(scores[i] - top);
      scores[i] = p;
      sum += p;
    }
    done = ranges[r].end;
  }
  memset(scores + done, 0, static_cast<size_t>(keys - done) * sizeof(float));
  return sum;
}

void scale_row(float* values, int64_t count, float factor) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) values[i] *= factor;
}

// Exact, without a branch: the exponent is rebased by a multiplication, which also normalises denormals.
inline __attribute__((always_inline)) float widened_f16(uint16_t half) {
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
  const float value = bits_as<float>(magnitude) * 0x1p112f;
  const uint32_t special = value >= 65536.0f ? 0x7f800000u : 0u;  // Inf and NaN keep their mantissa
  return bits_as<float>(bits_as<uint32_t>(value) | special | static_cast<uint32_t>(half & 0x8000) << 16);
}

// Rounds to nearest even; values beyond the range become Inf. A NaN stays a NaN.
inline __attribute__((always_inline)) uint16_t narrowed_f16(float value) {
  const uint32_t bits = bits_as<uint32_t>(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  // Below the smallest normal: adding 0.5 leaves the mantissa, rounded, in the low bits.
  const uint32_t tiny = bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  uint32_t half = magnitude < 0x38800000u ? tiny : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? 0x7e00u : half;
  return static_cast<uint16_t>(half | sign);
}

inline __attribute__((always_inline)) uint16_t narrowed_bf16(float value) {
  const uint32_t bits = bits_as<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : rounded);
}

void widen_row(const void* from, int dtype, float* to, int64_t count) {
  if (dtype == 0) {
    memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const uint16_t* const half = static_cast<const uint16_t*>(from);
  if (dtype == 1) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] = bits_as<float>(static_cast<uint32_t>(half[i]) << 16);
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] = widened_f16(half[i]);
  }
}

void narrow_row(const float* from, int dtype, void* to, int64_t count) {
  if (dtype == 0) {
    memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  uint16_t* const half = static_cast<uint16_t*>(to);
  if (dtype == 1) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) half[i] = narrowed_bf16(from[i]);
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) half[i] = narrowed_f16(from[i]);
  }
}

}  // namespace
}  // namespace tessera::cli
