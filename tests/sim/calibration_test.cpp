// The emulated instructions against the words of the PTX ISA, spelled out here a second time: layouts of fragments,
// zero-fill of copies, roundings, shuffles. On a GPU the same kernel is compared with the emulator (./run
// gpu-calibrate).
#include "sim/calibration.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "sim/engine.hpp"
#include "sim/folder.hpp"

namespace tessera::sim {
namespace {

using u32 = std::uint32_t;

const Calibration& emulated() {
  static const Calibration words = [] {
    Engine engine({.checked = true, .folder = cache_folder()});
    engine.schedule = {.seed = 3, .timing = Timing::random};
    return calibrate(engine, 0);
  }();
  return words;
}
float as_float(u32 x) { return std::bit_cast<float>(x); }
u32 as_bits(float x) { return std::bit_cast<u32>(x); }
float input(int i, int t) { return as_float(calibration_floats()[std::size_t(i * 128 + t)]); }

// The value of a half with `fraction` bits of fraction and `exponent` of exponent.
double half_value(u32 bits, int fraction, int exponent) {
  const int bias = (1 << (exponent - 1)) - 1, e = int(bits >> fraction) & ((1 << exponent) - 1);
  const double f = double(bits & ((1u << fraction) - 1)) / (1 << fraction), sign = bits >> 15 ? -1 : 1;
  if (e == (1 << exponent) - 1) return f == 0 ? sign * INFINITY : NAN;
  return sign * (e == 0 ? std::ldexp(f, 1 - bias) : std::ldexp(1 + f, e - bias));
}
double f16_value(u32 bits) { return half_value(bits & 0xffff, 10, 5); }

// Whether `bits` is the half nearest to x, the even one of two.
bool nearest(u32 bits, float x, int fraction, int exponent) {
  const u32 infinite = ((1u << exponent) - 1) << fraction;
  if (std::isnan(x)) return bits == 0x7fff;
  if ((bits >> 15) != (as_bits(x) >> 31)) return false;
  const u32 magnitude = bits & 0x7fff;
  // What infinity would be, were it a number: the border to it lies half way from the largest number.
  const auto value = [&](u32 m) {
    return m == infinite ? std::ldexp(1.0, 1 << (exponent - 1)) : half_value(m, fraction, exponent);
  };
  const double size = std::fabs(double(x));
  if (std::isinf(x)) return magnitude == infinite;
  if (magnitude > infinite) return false;
  const double error = std::fabs(value(magnitude) - size);
  for (const u32 other : {magnitude - 1, magnitude + 1}) {
    if (other > infinite) continue;
    const double its = std::fabs(value(other) - size);
    if (magnitude == infinite && size > value(infinite)) continue;
    if (its < error || (its == error && magnitude % 2 == 1)) return false;
  }
  return true;
}

TEST(Calibration, TheTableFitsTheKernel) {
  for (const Group& g : calibration_groups())
    for (int t = 0; t < 128; ++t) ASSERT_NO_THROW(emulated().at(g.name, -1, t)) << g.name;
}

TEST(Calibration, AgreesWithItselfAndWithTheStatedErrors) {
  for (const Comparison& c : compare(emulated(), emulated())) EXPECT_EQ(c.different, 0) << c.name << ": " << c.first;
  Calibration other = emulated();
  std::size_t copy = 0;  // the comparison sees one wrong bit, and one unit too much
  for (const Group& g : calibration_groups()) {
    if (g.name == "copy") break;
    copy += 1 + std::size_t(g.words);
  }
  other.words[(copy + 5) * 128 + 7] ^= 1;
  int different = 0;
  for (const Comparison& c : compare(other, emulated())) different += c.different;
  EXPECT_EQ(different, 1);
}

TEST(Calibration, Roundings) {
  for (int t = 0; t < 128; ++t)
    for (int i = 0; i < 8; ++i) {
      const u32 pair = emulated().at("bf16", i, t), one = emulated().at("bf16", 8 + i, t);
      EXPECT_TRUE(nearest(pair & 0xffff, input(2 * i, t), 7, 8)) << input(2 * i, t) << " " << pair;
      EXPECT_TRUE(nearest(pair >> 16, input(2 * i + 1, t), 7, 8)) << input(2 * i + 1, t) << " " << pair;
      EXPECT_TRUE(nearest(one, input(i, t), 7, 8)) << input(i, t) << " " << one;
      const u32 pair16 = emulated().at("f16 ", i, t), one16 = emulated().at("f16 ", 8 + i, t);
      EXPECT_TRUE(nearest(pair16 & 0xffff, input(2 * i, t), 10, 5)) << input(2 * i, t) << " " << pair16;
      EXPECT_TRUE(nearest(pair16 >> 16, input(2 * i + 1, t), 10, 5)) << input(2 * i + 1, t) << " " << pair16;
      EXPECT_TRUE(nearest(one16, input(i, t), 10, 5)) << input(i, t) << " " << one16;
    }
  for (u32 i = 0; i < 65536; ++i) {
    const float f16 = as_float(emulated().at("wide", int(i / 128) * 2, int(i % 128)));
    const float bf16 = as_float(emulated().at("wide", int(i / 128) * 2 + 1, int(i % 128)));
    ASSERT_TRUE(std::isnan(f16_value(i)) ? std::isnan(f16) : double(f16) == f16_value(i)) << i;
    ASSERT_EQ(as_bits(bf16), i << 16);
  }
}

TEST(Calibration, ProductsAndSumsAreRoundedOnce) {
  int contracted = 0;
  for (int t = 0; t < 128; ++t)
    for (int i = 0; i < 8; ++i) {
      const float x = input(i, t), y = input(i + 1, t), z = input(i + 8, t);
      const volatile float product = x * y, sum = product + z;
      const float fused = std::fma(x, y, z);
      const auto expect = [&](const char* group, float want) {
        const u32 got = emulated().at(group, i, t);
        EXPECT_TRUE(got == as_bits(want) || (std::isnan(want) && std::isnan(as_float(got)))) << group << i << " " << t;
      };
      expect("mul ", product);
      expect("add ", sum);
      expect("fma ", fused);
      contracted += as_bits(sum) != as_bits(fused) && !std::isnan(fused);
    }
  EXPECT_GT(contracted, 20);  // or the inputs could not tell them apart
}

TEST(Calibration, Copies) {
  for (u32 t = 0; t < 128; ++t) {
    EXPECT_EQ(emulated().at("copy", 0, int(t)), t * 64);
    for (u32 bytes = 0; bytes <= 16; ++bytes) {
      const auto expect = [&](u32 word, u32 first, u32 count, u32 valid) {
        for (u32 i = 0; i < count; ++i) {
          const u32 here = valid > i * 4 ? std::min(4u, valid - i * 4) : 0;
          const u32 want = here == 4 ? first + i : (first + i) & ((1u << 8 * here) - 1);
          EXPECT_EQ(emulated().at("copy", int(1 + bytes * 8 + word + i), int(t)), want) << bytes << " " << word;
        }
      };
      expect(0, 1000 + (t + bytes) * 4, 4, bytes);
      expect(4, 1000 + t * 2, 2, bytes / 2);
      expect(6, 1000 + t, 1, bytes / 4);
      EXPECT_EQ(emulated().at("copy", int(1 + bytes * 8 + 7), int(t)), 0xabcdef01u);
    }
  }
}

TEST(Calibration, Warps) {
  for (u32 t = 0; t < 128; ++t) {
    const u32 lane = t % 32, warp = t - lane;
    for (u32 i = 0; i < 32; ++i) EXPECT_EQ(emulated().at("shfl", int(i), int(t)), warp + (lane ^ i));
    for (u32 i = 0; i < 40; ++i) EXPECT_EQ(emulated().at("shfl", int(32 + i), int(t)), warp + i % 32);
    EXPECT_EQ(emulated().at("shfl", 72, int(t)), as_bits(float(warp + (lane * 5 + 3) % 32)));
    EXPECT_EQ(emulated().at("shfl", 73, int(t)), u32(-int(t ^ 7)));
    EXPECT_EQ(emulated().at("shfl", 74, int(t)), t ^ 9);
    for (u32 i = 0; i < 8; ++i) {
      u32 bits = 0;
      for (u32 l = 0; l < 32; ++l) bits |= u32((l * 7 + i) % 5 < 2) << l;
      EXPECT_EQ(emulated().at("vote", int(i), int(t)), bits);
    }
    EXPECT_EQ(emulated().at("vote", 8, int(t)), 0x49249249u & (lane < 16 ? 0xffffu : 0xffff0000u));
    EXPECT_EQ(emulated().at("vote", 9, int(t)), 5u);
    EXPECT_EQ(emulated().at("vote", 10, int(t)), lane < 16 ? 3u : 0u);
  }
}

TEST(Calibration, Fragments) {
  for (u32 t = 0; t < 128; ++t) {
    const u32 lane = t % 32, warp = t / 32, g = lane / 4, c = lane % 4 * 2;
    // Matrix m: rows m % 2 * 8 .., columns m / 2 * 8 .. of the warp's 16 x 16 numbers.
    const auto element = [&](u32 m, u32 row, u32 column) {
      return warp * 256 + (m % 2 * 8 + row) * 16 + m / 2 * 8 + column;
    };
    const auto straight = [&](u32 m) { return element(m, g, c) | element(m, g, c + 1) << 16; };
    const auto transposed = [&](u32 m) { return element(m, c, g) | element(m, c + 1, g) << 16; };
    int word = 0;
    for (const u32 matrices : {1u, 2u, 4u}) {
      for (u32 m = 0; m < matrices; ++m) EXPECT_EQ(emulated().at("ldm ", word++, int(t)), straight(m));
      for (u32 m = 0; m < matrices; ++m) EXPECT_EQ(emulated().at("ldm ", word++, int(t)), transposed(m));
    }
  }
}

TEST(Calibration, Products) {
  for (int warp = 0; warp < 4; ++warp) {
    double d[16][8];
    const auto place = [&](int lane, int i) -> double& { return d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]; };
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) place(lane, i) = warp * 32 + lane + i * 1000;
    for (int step = 0; step < 4; ++step) {
      const double large = step < 2 ? 1 : 64;
      double a[16][16], b[16][8];
      for (int lane = 0; lane < 32; ++lane) {
        const int t = warp * 32 + lane, g = lane / 4, k = lane % 4 * 2;
        for (int i = 0; i < 4; ++i) {
          a[g + i % 2 * 8][k + i / 2 * 8] = ((t * 7 + i * 3 + step) % 11 - 5) * large;
          a[g + i % 2 * 8][k + i / 2 * 8 + 1] = (t * 5 + i + step * 2) % 13 - 6;
        }
        for (int i = 0; i < 2; ++i) {
          b[k + i * 8][g] = (t + i + step) % 9 - 4;
          b[k + i * 8 + 1][g] = ((t * 3 + i * 2) % 7 - 3) * large;
        }
      }
      for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 8; ++column)
          for (int k = 0; k < 16; ++k) d[row][column] += a[row][k] * b[k][column];
      for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 8; ++i)
          EXPECT_EQ(double(as_float(emulated().at("mma ", step * 8 + i, warp * 32 + lane))), place(lane, i % 4));
    }
  }
}

}  // namespace
}  // namespace tessera::sim
