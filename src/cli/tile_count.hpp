// How many tiles a plan meets: full, partial, empty. Counted by halving boxes where they are mixed, so the cost goes
// with the border of the mask, not with the number of tiles.
#pragma once
#include "tessera/tile_map.hpp"

namespace tessera::cli {

struct TileCount {
  double full = 0, partial = 0, empty = 0;
  double all() const { return full + partial + empty; }
};

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }
// For logical queries [q_begin, q_end) cut every q_tile from q_begin, and keys [0, keys) cut every k_tile from 0.
TileCount count_tiles(const TileMap& map, std::int64_t q_begin, std::int64_t q_end, std::int64_t q_tile,
                      std::int64_t keys, std::int64_t k_tile);

}  // namespace tessera::cli
