// Query tiles of a call in the order of their key tiles.
#include "gpu/order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "gpu/testing/device_call.hpp"
#include "gpu/testing/fake_engine.hpp"
#include "tessera/mods.hpp"

namespace tessera::gpu {
namespace {

// Tiles of 64 queries and 128 keys.
Decision tiles_of(emit::Keys keys, std::int64_t units = 4) {
  Decision d;
  d.queries = 64, d.units = units, d.spec.arch = 90, d.spec.k_tile = 128, d.spec.keys = keys;
  return d;
}
std::vector<std::int64_t> ordered(const Mask& mask, const Decision& d, const std::vector<Extent>& sequences) {
  Problem p;
  p.packed = true;
  std::vector<std::int64_t> order{7};  // what stands before stays
  order_tiles(p, TileMap(mask), d, sequences, {}, order);
  EXPECT_EQ(order.front(), 7);
  order.erase(order.begin());
  return order;
}

TEST(Order, LongSequencesFirst) {
  const std::vector<Extent> sequences{{130, 200, 70}, {0, 900, 900}, {64, 1000, 936}, {1, 129, 128}};
  EXPECT_EQ(ordered(Mask(), tiles_of(emit::Keys::all), sequences), (std::vector<std::int64_t>{3, 0, 1, 2, 4}));
}
TEST(Order, OfACausalMaskTheLastTilesOfEach) {
  // The kernel counts tiles from a sequence's end: 0 to 3 have 4, 3, 2, 1 halves of key tiles, 4 has 5.
  const std::vector<Extent> sequences{{256, 256, 0}, {10, 640, 630}};
  EXPECT_EQ(ordered(causal(), tiles_of(emit::Keys::bands), sequences), (std::vector<std::int64_t>{4, 0, 1, 2, 3}));
}
TEST(Order, EachTileOnce) {
  std::vector<Extent> sequences;
  for (std::int64_t i = 0; i < 40; ++i) sequences.push_back({i * 37 % 500, i * 9973 % 60000, i});
  std::vector<std::int64_t> order = ordered(window(300, 7), tiles_of(emit::Keys::bands), sequences);
  std::sort(order.begin(), order.end());
  std::int64_t tiles = 0;
  for (const Extent& e : sequences) tiles += (e.queries + 63) / 64;
  std::vector<std::int64_t> all(static_cast<std::size_t>(tiles));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  EXPECT_EQ(order, all);
}
TEST(Order, AsManyUnitsAtOnceAsTheCacheHoldsKeysOf) {
  Problem p;
  p.heads_q = 32, p.heads_kv = 8, p.dim = p.dim_v = 128;
  Caps caps = tests::caps_of_h200();
  const Decision d = tiles_of(emit::Keys::all, 32);
  const auto at_once = [&](std::int64_t keys) { return units_at_once(p, d, std::vector<Extent>{{1, keys, 0}}, caps); };
  EXPECT_EQ(at_once(100), 32);
  EXPECT_EQ(at_once(10000), 16);  // 5 MB a key head of 25
  EXPECT_EQ(at_once(1000000), 4);
}

}  // namespace
}  // namespace tessera::gpu
