// What a thread keeps: the second time nothing is allocated, nested uses do not disturb each other, and the heap serves
// what is made outside of a use.
#include "mods/kept.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "../tests/unit/count_allocations.hpp"

namespace tessera::mods {
namespace {

long fill_and_sum(const Keeping& keeping, std::size_t n) {
  const Keeping::Use use(keeping);
  Vector<Vector<int>> rows(10);
  for (std::size_t i = 0; i < n; ++i) rows[i % 10].push_back(static_cast<int>(i));
  long sum = 0;
  for (const auto& row : rows) sum = std::accumulate(row.begin(), row.end(), sum);
  return sum;
}
constexpr std::size_t many = 200000;
constexpr long expected = long{many} * (many - 1) / 2;

TEST(Kept, GrowsOnce) {
  std::thread([] {
    for (int call = 0; call < 3; ++call) {
      const tests::AllocationCount count;
      {
        const Keeping keeping;
        EXPECT_EQ(fill_and_sum(keeping, many), expected);
      }
      if (call == 0) EXPECT_GT(count.of_this_thread(), 1u);
      else EXPECT_EQ(count.of_this_thread(), 0u) << call;
    }
  }).join();
}

TEST(Kept, InnerOnesLeaveOuterOnesAlone) {
  const Keeping outer;
  Vector<int> mine;
  {
    const Keeping::Use use(outer);
    mine.assign(1000, 7);
  }
  for (int call = 0; call < 2; ++call) {
    const Keeping inner;
    EXPECT_EQ(fill_and_sum(inner, many), expected);
  }
  EXPECT_EQ(mine, Vector<int>(1000, 7));
}

TEST(Kept, WhatIsMadeOutsideOfAUseOutlivesIt) {
  Vector<int> mine;
  {
    const Keeping keeping;
    EXPECT_EQ(fill_and_sum(keeping, 100), 99 * 50);
    mine.assign(1000, 7);
  }
  {
    const Keeping keeping;
    EXPECT_EQ(fill_and_sum(keeping, many), expected);
  }
  EXPECT_EQ(mine, Vector<int>(1000, 7));
}

}  // namespace
}  // namespace tessera::mods
