// Which tiles matter to a mask that bands do not describe: for each query tile the key tiles that it attends to, as
// runs of full and of partial ones. Derived from the mask's graph: the cost follows the number of runs, not of tiles.
// Must not know: devices, heads and batches beyond the one asked for.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <span>

#include "mods/bounds.hpp"
#include "mods/kept.hpp"
#include "tessera/expr.hpp"

namespace tessera::tiles {

// Queries stand at the logical positions [q_offset, q_offset + queries), keys at [0, keys). Tile (i, j) holds queries
// from q_offset + i * q_tile and keys from j * k_tile; the last ones may be short.
struct Grid {
  std::int64_t q_offset = 0, queries = 0, keys = 0;
  std::int64_t q_tile = 128, k_tile = 128;
  std::int64_t query_tiles() const { return queries / q_tile + (queries % q_tile != 0); }
  std::int64_t key_tiles() const { return keys / k_tile + (keys % k_tile != 0); }
  bool operator==(const Grid&) const = default;
};

// Key tiles [begin, end): full, every pair of them is attended to; else partial, some pair is and some is not.
struct Run {
  std::uint32_t begin = 0;
  std::uint32_t end : 31 = 0;
  std::uint32_t full : 1 = 0;
  bool operator==(const Run&) const = default;
};

class Runs {
 public:
  Runs() = default;
  explicit Runs(std::size_t query_tiles) : offsets_(query_tiles + 1) {}  // nothing attends to anything
  std::size_t query_tiles() const { return offsets_.size() - 1; }
  // Of one query tile: sorted, disjoint; neighbours that touch are of different kinds.
  std::span<const Run> operator[](std::size_t query_tile) const {
    return {runs_.data() + offsets_[query_tile], offsets_[query_tile + 1] - offsets_[query_tile]};
  }
  std::size_t size() const { return runs_.size(); }
  std::size_t full_tiles() const;
  std::size_t partial_tiles() const;
  // Every tile is called what it is. Otherwise some that are called partial may be full or empty.
  bool exact() const { return exact_; }
  std::size_t bytes() const;
  bool operator==(const Runs&) const = default;

 private:
  friend class Derivation;
  bool exact_ = true;
  mods::Vector<std::uint32_t> offsets_{0};  // of each query tile's first run
  mods::Vector<Run> runs_;
};
std::ostream& operator<<(std::ostream& out, const Run& run);    // "full [2, 5)"
std::ostream& operator<<(std::ostream& out, const Runs& runs);  // a line a query tile

inline constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

// The runs of a mask for batch b and head h. `tables` are bound to the graph's captures, and `summaries` are theirs
// (mods::summarise), made once for all batches and heads. Exact while the number of evaluations, of boxes or of single
// pairs, stays within `effort`; from there on what is not decided is partial.
// Throws Error(internal) for a grid that is none, and for one with more than 2^31 - 1 key tiles or 2^32 - 1 runs.
Runs derive(const Graph& mask, std::span<const mods::Table> tables, std::span<const mods::Summary> summaries,
            std::int64_t b, std::int64_t h, const Grid& grid, std::size_t effort = unlimited);
Runs derive(const Graph& mask, std::span<const mods::Table> tables, std::int64_t b, std::int64_t h, const Grid& grid,
            std::size_t effort = unlimited);

}  // namespace tessera::tiles
