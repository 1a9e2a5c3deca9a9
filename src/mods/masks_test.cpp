// The ready-made masks against their definitions, their combinations, equality, hash, limits.
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <sstream>
#include <unordered_set>

#include "mods/graph.hpp"
#include "mods/testing/property.hpp"

namespace tessera {
namespace {

using tests::Choices;
using Wide = __int128;

bool attends(const Mask& mask, std::int64_t q, std::int64_t k) {
  return mods::evaluate_mask(mask.graph(), {.q = q, .k = k});
}
bool in_window(std::int64_t left, std::int64_t right, std::int64_t q, std::int64_t k) {
  return (left == unbounded || Wide{q} - left <= k) && (right == unbounded || k <= Wide{q} + right);
}

constexpr std::int64_t widths[] = {0, 1, 2, 5, 1023, std::int64_t{1} << 40, unbounded - 1, unbounded};
constexpr std::int64_t positions[] = {0, 1, 2, 3, 6, -1, -4, 1022, 1023, 1024, -5000, mods::farthest, -mods::farthest};

TEST(Masks, AreWhatTheyAreDefinedAs) {
  for (const std::int64_t q : positions)
    for (const std::int64_t k : positions) {
      EXPECT_TRUE(attends(full(), q, k));
      EXPECT_FALSE(attends(!full(), q, k));
      EXPECT_EQ(attends(causal(), q, k), k <= q);
      for (const std::int64_t left : widths)
        for (const std::int64_t right : widths)
          EXPECT_EQ(attends(window(left, right), q, k), in_window(left, right, q, k))
              << "window(" << left << ", " << right << ") at q " << q << " k " << k;
    }
}

TEST(Masks, Combine) {
  tests::check_property("combinations", 2000, [](Choices& choices) {
    // A random combination, and what it is at a point by the definitions alone.
    const std::int64_t q = choices.of(positions), k = choices.of(positions);
    std::vector<std::pair<Mask, bool>> made;
    do {
      const auto some = [&]() -> std::pair<Mask, bool> {
        if (!made.empty() && choices.pick(2)) return made[choices.pick(made.size())];
        if (choices.pick(4) == 0) return {full(), true};
        if (choices.pick(2) == 0) return {causal(), k <= q};
        const std::int64_t left = choices.of(widths), right = choices.of(widths);
        return {window(left, right), in_window(left, right, q, k)};
      };
      const auto [a, a_holds] = some();
      const auto [b, b_holds] = some();
      switch (choices.pick(3)) {
        case 0:
          made.emplace_back(a & b, a_holds && b_holds);
          break;
        case 1:
          made.emplace_back(a | b, a_holds || b_holds);
          break;
        default:
          made.emplace_back(!a, !a_holds);
      }
      PROPERTY_HOLDS(attends(made.back().first, q, k) == made.back().second);
    } while (choices.more() && made.size() < 12 && made.back().first.graph().params.size() < 60 &&
             made.back().first.graph().nodes.size() < 200);
  });
}

TEST(Masks, KeepNothingTheyDoNotNeed) {
  EXPECT_TRUE(Mask().is_full());
  EXPECT_TRUE(full().is_full());
  EXPECT_TRUE(window(unbounded, unbounded).is_full());
  EXPECT_FALSE(window(unbounded, 0).is_full());
  EXPECT_EQ(full() & causal(), causal());
  EXPECT_EQ(causal() & full(), causal());
  EXPECT_EQ(full() | causal(), full());
  EXPECT_EQ(!!causal(), causal());
  EXPECT_EQ(causal() & causal(), causal());
  EXPECT_EQ((!full()) & causal(), !full());
  EXPECT_EQ(window(unbounded, 3).graph().params.size(), 1u);
  EXPECT_EQ(window(3, unbounded).graph().params.size(), 1u);
}

TEST(Masks, ANegativeWindowIsAnError) {
  for (const auto& [left, right, says] :
       {std::tuple{std::int64_t{-1}, std::int64_t{0}, "left is -1"},
        {0, -1024, "right is -1024"},
        {std::numeric_limits<std::int64_t>::min(), unbounded, "left is -9223372036854775808"}})
    try {
      window(left, right);
      ADD_FAILURE() << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_option);
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("unbounded"), std::string::npos) << error.what();
    }
}

TEST(Masks, CompareAndHash) {
  EXPECT_EQ(window(3, 0), window(3, 0));
  EXPECT_EQ(hash(window(3, 0).graph()), hash(window(3, 0).graph()));
  EXPECT_EQ(window(3, 0).graph().nodes, window(5, 9).graph().nodes);
  EXPECT_FALSE(window(3, 0) == window(5, 0));
  EXPECT_NE(hash(window(3, 0).graph()), hash(window(5, 0).graph()));
  EXPECT_NE(hash(window(3, 0).graph()), hash(window(0, 3).graph()));
  EXPECT_FALSE(causal() == !causal());
  // Many masks, all different, and so are their hashes.
  std::unordered_set<std::uint64_t> hashes;
  std::size_t made = 0;
  for (std::int64_t left = 0; left < 40; ++left)
    for (std::int64_t right = 0; right < 40; ++right)
      for (const Mask& mask :
           {window(left, right), causal() & window(left, right), window(left, right) | causal(), !window(left, right)})
        hashes.insert(hash(mask.graph())), ++made;
  for (const Mask& mask : {full(), causal(), !causal(), !full()}) hashes.insert(hash(mask.graph())), ++made;
  EXPECT_EQ(hashes.size(), made);
}

TEST(Masks, TooManyWindowsAreAnError) {
  Mask mask = causal();
  try {
    for (std::int64_t i = 0; i < 200; ++i) mask = mask | window(i, i);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_mod);
    EXPECT_NE(std::string(error.what()).find("255"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera
