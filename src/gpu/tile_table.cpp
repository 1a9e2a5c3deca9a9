#include "gpu/tile_table.hpp"

#include <algorithm>

#include "kernels/layout.cuh"

namespace tessera::gpu {
namespace {

constexpr Tile shared(Tile tile) {
  tile.early = 1, tile.warps_n = 2;
  return tile;
}

// In order: small dims first, then few rows first, then most stages first. 16 rows a warp are the least that a matrix
// instruction has. With 32 each fragment of keys and values meets two of queries, and the tensor core waits for shared
// memory half as long: up to dim 128, where the output of 32 rows has its place in registers. Beyond, two warps have
// them together. Measured by bench/gpu/sweep.cpp: docs/kernels/forward_sm80.md.
constexpr Tile table[] = {
    // max_dim, q_tile, k_tile, warps, stages, blocks, early, q_registers
    {64, 16, 128, 1, 2},
    {64, 32, 128, 2, 2},
    {64, 64, 128, 4, 2, 2},
    {64, 128, 128, 4, 2, 2},
    {128, 16, 64, 1, 2},
    {128, 32, 64, 2, 2},
    {128, 64, 64, 4, 2, 2},
    {128, 128, 64, 4, 2, 2},
    {128, 128, 64, 4, 1},
    {192, 16, 64, 1, 2},
    {192, 16, 64, 1, 1},
    {192, 32, 64, 2, 2},
    {192, 32, 64, 2, 1},
    {192, 64, 64, 4, 1, 2},
    {256, 16, 64, 1, 2},
    {256, 16, 64, 1, 1},
    {256, 32, 64, 2, 2},
    {256, 32, 64, 2, 1},
    shared({256, 64, 64, 4, 1, 2}),
    {256, 64, 64, 4, 1, 2},
    shared({256, 128, 64, 8, 2, 1}),
    shared({256, 128, 64, 8, 1, 1}),
};

}  // namespace

std::span<const Tile> tile_table() { return table; }

std::int64_t tile_smem_bytes(const Tile& tile, int dim, int dim_v, bool paged) {
  return tessera_kernels::forward_shared_bytes(tile.q_tile, tile.k_tile, tile.stages, dim, dim_v, paged, tile.warps_n);
}

const Tile* find_tile(std::span<const Tile> table, const Caps& caps, int dim, int dim_v, bool paged, std::int64_t rows,
                      bool alike) {
  const int widest = std::max(dim, dim_v);
  const Tile* best = nullptr;
  for (const Tile& tile : table) {
    if (widest > tile.max_dim || (best && (tile.max_dim != best->max_dim || tile.q_tile <= best->q_tile))) continue;
    if (alike && tile.warps_n > 1) continue;
    if (tile_smem_bytes(tile, dim, dim_v, paged) > caps.smem_block_bytes) continue;
    best = &tile;
    if (tile.q_tile >= rows) break;
  }
  return best;
}

}  // namespace tessera::gpu
