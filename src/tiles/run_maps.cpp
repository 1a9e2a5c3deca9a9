#include "tiles/run_maps.hpp"

#include <algorithm>

namespace tessera::tiles {
namespace {

// Deciding a pair or a box costs some 50 ns, attention a few ns for each pair. A mask that is mixed everywhere has as
// many tiles to decide as there are: beyond a fifth of a second, what grows with the queries alone must do, which is
// more than documents or blocks of any size take.
std::size_t worthwhile(const Grid& grid) {
  constexpr double most = 1 << 22, of_a_row = 128;
  const double pairs = static_cast<double>(grid.queries) * static_cast<double>(grid.keys);
  const double capped = std::min(pairs / 256, most + of_a_row * static_cast<double>(grid.query_tiles()));
  return static_cast<std::size_t>(capped) + 4096;
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
