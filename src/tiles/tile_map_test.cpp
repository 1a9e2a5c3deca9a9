// Bands, covers and counts against the mask evaluated pair by pair.
#include "tessera/tile_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "mods/graph.hpp"
#include "mods/testing/property.hpp"

namespace tessera {
namespace {

using tests::Choices;
using Wide = __int128;

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

template <class T>
std::string text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}
std::string bands_of(const std::string& mask) { return text(TileMap(parse_mask(mask))); }
bool attends(const Mask& mask, std::int64_t q, std::int64_t k) {
  return mods::evaluate_mask(mask.graph(), {.q = q, .k = k});
}

// ------------------------------------------------------------------------------------------------- random masks
// Of the distance alone, as text. Thresholds lie within `reach` for small numbers.
std::string affine(Choices& choices) {  // an integer c + f * (k - q), in some spelling
  static constexpr const char* spellings[] = {"(k - q)",
                                              "(q - k)",
                                              "-(k - q)",
                                              "(2 * (k - q))",
                                              "(k * 3 - q * 3)",
                                              "(q - k + param(5))",
                                              "(k + 7 - q)",
                                              "((k - q) * -2 + 1)",
                                              "(-q + k - param(-9))",
                                              "(q * 2 + k - 3 * q)",
                                              "(4 - 9)",
                                              "param(3)",
                                              "(k - k)"};
  return choices.of(spellings);
}
std::string side_of_distance(Choices& choices, bool extreme) {
  static constexpr const char* small[] = {"0", "1", "-1", "4", "-13", "40", "param(17)", "param(-30)"};
  static constexpr const char* large[] = {"9223372036854775807",
                                          "-9223372036854775807",
                                          "param(9223372036854775806)",
                                          "param(-9223372036854775808)",
                                          "4611686018427387904",
                                          "-4611686018427387905",
                                          "3"};
  return extreme ? choices.of(large) : choices.of(small);
}
std::string comparison(Choices& choices, bool extreme) {
  static constexpr const char* signs[] = {" <= ", " < ", " > ", " >= ", " == ", " != "};
  static constexpr const char* simple[] = {"k", "q", "(k + 2)", "(q - param(6))", "(k - 3)"};
  static constexpr const char* scaled[] = {"(k * 4611686018427387904)",
                                           "(q * 4611686018427387904)",
                                           "(k + 9223372036854775807)",
                                           "(q + 9223372036854775807)",
                                           "(k + 9223372036854775807 - 9223372036854775807)",
                                           "(q - param(9223372036854775806))",
                                           "(q * 2)",
                                           "(k - q)"};
  std::string left, sign;  // in this order, so that a case repeats
  switch (choices.pick(extreme ? 3 : 2)) {
    case 0:
      left = affine(choices), sign = choices.of(signs);
      return left + sign + side_of_distance(choices, extreme);
    case 1: {  // one side has k, the other q
      const std::uint32_t first = choices.pick(2);
      const char* sides[2] = {first ? "(q - param(6))" : "(k + 2)", first ? "k" : "q"};
      return std::string(sides[0]) + choices.of(signs) + sides[1];
    }
    default:
      left = choices.of(scaled), sign = choices.of(signs);
      return left + sign + (choices.pick(2) ? choices.of(simple) : choices.of(scaled));
  }
}
std::string window_text(Choices& choices, bool extreme) {
  static constexpr const char* small[] = {"0", "1", "3", "12", "33", "unbounded"};
  static constexpr const char* large[] = {"9223372036854775806", "4611686018427387903", "4611686018427387905", "0",
                                          "unbounded"};
  const auto width = [&] { return std::string(extreme ? choices.of(large) : choices.of(small)); };
  const std::string left = width();
  return "window(" + left + ", " + width() + ")";
}
// A mask of some operations; `free`: of anything that a mask may be made of.
std::string random_mask(Choices& choices, bool extreme, bool free, int depth = 0) {
  if (!choices.more() || depth > 4) return choices.pick(2) ? "causal" : window_text(choices, extreme);
  const auto part = [&] { return random_mask(choices, extreme, free, depth + 1); };
  const auto pair = [&](const char* sign) {
    const std::string left = part();
    return "(" + left + sign + part() + ")";
  };
  static constexpr const char* others[] = {"(q >= 3)",           "(k < param(9))",     "(b == 1)",
                                           "((k + q) % 2 == 0)", "(k // 8 == q // 8)", "(abs(k - q) < 5)",
                                           "(real(k) < 3.5)",    "(k * q > 4)",        "(k + q < 12)",
                                           "(k - 2 * q < 1)",    "(min(k, q) > 2)",    "(q == 2)"};
  switch (choices.pick(free ? 9 : 7)) {
    case 0:
    case 1:
      return "(" + comparison(choices, extreme) + ")";
    case 2:
      return pair(" & ");
    case 3:
      return pair(" | ");
    case 4:
      return "(!" + part() + ")";
    case 5:
      return window_text(choices, extreme);
    case 6: {
      const std::string by = part(), yes = part();
      return "where(" + by + ", " + yes + ", " + part() + ")";
    }
    default:
      return choices.of(others);
  }
}

// ------------------------------------------------------------------------------------------------- by brute force
bool in_bands(const TileMap& map, std::int64_t q, std::int64_t k) {
  for (const Band& band : map.bands())
    if (band.lo <= Wide{k} - q && Wide{k} - q <= band.hi) return true;
  return false;
}
// A small box somewhere, at the ends of what positions may be as well.
struct Box {
  std::int64_t q_begin, q_end, k_begin, k_end;
};
Box random_box(Choices& choices, std::uint32_t largest) {
  static constexpr std::int64_t starts[] = {0, 3, -5, 11, 1000, mods::farthest - 50, -mods::farthest};
  const std::int64_t q = choices.of(starts) + choices.pick(9);
  std::int64_t k = choices.pick(3) ? q + choices.pick(19) - 9 : choices.of(starts);
  k = std::clamp(k, -mods::farthest, mods::farthest - 50);
  return {q, q + 1 + choices.pick(largest), k, k + 1 + choices.pick(largest)};
}
void check_cover(const Mask& mask, const TileMap& map, const Box& box) {
  const auto attended = [&](std::int64_t k) {
    std::int64_t count = 0;
    for (std::int64_t q = box.q_begin; q < box.q_end; ++q) count += attends(mask, q, k);
    return count;
  };
  std::int64_t first = box.k_begin, last = box.k_end;
  while (first < last && attended(first) == 0) ++first;
  while (last > first && attended(last - 1) == 0) --last;
  bool every = first < last;
  for (std::int64_t k = first; k < last; ++k) every = every && attended(k) == box.q_end - box.q_begin;
  const Coverage coverage = first == last ? Coverage::empty : every ? Coverage::full : Coverage::partial;
  const Cover got = map.cover(box.q_begin, box.q_end, box.k_begin, box.k_end);
  if (!map.decided()) {
    PROPERTY_HOLDS(got.coverage == Coverage::partial);
    PROPERTY_HOLDS(got.k_begin == box.k_begin && got.k_end == box.k_end);
    return;
  }
  PROPERTY_HOLDS(got.coverage == coverage);
  if (coverage == Coverage::empty) PROPERTY_HOLDS(got.k_begin == got.k_end);
  else PROPERTY_HOLDS(got.k_begin == first && got.k_end == last);
}
void check_mask(Choices& choices, const Mask& mask, std::uint32_t largest) {
  const TileMap map(mask);
  const Box box = random_box(choices, largest);
  if (map.decided())
    for (std::int64_t q = box.q_begin; q < box.q_end; ++q)
      for (std::int64_t k = box.k_begin; k < box.k_end; ++k)
        if (in_bands(map, q, k) != attends(mask, q, k))
          PROPERTY_FAILS(text(mask) + " is not " + text(map) + " at q " + std::to_string(q) + " k " +
                         std::to_string(k));
  check_cover(mask, map, box);
  const std::int64_t keys = choices.pick(40), q = std::int64_t{choices.pick(80)} - 30, queries = choices.pick(30);
  double count = 0;
  for (std::int64_t i = q; i < q + queries; ++i)
    for (std::int64_t k = 0; k < keys; ++k) count += !map.decided() || attends(mask, i, k);
  PROPERTY_HOLDS(map.pairs(q, q + queries, keys) == count);
}

TEST(TileMap, AgreesWithTheMaskPairByPair) {
  int decided = 0, undecided = 0;
  tests::check_property("any mask", 8000, [&](Choices& choices) {
    const bool extreme = choices.pick(3) == 0;
    const Mask mask = parse_mask(random_mask(choices, extreme, true));
    TileMap(mask).decided() ? ++decided : ++undecided;
    check_mask(choices, mask, 24);
  });
  EXPECT_GT(decided, 2000);
  EXPECT_GT(undecided, 500);
}

// What sees the distance alone is decided, and its bands are the maximal runs of distances, exactly.
TEST(TileMap, FindsExactlyTheRunsOfDistances) {
  std::array<int, TileMap::max_bands + 2> seen{};
  tests::check_property("distance masks", 8000, [&](Choices& choices) {
    const Mask mask = parse_mask(random_mask(choices, false, false));
    constexpr std::int64_t reach = 120;  // beyond every threshold of the random masks
    std::vector<Band> runs;
    for (std::int64_t d = -reach; d <= reach; ++d) {
      if (!attends(mask, 1000, 1000 + d)) continue;
      if (runs.empty() || runs.back().hi != d - 1) runs.push_back({d, d});
      else runs.back().hi = d;
    }
    if (!runs.empty() && runs.front().lo == -reach) runs.front().lo = lowest;
    if (!runs.empty() && runs.back().hi == reach) runs.back().hi = highest;
    const TileMap map(mask);
    ++seen[std::min(runs.size(), seen.size() - 1)];
    if (runs.size() > TileMap::max_bands) {
      PROPERTY_HOLDS(!map.decided());
      PROPERTY_HOLDS(map.bands().empty());
    } else {
      PROPERTY_HOLDS(map.decided());
      if (!std::equal(runs.begin(), runs.end(), map.bands().begin(), map.bands().end()))
        PROPERTY_FAILS(text(mask) + " became " + text(map));
    }
    check_mask(choices, mask, 40);
  });
  for (std::size_t i = 0; i < 4; ++i) EXPECT_GT(seen[i], 50) << i << " bands";
}

TEST(TileMap, IsRightAtTheEndsOfTheIntegers) {
  int decided = 0;
  tests::check_property("extreme masks", 8000, [&](Choices& choices) {
    const Mask mask = parse_mask(random_mask(choices, true, false));
    decided += TileMap(mask).decided();
    check_mask(choices, mask, 24);
  });
  EXPECT_GT(decided, 4000);
}

// ------------------------------------------------------------------------------------------------- by name
TEST(TileMap, PrintsWhatItFound) {
  EXPECT_EQ(text(TileMap()), "all");
  EXPECT_EQ(bands_of("full"), "all");
  EXPECT_EQ(bands_of("false"), "none");
  EXPECT_EQ(bands_of("causal"), "band k - q in (-inf, 0]");
  EXPECT_EQ(bands_of("!causal"), "band k - q in [1, inf)");
  EXPECT_EQ(bands_of("window(1023, 0)"), "band k - q in [-1023, 0]");
  EXPECT_EQ(bands_of("causal & window(1023, 64)"), "band k - q in [-1023, 0]");
  EXPECT_EQ(bands_of("window(3, 1) | k == q + 9"), "bands k - q in [-3, 1] or [9, 9]");
  EXPECT_EQ(bands_of("k != q"), "bands k - q in (-inf, -1] or [1, inf)");
  EXPECT_EQ(bands_of("q >= 3"), "not by distance alone: decided tile by tile");
  EXPECT_EQ(bands_of("k // 4 == q // 4"), "not by distance alone: decided tile by tile");
}

TEST(TileMap, JoinsBandsThatTouch) {
  EXPECT_EQ(bands_of("window(5, 0) | window(0, 7)"), "band k - q in [-5, 7]");
  EXPECT_EQ(bands_of("(k - q == 3) | (k - q == 4)"), "band k - q in [3, 4]");
  EXPECT_EQ(bands_of("causal | k > q"), "all");
  EXPECT_EQ(bands_of("causal & k > q"), "none");
  EXPECT_EQ(bands_of("2 * (k - q) == 7"), "none");
  EXPECT_EQ(bands_of("2 * (k - q) != 7"), "all");
  EXPECT_EQ(bands_of("3 * q - 3 * k <= 7"), "band k - q in [-2, inf)");
}

TEST(TileMap, WhatDoesNotMatterIsNotAsked) {
  EXPECT_EQ(bands_of("(q > 3) & (k <= q & k > q)"), "none");
  EXPECT_EQ(bands_of("(b == 2) | (k <= q | k > q)"), "all");
  EXPECT_EQ(bands_of("where(k <= q | k > q, causal, b == 2)"), "band k - q in (-inf, 0]");
  EXPECT_EQ(bands_of("k + q - q <= q"), "band k - q in (-inf, 0]");
  EXPECT_EQ(bands_of("q - q < 1"), "all");
}

// Both sides reach the end of the integers and are equal there; or a sum goes on from the end.
TEST(TileMap, SumsThatSaturateAreNotSolved) {
  for (const char* mask :
       {"k + 9223372036854775807 <= q + 9223372036854775807", "k * 4611686018427387904 == q * 4611686018427387904",
        "k + 9223372036854775807 - q <= 9223372036854775000", "q - (k + 9223372036854775807) >= -9223372036854775000",
        "k - q + 9223372036854775807 == 9223372036854775807", "9223372036854775807 == k - q + 9223372036854775807"}) {
    EXPECT_EQ(bands_of(mask), "not by distance alone: decided tile by tile") << mask;
    EXPECT_TRUE(attends(parse_mask(mask), 900, 1000)) << mask;  // by exact sums it would not
  }
  // One side may: it stays beyond whatever the other can be.
  EXPECT_EQ(bands_of("k < q + 9223372036854775807"), "band k - q in (-inf, 9223372036854775806]");
  EXPECT_EQ(bands_of("k * 16 <= q * 16 + 40"), "band k - q in (-inf, 2]");
}

TEST(TileMap, TheWidestWindows) {
  for (const std::int64_t width : {highest - 1, std::int64_t{1} << 62, mods::farthest, std::int64_t{1} << 40}) {
    const TileMap map(window(width, 0));
    ASSERT_TRUE(map.decided()) << width;
    EXPECT_EQ(map.bands().size(), 1u);
    EXPECT_EQ(map.bands()[0], (Band{-width, 0}));
    const Cover near = map.cover(0, 64, 0, 64), before = map.cover(100, 164, 0, 64), after = map.cover(0, 64, 64, 128);
    EXPECT_EQ(near.coverage, Coverage::partial);
    EXPECT_EQ(before.coverage, Coverage::full);
    EXPECT_EQ(after.coverage, Coverage::empty);
    EXPECT_EQ(map.pairs(0, 1000, 1000), 1000.0 * 1001 / 2);
  }
}

TEST(TileMap, CoverTrimsToTheKeysThatAreAttended) {
  const auto shows = [](const TileMap& map, Box box) {
    const Cover c = map.cover(box.q_begin, box.q_end, box.k_begin, box.k_end);
    const char* names[] = {"empty", "partial", "full"};
    return std::string(names[static_cast<int>(c.coverage)]) + " " + std::to_string(c.k_begin) + " " +
           std::to_string(c.k_end);
  };
  const TileMap band(window(10, 2));
  EXPECT_EQ(shows(band, {100, 104, 0, 1000}), "partial 90 106");
  EXPECT_EQ(shows(band, {100, 101, 0, 1000}), "full 90 103");  // one query: what it attends to is full
  EXPECT_EQ(shows(band, {100, 104, 93, 103}), "full 93 103");
  EXPECT_EQ(shows(band, {100, 104, 92, 103}), "partial 92 103");
  EXPECT_EQ(shows(band, {100, 104, 93, 104}), "partial 93 104");
  EXPECT_EQ(shows(band, {100, 104, 0, 90}), "empty 0 0");
  EXPECT_EQ(shows(band, {100, 104, 106, 200}), "empty 106 106");
  const TileMap holes(!window(1, 1));
  EXPECT_EQ(shows(holes, {5, 6, 0, 20}), "partial 0 20");
  EXPECT_EQ(shows(holes, {5, 6, 4, 20}), "full 7 20");
  EXPECT_EQ(shows(holes, {5, 6, 4, 7}), "empty 4 4");
  EXPECT_EQ(shows(TileMap(), {5, 9, 4, 7}), "full 4 7");
  EXPECT_EQ(shows(TileMap(!full()), {5, 9, 4, 7}), "empty 4 4");
  EXPECT_EQ(shows(TileMap(parse_mask("b == 0")), {5, 9, 4, 7}), "partial 4 7");
}

TEST(TileMap, CountsWhatNoLoopCould) {
  const std::int64_t million = 1000000;
  EXPECT_EQ(TileMap(causal()).pairs(0, million, million), 500000500000.0);
  EXPECT_EQ(TileMap(window(1023, 0)).pairs(0, million, million), 1024.0 * 1000000 - 1023.0 * 1024 / 2);
  EXPECT_EQ(TileMap().pairs(0, highest, highest), 0x1p126);
  EXPECT_EQ(TileMap(causal()).pairs(0, std::int64_t{1} << 62, std::int64_t{1} << 62), 0x1p123);
  // Far from zero the count is still exact: three queries that see the last 5, 6 and 7 keys.
  const std::int64_t far = mods::farthest - 10;
  const TileMap map(parse_mask("k - q >= " + std::to_string(-far) + " & k - q < " + std::to_string(5 - far)));
  EXPECT_EQ(map.pairs(far, far + 3, 1000), 15);
  EXPECT_EQ(map.pairs(far - 2, far + 1, 1000), 3 + 4 + 5);
  EXPECT_EQ(map.pairs(5, 5, 100), 0);
  EXPECT_EQ(map.pairs(5, 6, 0), 0);
}

TEST(TileMap, Compares) {
  EXPECT_EQ(TileMap(causal()), TileMap(parse_mask("q - k >= 0")));
  EXPECT_FALSE(TileMap(window(3, 0)) == TileMap(window(4, 0)));
  EXPECT_FALSE(TileMap(full()) == TileMap(!full()));
  EXPECT_EQ(TileMap(parse_mask("b == 0")), TileMap(parse_mask("h == 0")));
}

}  // namespace
}  // namespace tessera
