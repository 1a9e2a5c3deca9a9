#include "tiles/run_maps.hpp"

#include <algorithm>

#include "tiles/decisions.hpp"

namespace tessera::tiles {
namespace {

// Of all query tiles of a map.
std::size_t worthwhile(const Grid& grid) {
  const std::int64_t tiles = grid.query_tiles();
  if (tiles == 0) return least_effort;
  return static_cast<std::size_t>(tiles * row_effort(grid.q_tile, grid.keys, tiles) + least_effort);
}

}  // namespace

RunMaps::RunMaps(const Graph& mask, std::span<const mods::Table> tables, std::span<const Grid> sequences,
                 std::int64_t heads) {
  const mods::Dependence sees = mods::dependence(mask);
  per_sequence_ = sees.batch || std::any_of(sequences.begin(), sequences.end(),
                                            [&](const Grid& grid) { return !(grid == sequences[0]); });
  heads_ = sees.head ? heads : 1;
  const std::size_t distinct = per_sequence_ ? sequences.size() : std::min<std::size_t>(1, sequences.size());
  const mods::Vector<mods::Summary> summaries = mods::summarise(mask, tables);
  maps_.reserve(distinct * static_cast<std::size_t>(heads_));
  for (std::size_t i = 0; i < distinct; ++i)
    for (std::int64_t h = 0; h < heads_; ++h)
      maps_.push_back(
          derive(mask, tables, summaries, static_cast<std::int64_t>(i), h, sequences[i], worthwhile(sequences[i])));
}

bool runs_are_fixed(const Graph& mask) { return mask.captures.empty(); }

}  // namespace tessera::tiles
