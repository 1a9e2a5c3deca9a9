#include "gpu/order.hpp"

#include <algorithm>
#include <array>

namespace tessera::gpu {
namespace {

// Positions beyond 2^60 do not overflow, and are beyond all keys.
std::int64_t key_at(std::int64_t query, std::int64_t distance, std::int64_t keys) {
  constexpr std::int64_t far = std::int64_t{1} << 60;
  return std::clamp<std::int64_t>(std::clamp(query, -far, far) + std::clamp(distance, -far, far), 0, keys);
}

// Key tiles that some query of a tile attends to; of several bands, with what lies between them.
std::int64_t tiles_of_bands(const TileMap& map, const Decision& d, const Extent& e, std::int64_t first) {
  if (map.bands().empty()) return 0;
  const std::int64_t last = std::min(first + d.queries, e.queries) - 1;
  const std::int64_t begin = key_at(e.q_offset + first, map.bands().front().lo, e.keys);
  const std::int64_t hi = map.bands().back().hi,
                     end = hi == Band{}.hi ? e.keys : key_at(e.q_offset + last, hi + 1, e.keys);
  return begin < end ? ceil_div(end, d.spec.k_tile) - begin / d.spec.k_tile : 0;
}

std::int64_t tiles_of_runs(const WorkList& list, std::int64_t at) {
  const tessera_kernels::RunRange range = list.ranges[static_cast<std::size_t>(at)];
  std::int64_t tiles = 0;
  for (unsigned i = range.begin; i < range.end; ++i)
    tiles += static_cast<std::int64_t>(list.runs[i].end_full & 0x7fffffffu) - list.runs[i].begin;
  return tiles;
}

}  // namespace

void order_tiles(const Problem& p, const TileMap& map, const Decision& d, std::span<const Extent> sequences,
                 const WorkList& list, std::vector<std::int64_t>& order) {
  // Sorted by counting: costs share so many places.
  constexpr int places = 256;
  std::int64_t most = 0;
  for (const Extent& e : sequences) most = std::max(most, ceil_div(e.keys, d.spec.k_tile));
  int shift = 0;
  while (most >> shift >= places) ++shift;
  const auto for_each_tile = [&](const auto& take) {  // take(number, the place of its cost, the longest first)
    std::int64_t before = 0;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      const Extent& e = sequences[s];
      const std::int64_t tiles = ceil_div(e.queries, d.queries);
      const std::int64_t map_at = p.packed ? before : static_cast<std::int64_t>(s) * list.batch * list.tiles;
      for (std::int64_t local = 0; local < tiles; ++local) {
        // Where there are masks, the kernel counts tiles from the end.
        const std::int64_t tile = d.spec.keys == emit::Keys::all ? local : tiles - 1 - local;
        const std::int64_t cost = d.spec.keys == emit::Keys::bands  ? tiles_of_bands(map, d, e, tile * d.queries)
                                  : d.spec.keys == emit::Keys::runs ? tiles_of_runs(list, map_at + tile)
                                                                    : ceil_div(e.keys, d.spec.k_tile);
        take(before + local, static_cast<std::size_t>(places - 1 - std::min<std::int64_t>(cost >> shift, places - 1)));
      }
      before += tiles;
    }
    return before;
  };
  std::array<std::int64_t, places + 1> begin{};
  const std::int64_t count = for_each_tile([&](std::int64_t, std::size_t place) { ++begin[place + 1]; });
  for (std::size_t i = 1; i <= places; ++i) begin[i] += begin[i - 1];
  const std::size_t first = order.size();
  order.resize(first + static_cast<std::size_t>(count));
  for_each_tile([&](std::int64_t number, std::size_t place) {
    order[first + static_cast<std::size_t>(begin[place]++)] = number;
  });
}

std::int64_t units_at_once(const Problem& p, const Decision& d, std::span<const Extent> sequences, const Caps& caps) {
  std::int64_t keys = 0;
  for (const Extent& e : sequences) keys += e.keys;
  const double bytes = std::max(1.0, static_cast<double>(keys) * static_cast<double>(p.dim + p.dim_v) * 2);
  const double fit = cache_of_keys(caps) / bytes;
  std::int64_t heads = 1;  // key heads
  for (std::int64_t h = 1; h <= p.heads_kv && static_cast<double>(h) <= fit; ++h)
    if (p.heads_kv % h == 0) heads = h;
  return heads * (d.units / p.heads_kv);
}

}  // namespace tessera::gpu
