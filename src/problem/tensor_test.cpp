// Element types, views and their text, and every value of the 16-bit floats.
#include "tessera/tensor.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace tessera {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

template <class Value>
std::string text(const Value& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

template <class Call>
Code code_of(Call call, std::string* what = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (what) *what = error.what();
    return error.code();
  }
  return Code::ok;
}

TEST(DTypeTest, NamesAreReadBack) {
  for (const DType dtype : {f32, bf16, f16, i32, i64, u8, b8}) EXPECT_EQ(parse_dtype(name(dtype)), dtype);
  std::string what;
  EXPECT_EQ(code_of([] { parse_dtype("fp32"); }, &what), Code::invalid_dtype);
  EXPECT_NE(what.find("'fp32'"), std::string::npos) << what;
  EXPECT_NE(what.find("f32, bf16, f16, i32, i64, u8, b8"), std::string::npos) << what;
  EXPECT_EQ(code_of([] { parse_dtype("none"); }), Code::invalid_dtype);
  EXPECT_EQ(name(static_cast<DType>(200)), "unknown");
  EXPECT_EQ(size_bytes(static_cast<DType>(200)), 0);
}

TEST(DTypeTest, SizesAreThoseOfTheStorageTypes) {
  EXPECT_EQ(size_bytes(f32), 4);
  EXPECT_EQ(size_bytes(bf16), static_cast<std::int64_t>(sizeof(BFloat16)));
  EXPECT_EQ(size_bytes(f16), static_cast<std::int64_t>(sizeof(Float16)));
  EXPECT_EQ(size_bytes(i32), 4);
  EXPECT_EQ(size_bytes(i64), 8);
  EXPECT_EQ(size_bytes(u8), 1);
  EXPECT_EQ(size_bytes(b8), 1);
  EXPECT_EQ(size_bytes(DType::none), 0);
}

TEST(TensorTest, StridesLeftOutAreRowMajor) {
  float data[24]{};
  const Tensor t = tensor(data, {2, 3, 4});
  EXPECT_EQ(t.dtype, f32);
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.stride[0], 12);
  EXPECT_EQ(t.stride[1], 4);
  EXPECT_EQ(t.stride[2], 1);
  EXPECT_EQ(t.elements(), 24);
  EXPECT_FALSE(t.read_only);
  const float* constant = data;
  EXPECT_TRUE(tensor(constant, {24}).read_only);
  // An extent of 0 leaves the strides of the others as if it were 1.
  EXPECT_EQ(tensor(data, {2, 0, 4}).stride[0], 4);
  EXPECT_EQ(tensor(data, {2, 0, 4}).elements(), 0);
}

TEST(TensorTest, Text) {
  BFloat16 data[64]{};
  EXPECT_EQ(text(tensor(data, {2, 4, 8})), "bf16[2, 4, 8]");
  EXPECT_EQ(text(tensor(data, {2, 4, 8}, {8, 16, 1})), "bf16[2, 4, 8] strides [8, 16, 1]");
  EXPECT_EQ(text(tensor(data, {2, 1, 8}, {8, 999, 1})), "bf16[2, 1, 8]");
  EXPECT_EQ(text(tensor(data, {4}, {}, {DeviceType::cuda, 1})), "bf16[4] on cuda:1");
  EXPECT_EQ(text(Tensor{}), "none");
  Tensor broken;
  broken.dtype = f32, broken.rank = 1000;
  EXPECT_EQ(text(broken), "f32[0, 0, 0, 0, 0]");
}

TEST(TensorTest, WhatIsNoTensor) {
  float data[4]{};
  std::string what;
  EXPECT_EQ(code_of([&] { tensor(data, {1, 1, 1, 1, 1, 1}); }, &what), Code::invalid_shape);
  EXPECT_NE(what.find("rank 6"), std::string::npos) << what;
  EXPECT_EQ(code_of([&] { tensor(data, {2, -3}); }, &what), Code::invalid_shape);
  EXPECT_NE(what.find("-3"), std::string::npos) << what;
  EXPECT_EQ(code_of([&] { tensor(data, {2, 2}, {1}); }, &what), Code::invalid_shape);
  EXPECT_NE(what.find("2 extents and 1 strides"), std::string::npos) << what;
  EXPECT_EQ(code_of([&] { tensor(static_cast<void*>(data), DType::none, {2}); }), Code::invalid_dtype);
  constexpr std::int64_t large = std::int64_t{1} << 40;
  EXPECT_EQ(code_of([&] { tensor(data, {2, large, large}); }), Code::size_overflow);
}

TEST(TensorTest, ElementsBeyond63BitsAreAnError) {
  Tensor t;
  t.dtype = u8, t.rank = 3;
  t.shape = {std::int64_t{1} << 31, std::int64_t{1} << 31, 1};
  EXPECT_EQ(t.elements(), std::int64_t{1} << 62);
  t.shape[2] = 2;
  EXPECT_EQ(code_of([&] { (void)t.elements(); }), Code::size_overflow);
  t.rank = 4, t.shape[3] = 0;  // empty, whatever the others are
  EXPECT_EQ(t.elements(), 0);
  t.shape[3] = -1;
  EXPECT_EQ(code_of([&] { (void)t.elements(); }), Code::invalid_shape);
}

TEST(ErrorTest, EveryCodeHasItsOwnName) {
  std::vector<std::string> names;
  for (int code = 0; code <= 16; ++code) names.emplace_back(name(static_cast<Code>(code)));
  names.emplace_back(name(Code::internal));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_EQ(std::count(names.begin(), names.end(), "unknown"), 0);
  EXPECT_EQ(name(static_cast<Code>(-1)), "unknown");
}

// The value of a small float by its definition, apart from any arithmetic on bits that the library does.
double value_of(std::uint32_t bits, int mantissa_bits, int bias) {
  const std::uint32_t exponent_mask = bias == 127 ? 0xff : 0x1f;
  const std::uint32_t exponent = (bits >> mantissa_bits) & exponent_mask;
  const std::uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const double sign = bits & 0x8000u ? -1 : 1;
  if (exponent == exponent_mask) return mantissa ? std::nan("") : sign * static_cast<double>(inf);
  const int power = static_cast<int>(exponent == 0 ? 1 : exponent) - bias - mantissa_bits;
  return sign * std::ldexp(mantissa + (exponent == 0 ? 0.0 : std::ldexp(1.0, mantissa_bits)), power);
}

// Every pattern, the middle between it and the next one up, and the floats on both sides of each.
template <class Small>
void check_all_patterns(int mantissa_bits, int bias) {
  const std::uint32_t infinity = (bias == 127 ? 0xffu : 0x1fu) << mantissa_bits;
  for (std::uint32_t pattern = 0; pattern <= 0xffff; ++pattern) {
    Small small;
    small.bits = static_cast<std::uint16_t>(pattern);
    const auto wide = static_cast<float>(small);
    const double value = value_of(pattern, mantissa_bits, bias);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(wide)) << pattern;
      ASSERT_TRUE(std::isnan(static_cast<float>(Small(wide)))) << pattern;
      ASSERT_EQ(Small(wide).bits >> 15, pattern >> 15) << pattern;
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide), value) << pattern;
    ASSERT_EQ(std::signbit(wide), (pattern & 0x8000u) != 0) << pattern;
    ASSERT_EQ(Small(wide).bits, pattern);
    const std::uint32_t magnitude = pattern & 0x7fffu, sign = pattern & 0x8000u;
    if (magnitude == infinity) continue;
    // Past the largest value the format would go on by the same step: that middle rounds to Inf.
    const double next = magnitude + 1 == infinity ? 2 * std::fabs(value) - value_of(magnitude - 1, mantissa_bits, bias)
                                                  : value_of(magnitude + 1, mantissa_bits, bias);
    const auto middle = static_cast<float>((std::fabs(value) + next) / 2);
    ASSERT_EQ(static_cast<double>(middle), (std::fabs(value) + next) / 2) << "the middle is a float";
    auto rounded = [&](float x) { return static_cast<std::uint32_t>(Small(sign ? -x : x).bits); };
    const std::uint32_t even = magnitude % 2 == 0 ? magnitude : magnitude + 1;
    ASSERT_EQ(rounded(middle), sign | even) << pattern;
    ASSERT_EQ(rounded(std::nextafter(middle, 0.0f)), sign | magnitude) << pattern;
    ASSERT_EQ(rounded(std::nextafter(middle, inf)), sign | (magnitude + 1)) << pattern;
    ASSERT_EQ(rounded(std::nextafter(std::fabs(wide), inf)), sign | magnitude) << pattern;
    if (magnitude > 0) {
      ASSERT_EQ(rounded(std::nextafter(std::fabs(wide), 0.0f)), sign | magnitude) << pattern;
    }
  }
}

TEST(SmallFloatTest, BFloat16EveryPatternAndItsNeighbours) { check_all_patterns<BFloat16>(7, 127); }
TEST(SmallFloatTest, Float16EveryPatternAndItsNeighbours) { check_all_patterns<Float16>(10, 15); }

TEST(SmallFloatTest, BeyondTheRange) {
  EXPECT_EQ(Float16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(Float16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Float16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(Float16(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(Float16(-1e-30f).bits, 0x8000);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(BFloat16(-std::numeric_limits<float>::max()).bits, 0xff80);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::denorm_min()).bits, 0);
}

// A NaN whose payload lies only in bits that are cut off must not come out as Inf.
TEST(SmallFloatTest, NanStaysNan) {
  for (int bit = 0; bit < 23; ++bit)
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const float nan = std::bit_cast<float>(sign | 0x7f800000u | 1u << bit);
      EXPECT_TRUE(std::isnan(static_cast<float>(Float16(nan)))) << bit;
      EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(nan)))) << bit;
      EXPECT_EQ(Float16(nan).bits >> 15, sign >> 31);
      EXPECT_EQ(BFloat16(nan).bits >> 15, sign >> 31);
    }
}

}  // namespace
}  // namespace tessera
