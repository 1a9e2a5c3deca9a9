// Who does what in a persistent launch.
#include "gpu/deal.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace tessera::gpu {
namespace {

std::vector<double> loads(const Work& work, const DealList& dealt, double start) {
  std::vector<double> all;
  for (std::size_t b = 0; b + 1 < dealt.begin.size(); ++b) {
    double load = 0;
    for (unsigned i = dealt.begin[b]; i < dealt.begin[b + 1]; ++i)
      load += work.cost[dealt.list[i] % static_cast<unsigned>(work.tiles)] + start;
    all.push_back(load);
  }
  return all;
}

Work triangle(std::int64_t heads, std::int64_t tiles) {
  Work work{.heads = heads, .tiles = tiles, .bytes_of_keys = 1 << 20, .cost = {}};
  for (std::int64_t i = 0; i < tiles; ++i) work.cost.push_back(static_cast<double>(tiles - i));
  return work;
}

TEST(Deal, EachItemOnce) {
  const Work work = triangle(6, 7);
  std::vector<unsigned> list = deal(work, 5, 2 << 20).list;
  std::sort(list.begin(), list.end());
  std::vector<unsigned> all(42);
  std::iota(all.begin(), all.end(), 0u);
  EXPECT_EQ(list, all);
}
TEST(Deal, BlocksEndTogether) {
  const Work work = triangle(16, 128);
  const DealList dealt = deal(work, 132, 25 << 20);
  const std::vector<double> all = loads(work, dealt, 1);
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  EXPECT_LT(*most / *least, 1.02);
}
TEST(Deal, MoreBlocksThanItems) {
  const DealList dealt = deal(triangle(1, 2), 4, 1);
  EXPECT_EQ(dealt.begin.size(), 5u);
  EXPECT_EQ(dealt.list.size(), 2u);
}
// What runs at once reads the keys of as few heads as the cache holds, those of one group side by side.
TEST(Deal, HeadsOfAGroupAtOnce) {
  Work work = triangle(8, 2);
  work.group = 4;
  const DealList dealt = deal(work, 1, 1);
  const std::vector<unsigned> first(dealt.list.begin(), dealt.list.begin() + 8);
  EXPECT_EQ(first, (std::vector<unsigned>{0, 2, 4, 6, 1, 3, 5, 7}));
}

}  // namespace
}  // namespace tessera::gpu
