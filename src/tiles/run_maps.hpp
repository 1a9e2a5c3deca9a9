// The runs of a whole call: one map for each sequence and head that the mask tells apart, made from the values of the
// tensors that it reads.
// Must not know: devices.
#pragma once

#include "tiles/runs.hpp"

namespace tessera::tiles {

class RunMaps {
 public:
  RunMaps() = default;
  // sequences: the grid of each, all of one tile size. Masks that are costly to decide stay undecided in part: the maps
  // take at most about a tenth of the time of the attention itself, and no longer than what grows with the queries.
  RunMaps(const Graph& mask, std::span<const mods::Table> tables, std::span<const Grid> sequences, std::int64_t heads);

  const Runs& at(std::int64_t sequence, std::int64_t head) const {
    return maps_[static_cast<std::size_t>((per_sequence_ ? sequence : 0) * heads_ + (heads_ > 1 ? head : 0))];
  }
  bool per_head() const { return heads_ > 1; }

 private:
  bool per_sequence_ = false;
  std::int64_t heads_ = 1;  // maps of each sequence
  mods::Vector<Runs> maps_;
};

// Whether a mask's runs are the same in every call of a shape: it reads no tensor.
bool runs_are_fixed(const Graph& mask);

}  // namespace tessera::tiles
