// The emulated instructions of sm_90 against the words of the PTX ISA, spelled out here a second time: boxes and their
// swizzles, layouts of operands. On an H200 the same kernel is compared with the emulator (./run gpu-calibrate).
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>

#include "sim/behaviours_sm90.hpp"
#include "sim/calibration.hpp"
#include "sim/engine.hpp"
#include "sim/folder.hpp"

namespace tessera::sim {
namespace {

using u32 = std::uint32_t;

const Calibration& emulated() {
  static const Calibration words = [] {
    Engine engine({.checked = true, .folder = cache_folder(), .caps = emulated_sm90()});
    engine.schedule = {.seed = 3, .timing = Timing::random};
    return calibrate_sm90(engine, 0);
  }();
  return words;
}
// Word i of the group as the kernel writes shared memory: 128 threads side by side.
u32 word(const std::string& group, int from, int i) { return emulated().at(group, from + i / 128, i % 128); }
std::uint16_t half(const std::string& group, int from, int i) {
  return std::uint16_t(word(group, from, i / 2) >> i % 2 * 16);
}

TEST(CalibrationSm90, IsTheSameInOtherSchedules) {
  Engine engine({.folder = cache_folder(), .caps = emulated_sm90()});
  for (const Comparison& c : compare(calibrate_sm90(engine, 0), emulated())) {
    EXPECT_EQ(c.different, 0) << c.name << ": " << c.first;
    EXPECT_EQ(c.worst, 0) << c.name;
  }
}

TEST(CalibrationSm90, MbarriersAndVotes) {
  for (int t = 0; t < 128; ++t) {
    EXPECT_EQ(emulated().at("mbar", 0, t), 2u);  // as if a phase of parity 1 had ended before
    EXPECT_EQ(emulated().at("mbar", 1, t), 1u);
    EXPECT_EQ(emulated().at("mbar", 2, t), 2u);
    EXPECT_EQ(emulated().at("mbar", 3, t), u32(511 - t));
    EXPECT_EQ(emulated().at("mbar", 4, t), 1u);
    EXPECT_EQ(emulated().at("mbar", 5, t), 1u);
    EXPECT_EQ(emulated().at("mbar", 6, t), u32(t / 32));
  }
}

// Where a swizzle of `span` bytes puts half `i` of dense rows: bits 4 and up of the address by bits 7 and up.
int swizzled(int i, int span) {
  const int bytes = i * 2;
  return (bytes ^ (bytes / 128 % (span / 16)) * 16) / 2;
}

TEST(CalibrationSm90, Boxes) {
  for (int z = 0; z < 2; ++z)
    for (int row = 0; row < 24; ++row)
      for (int column = 0; column < 64; ++column)
        ASSERT_EQ(half("box3", 0, swizzled(((z * 24 + row) * 64 + column), 128)), cube_at(z, 90 + row, 16 + column));
  const struct {
    int from, columns, rows, span, x, y, z, planes;
  } boxes[] = {{0, 24, 8, 16, -8, -3, 1, 1},
               {1, 32, 16, 64, 40, 5, 1, 1},
               {3, 16, 16, 32, 8, 60, 1, 1},
               {4, 64, 32, 128, 8, 77, 0, 2},
               {20, 64, 8, 128, 8, 96, 0, 2}};
  for (const auto& b : boxes)
    for (int z = 0; z < b.planes; ++z)
      for (int row = 0; row < b.rows; ++row)
        for (int column = 0; column < b.columns; ++column)
          ASSERT_EQ(half("box ", b.from, swizzled((z * b.rows + row) * b.columns + column, b.span)),
                    cube_at(b.z + z, b.y + row, b.x + column))
              << b.from << " " << row << " " << column;
}

TEST(CalibrationSm90, ALine) {  // over the end; between rows there are eight halves that are none of them
  for (int i = 0; i < 256; ++i) {
    const int at = 15800 + i, row = at / 80, column = at % 80;
    const std::uint16_t inside = column < 72 ? cube_at(row / 100, row % 100, column) : std::uint16_t{0xdead};
    ASSERT_EQ(half("box ", 24, i), at < 16000 ? inside : 0);
  }
}

TEST(CalibrationSm90, Stores) {
  for (int t = 0; t < 128; ++t) EXPECT_EQ(emulated().at("bulk", 0, t), u32(100 + t));
  const auto source = [](int i) { return std::uint16_t(i * 3 + 1); };
  for (int row = 0; row < 48; ++row)
    for (int column = 0; column < 72; ++column) {
      const bool inside = row >= 24 && column >= 16;
      ASSERT_EQ(half("bulk", 1, row * 72 + column), inside ? source(swizzled((row - 24) * 64 + column - 16, 128)) : 0);
    }
  for (int i = 0; i < 256; ++i) EXPECT_EQ(half("bulk", 1, 1792 * 2 + i), source(i));
  for (int page = 0; page < 2; ++page)
    for (int row = 0; row < 24; ++row)
      for (int column = 0; column < 72; ++column) {
        const bool inside = row >= 12 && column >= 8;
        ASSERT_EQ(half("bulk", 1, 4096 + (page * 24 + row) * 72 + column),
                  inside ? source(swizzled((page * 16 + row - 12) * 64 + column - 8, 128)) : 0);
      }
}

// What calibrate_fill() put into half i of a, or (77777 further) of b.
int number(int i) { return int(((u32(i) * 2654435761u) >> 13) % 15) - 7; }

// The half (row, k) of an operand, as a canonical layout of the ISA gives its place.
using Place = std::function<int(int row, int k)>;
Place k_major(int span) {  // 8 rows are an atom; with 16: no swizzle, columns of 8 x 16 bytes, 128 and 512 bytes apart
  if (span == 16) return [](int row, int k) { return row / 8 * 256 + row % 8 * 8 + k / 8 * 64 + k % 8; };
  return [span](int row, int k) {
    const int panel = span / 2;  // 16 k further is further in the row
    return swizzled(row * panel + k, span);
  };
}
Place mn_major(int span, int leading, int stride) {  // bytes, as the descriptors say
  if (span == 16) return [](int row, int k) { return row / 8 * 256 + row % 8 + k / 8 * 64 + k % 8 * 8; };
  return [=](int row, int k) {
    const int side = span / 2;
    return swizzled(row / side * leading / 2 + row % side + k / 8 * stride / 2 + k % 8 * side, span);
  };
}

// Group words `from`...: d[64][n] of `depth` k. `also`: what a thread's accumulator had before.
void expect_product(
    const std::string& group, int from, int n, int depth, const Place& b, const std::function<int(int row, int k)>& a,
    const std::function<int(int t, int i)>& also = [](int, int) { return 0; }) {
  for (int t = 0; t < 128; ++t)
    for (int i = 0; i < n / 2; ++i) {
      const int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + t % 4 * 2 + i % 2;
      int sum = also(t, i);
      for (int k = 0; k < depth; ++k) sum += a(row, k) * number(77777 + b(column, k));
      ASSERT_EQ(std::bit_cast<float>(emulated().at(group, from + i, t)), float(sum))
          << group << " " << n << " row " << row << " column " << column;
    }
}
std::function<int(int, int)> in_a(const Place& place) {
  return [place](int row, int k) { return number(place(row, k)); };
}
// A from registers: a[4 s + 2 j + h] holds row g + 8 h, k 16 s + 8 j + 2 t and the next.
int in_registers(int row, int k) {
  const int t = row / 16 * 32 + row % 8 * 4 + k % 8 / 2, i = k / 16 * 4 + k % 16 / 8 * 2 + row % 16 / 8;
  return k % 2 ? (t * 5 + i) % 13 - 6 : (t * 7 + i * 3) % 11 - 5;
}

TEST(CalibrationSm90, ProductsOfEveryLayout) {
  const Place k128 = k_major(128), m128 = mn_major(128, 8192, 1024);
  const auto before = [](int t, int i) { return t + i * 100; };
  expect_product("wkk ", 0, 64, 64, k128, in_a(k128));
  expect_product("wkm ", 0, 128, 64, m128, in_a(k128));
  expect_product("wmk ", 0, 64, 64, k128, in_a(m128));
  expect_product("wmm ", 0, 64, 64, m128, in_a(m128));
  expect_product("wrk ", 0, 64, 64, k128, in_registers, before);
  expect_product("wrm ", 0, 128, 64, m128, in_registers, before);
  expect_product("w64 ", 0, 64, 32, k_major(64), in_a(k_major(64)));
  expect_product("w64 ", 32, 64, 32, mn_major(64, 2048, 512), in_a(mn_major(64, 2048, 512)));
  expect_product("w32 ", 0, 64, 16, k_major(32), in_a(k_major(32)));
  expect_product("w32 ", 32, 64, 32, mn_major(32, 1024, 256), in_a(mn_major(32, 1024, 256)));
  expect_product("w0  ", 0, 64, 32, k_major(16), in_a(k_major(16)));
  expect_product("w0  ", 32, 64, 32, mn_major(16, 0, 0), in_a(mn_major(16, 0, 0)));
  expect_product("wf16", 0, 64, 64, k128, in_a(k128));
  expect_product("wf16", 32, 64, 64, m128, in_registers, before);
}

TEST(CalibrationSm90, ProductsOfEveryWidth) {
  const Place k128 = k_major(128);
  int from = 0;
  for (const int n : {8, 24, 80, 176, 256}) {
    expect_product("wn  ", from, n, n == 8 ? 64 : 32, k128, in_a(k128));
    from += n / 2;
  }
}

TEST(CalibrationSm90, SumsAreRounded) {  // and lie where fp64 puts them
  const auto number64 = [](int i) {
    const u32 h = (u32(i) * 2654435761u) >> 13;
    const double size = (1 + (h % 128) * 0.0078125) * (1u << (h >> 7) % 5) * 0.25;
    return h >> 10 & 1 ? -size : size;
  };
  const Place k128 = k_major(128);
  bool rounded = false;
  for (int t = 0; t < 128; ++t)
    for (int i = 0; i < 64; ++i) {
      const int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, column = i % 32 / 4 * 8 + t % 4 * 2 + i % 2;
      double sum = 0;
      for (int k = 0; k < 64; ++k) sum += number64(k128(row, k)) * number64(77777 + k128(column, k));
      const float got = std::bit_cast<float>(emulated().at("wsum", i, t));
      ASSERT_NEAR(double(got), sum, 0x1p-11);
      rounded |= double(got) != sum;
    }
  EXPECT_TRUE(rounded) << "every sum is exact: the group shows nothing";
}

TEST(CalibrationSm90, NumbersThatAreNone) {
  const auto at = [](int row, int column) {
    const int t = row / 16 * 32 + row % 8 * 4 + column % 8 / 2, i = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
    return std::bit_cast<float>(emulated().at("wspc", i, t));
  };
  EXPECT_EQ(at(0, 0), float(64 * 65 / 2) * 0x1p-133f);  // denormals are numbers
  EXPECT_TRUE(std::isinf(at(8, 0)));
  EXPECT_TRUE(std::isnan(at(16, 0)));
  EXPECT_TRUE(std::isnan(at(24, 0)));
  EXPECT_EQ(at(8, 8), INFINITY);  // times a denormal
}

}  // namespace
}  // namespace tessera::sim
