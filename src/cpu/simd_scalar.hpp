// The vector operations of the forward kernel in plain C++: what every other instruction set is compared with.
#pragma once
#include <cstdint>
#include <cstring>

#include "cpu/exp2.hpp"
#include "tessera/tensor.hpp"

namespace tessera::cpu {
namespace {

struct Scalar {
  static constexpr const char* name = "scalar";
  static constexpr int lanes = 4;
  static constexpr int qk_keys = 4;  // register block of S^T = K Q^T: keys x 2 vectors
  static constexpr int pv_dims = 4;  // register block of O^T += V^T P^T: dims x 2 vectors
  static constexpr int k_block = 96;

  struct F {
    float x[lanes];
  };
  struct M {
    bool x[lanes];
  };
  template <class Fn>
  static F each(Fn fn) {
    F r;
    for (int i = 0; i < lanes; ++i) r.x[i] = fn(i);
    return r;
  }
  template <class Fn>
  static M test(Fn fn) {
    M r;
    for (int i = 0; i < lanes; ++i) r.x[i] = fn(i);
    return r;
  }
  static F set(float a) {
    return each([&](int) { return a; });
  }
  static F load(const float* p) {
    return each([&](int i) { return p[i]; });
  }
  static F load_any(const float* p) { return load(p); }
  static void store(float* p, F a) { std::memcpy(p, a.x, sizeof a.x); }
  static F add(F a, F b) {
    return each([&](int i) { return a.x[i] + b.x[i]; });
  }
  static F sub(F a, F b) {
    return each([&](int i) { return a.x[i] - b.x[i]; });
  }
  static F mul(F a, F b) {
    return each([&](int i) { return a.x[i] * b.x[i]; });
  }
  static F div(F a, F b) {
    return each([&](int i) { return a.x[i] / b.x[i]; });
  }
  static F sqrt(F a) {
    return each([&](int i) { return __builtin_sqrtf(a.x[i]); });
  }
  static F fma(F a, F b, F c) {
    return each([&](int i) { return a.x[i] * b.x[i] + c.x[i]; });
  }
  static F max(F a, F b) {
    return each([&](int i) { return a.x[i] > b.x[i] ? a.x[i] : b.x[i]; });
  }  // b if a is NaN
  static F min(F a, F b) {
    return each([&](int i) { return a.x[i] < b.x[i] ? a.x[i] : b.x[i]; });
  }  // the same
  static M gt(F a, F b) {
    return test([&](int i) { return a.x[i] > b.x[i]; });
  }
  static M ge(F a, F b) {
    return test([&](int i) { return a.x[i] >= b.x[i]; });
  }
  static M eq(F a, F b) {
    return test([&](int i) { return a.x[i] == b.x[i]; });
  }
  static M both(M a, M b) {
    return test([&](int i) { return a.x[i] && b.x[i]; });
  }
  static M either(M a, M b) {
    return test([&](int i) { return a.x[i] || b.x[i]; });
  }
  static M none() {
    return test([](int) { return false; });
  }
  static F select(M m, F a, F b) {
    return each([&](int i) { return m.x[i] ? a.x[i] : b.x[i]; });
  }
  // A mask as bits, that of lane 0 lowest, and back (bits above the lanes say nothing).
  static std::uint32_t bits(M m) {
    std::uint32_t r = 0;
    for (int i = 0; i < lanes; ++i) r |= std::uint32_t{m.x[i]} << i;
    return r;
  }
  static M from_bits(std::uint32_t bits) {
    return test([&](int i) { return (bits >> i & 1) != 0; });
  }

  // 2^(c x) for x <= 0 < c; exactly 1 at 0 and exactly 0 below c x = -127; NaN stays NaN. See exp2.hpp.
  static F exp2(F a, F c) {
    return each([&](int i) {
      const float lowest = -127.0f / c.x[i];
      const float x = a.x[i] < lowest ? lowest : a.x[i];
      const float t = __builtin_fmaf(x, c.x[i], exp2_magic);
      std::uint32_t bits;
      std::memcpy(&bits, &t, sizeof bits);
      bits <<= 23;
      float power;
      std::memcpy(&power, &bits, sizeof power);
      const float f = __builtin_fmaf(x, c.x[i], exp2_magic - t);
      float p = exp2_coefficients[5];
      for (int k = 4; k >= 0; --k) p = p * f + exp2_coefficients[k];
      return p * power;
    });
  }

  static void widen(DType dtype, const void* source, std::int64_t count, float* out) {
    if (dtype == DType::bf16)
      for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(static_cast<const BFloat16*>(source)[i]);
    else
      for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(static_cast<const Float16*>(source)[i]);
  }
  static void narrow(DType dtype, const float* source, std::int64_t count, void* out) {
    if (dtype == DType::bf16)
      for (std::int64_t i = 0; i < count; ++i) static_cast<BFloat16*>(out)[i] = BFloat16(source[i]);
    else
      for (std::int64_t i = 0; i < count; ++i) static_cast<Float16*>(out)[i] = Float16(source[i]);
  }
  // out[j * panel + lane] = rows[lane][j] * scale for the panel's lanes.
  static void transpose_in(const float* const* rows, std::int64_t dim, float scale, float* out) {
    for (std::int64_t j = 0; j < dim; ++j)
      for (int lane = 0; lane < 2 * lanes; ++lane) out[j * 2 * lanes + lane] = rows[lane][j] * scale;
  }
  // rows[lane][j] = in[j * panel + lane] / divisor[lane] for the first `count` lanes.
  static void transpose_out(const float* in, std::int64_t dim, const float* divisor, float* const* rows, int count) {
    for (int lane = 0; lane < count; ++lane)
      for (std::int64_t j = 0; j < dim; ++j) rows[lane][j] = in[j * 2 * lanes + lane] / divisor[lane];
  }
};

}  // namespace
}  // namespace tessera::cpu
