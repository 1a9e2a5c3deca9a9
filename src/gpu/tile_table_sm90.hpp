// The tiles of the kernel of sm_90: a table, read from the top.
// Must not know: problems, data.
#pragma once
#include <cstdint>
#include <span>

#include "gpu/tile_table.hpp"

namespace tessera::gpu {

std::span<const Tile> tile_table_sm90();

std::int64_t tile_smem_bytes_sm90(const Tile& tile, int dim, int dim_v);

// What a tile is wanted for. Whatever is so, row by row, in every call of a problem whose rows must not depend on what
// else is in the batch: `keys` is then unbounded.
struct TileUse {
  int dim = 64, dim_v = 64;
  bool edges = false;      // a mask that bands describe, or one that is evaluated
  bool evaluated = false;  // scores are changed, or a mask is evaluated: more registers
  std::int64_t keys = 0;
};

// The first tile of the library's table, or of one that pins a tile, that is for these dims and keys and fits the
// device's shared memory; null: none does.
const Tile* find_tile_sm90(std::span<const Tile> table, const Caps& caps, const TileUse& use);

}  // namespace tessera::gpu
