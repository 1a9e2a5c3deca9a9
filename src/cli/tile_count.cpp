#include "cli/tile_count.hpp"

#include <algorithm>

namespace tessera::cli {
namespace {

struct Grid {
  const TileMap& map;
  std::int64_t q_begin, q_end, q_tile, keys, k_tile;

  // Tiles [q0, q1) x [k0, k1).
  void count(std::int64_t q0, std::int64_t q1, std::int64_t k0, std::int64_t k1, TileCount& into) const {
    const double tiles = static_cast<double>(q1 - q0) * static_cast<double>(k1 - k0);
    const std::int64_t k_first = k0 * k_tile, k_last = std::min(keys, k1 * k_tile);
    const Cover cover = map.cover(q_begin + q0 * q_tile, std::min(q_end, q_begin + q1 * q_tile), k_first, k_last);
    if (cover.coverage == Coverage::empty) into.empty += tiles;
    else if (cover.coverage == Coverage::full && cover.k_begin <= k_first && cover.k_end >= k_last) into.full += tiles;
    else if (tiles == 1 || !map.decided()) into.partial += tiles;
    else if (q1 - q0 >= k1 - k0) {
      const std::int64_t middle = q0 + (q1 - q0) / 2;
      count(q0, middle, k0, k1, into), count(middle, q1, k0, k1, into);
    } else {
      const std::int64_t middle = k0 + (k1 - k0) / 2;
      count(q0, q1, k0, middle, into), count(q0, q1, middle, k1, into);
    }
  }
};

}  // namespace

TileCount count_tiles(const TileMap& map, std::int64_t q_begin, std::int64_t q_end, std::int64_t q_tile,
                      std::int64_t keys, std::int64_t k_tile) {
  TileCount count;
  if (q_end <= q_begin || keys <= 0 || q_tile <= 0 || k_tile <= 0) return count;
  Grid{map, q_begin, q_end, q_tile, keys, k_tile}.count(0, ceil_div(q_end - q_begin, q_tile), 0, ceil_div(keys, k_tile),
                                                        count);
  return count;
}

}  // namespace tessera::cli
