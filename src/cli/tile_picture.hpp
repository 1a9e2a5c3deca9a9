// The tiles of a shape under any mask, counted and drawn: whether bands or runs decide them.
// Must not know: plans, what is printed around it.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "cli/attended_pairs.hpp"
#include "cli/tile_count.hpp"
#include "tessera/tile_map.hpp"
#include "tiles/run_maps.hpp"

namespace tessera::cli {

class ShapeTiles {
 public:
  // The shape has been accepted by describe().
  ShapeTiles(const Shape& shape, std::int64_t q_tile, std::int64_t k_tile);

  // Whether bands decide them, or runs; neither: every tile is partial.
  bool has_bands() const { return bands_.decided(); }
  bool has_runs() const { return !grids_.empty(); }
  bool exact() const { return exact_; }         // false: some that are called partial may be full or empty
  std::size_t bytes() const { return bytes_; }  // of the map
  double build_ms() const { return build_ms_; }
  // Of all sequences; where heads differ, of a head on average.
  TileCount count() const;

  // The first sequence and head. '#': every tile there is full, '.': every one is empty, '+': else. At most so many
  // lines and columns, each of equally many tiles.
  struct Picture {
    std::vector<std::string> lines;
    std::int64_t q_tiles = 1, k_tiles = 1;  // of one character
  };
  Picture picture(std::int64_t most_lines, std::int64_t most_columns) const;

 private:
  TileMap bands_;
  Extents extents_;
  std::int64_t q_tile_, k_tile_, heads_ = 1;  // heads that are told apart
  std::vector<tiles::Grid> grids_;
  tiles::RunMaps maps_;
  bool exact_ = true;
  std::size_t bytes_ = 0;
  double build_ms_ = 0;
};

}  // namespace tessera::cli
