#include "gpu/tile_table_sm90.hpp"

#include <algorithm>
#include <limits>

#include "kernels/layout_sm90.cuh"

namespace tessera::gpu {
namespace {

constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
enum class For { full, edges, both };

struct Row {
  Tile tile;
  For what = For::both;
  std::int64_t keys = any;  // at most
  bool plain = false;       // neither scores are changed nor a mask evaluated
};

constexpr Tile tile(int dim, int q_tile, int k_tile, int stages, int q_buffers = 2) {
  return {dim, q_tile, k_tile, q_tile / 16, stages, 1, 3, false, stages, q_buffers, true};
}

// By measurement: docs/kernels/forward_sm90.md.
constexpr Row rows[] = {
    {tile(64, 256, 64, 4), For::full, 4096, true},
    {tile(64, 192, 128, 3), For::full, any, true},
    {tile(64, 256, 64, 4), For::edges, 1024, true},
    {tile(64, 192, 128, 3), For::edges, any, true},
    {tile(64, 128, 128, 4)},
    {tile(128, 128, 128, 2)},
    {tile(192, 128, 96, 2)},
    {tile(192, 128, 96, 2, 1)},
    {tile(256, 128, 64, 2, 1)},
};

constexpr std::size_t count = std::size(rows);
struct Tiles {
  Tile all[count];
};
constexpr Tiles tiles = [] {
  Tiles made{};
  for (std::size_t i = 0; i < count; ++i) made.all[i] = rows[i].tile;
  return made;
}();

bool suits(const Row& row, const TileUse& use) {
  const bool what = row.what == For::both || (row.what == For::edges) == use.edges;
  return what && use.keys <= row.keys && !(row.plain && use.evaluated);
}

}  // namespace

std::span<const Tile> tile_table_sm90() { return tiles.all; }

std::int64_t tile_smem_bytes_sm90(const Tile& t, int dim, int dim_v) {
  return tessera_kernels::shared_bytes_sm90(t.warps / 4, t.k_tile, t.stages, t.v_stages, t.q_buffers, dim, dim_v);
}

const Tile* find_tile_sm90(std::span<const Tile> table, const Caps& caps, const TileUse& use) {
  const bool own = table.data() == tiles.all && table.size() == count;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Tile& tile = table[i];
    if (std::max(use.dim, use.dim_v) > tile.max_dim || (own && !suits(rows[i], use))) continue;
    if (tile_smem_bytes_sm90(tile, use.dim, use.dim_v) <= caps.smem_block_bytes) return &tile;
  }
  return nullptr;
}

}  // namespace tessera::gpu
