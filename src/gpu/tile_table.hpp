// The tiles of the tensor-core kernels: a table, read from the top.
// Must not know: problems, masks, data.
#pragma once
#include <cstdint>
#include <span>

#include "gpu/engine.hpp"

namespace tessera::gpu {

// A block of `warps` warps works on q_tile rows, which are (query, head) pairs, and streams tiles of k_tile keys
// through `stages` places of shared memory. The compiler keeps registers for `blocks` of them on a multiprocessor.
struct Tile {
  int max_dim;  // the row is for dims up to it, the larger of dim and dim_v
  int q_tile, k_tile, warps, stages, blocks = 1;
  int early = 3;             // steps of 16 keys that are exponentiated before products with values begin
  bool q_registers = false;  // a warp holds its queries in registers
  // Class 90 (tile_table_sm90.hpp): places for values and queries, and whether warpgroups take turns.
  int v_stages = 2, q_buffers = 2;
  bool ping_pong = true;
  int warps_n =
      1;  // class 80: warps that share 16 or 32 rows, each with its part of the keys and of the output: 1 or 2
  bool operator==(const Tile&) const = default;
};

std::span<const Tile> tile_table();

// Shared memory of a block with such a tile, of 16-bit types.
std::int64_t tile_smem_bytes(const Tile& tile, int dim, int dim_v, bool paged);

// The first row of the table that is for these dims, has as many rows as `rows` asks for (or is the largest) and fits
// the device's shared memory; null: none does. Of one (dim, dim_v) and device every row so chosen has the same k_tile:
// a row of queries sees its keys in the same steps however many stand beside it. `alike`: and in the same order, with
// no warps that hand each other rounded probabilities, so that it has the same bits.
const Tile* find_tile(std::span<const Tile> table, const Caps& caps, int dim, int dim_v, bool paged, std::int64_t rows,
                      bool alike = false);

}  // namespace tessera::gpu
