// What can be known of many elements of a captured tensor at once, without reading them again.
// Must not know: graphs' operations, tiles.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "mods/graph.hpp"

namespace tessera::mods {

// Elements as int64 keys in the order of their values, so that one summary serves every type: integers and booleans
// are themselves, reals are the order of their doubles (-0 is 0).
std::int64_t real_key(double value);
double key_real(std::int64_t key);  // a NaN's key is beyond those of the infinities, at both ends of an entry

// A pyramid over a table: min, max and a signature for each block of 64 elements along the last axis, and for blocks of
// blocks. Made once in one pass over the table; the table must outlive it, for the ends of ranges are read from there.
class Summary {
 public:
  // Of some elements. signature: bit(key) of each; disjoint signatures mean that no element is in both.
  struct Entry {
    std::int64_t lo, hi;
    std::uint64_t signature;
  };
  static constexpr std::int64_t block = 64;
  static std::uint64_t bit(std::int64_t key) {
    return std::uint64_t{1} << ((static_cast<std::uint64_t>(key) * 0x9e3779b97f4a7c15u) >> 58);
  }

  // names_only: the elements are compared for equality with others of their line (all indices but the last are the
  // same) and with nothing else, so each line may be renumbered by first appearance: neighbours get neighbouring
  // numbers, and ranges say more.
  Summary(const Table& table, const Capture& capture, bool names_only = false);
  // Of the elements whose indices lie in [first[i], last[i]], each clamped to the table.
  Entry range(const std::int64_t* first, const std::int64_t* last) const;
  std::size_t bytes() const;  // of memory beside the table

 private:
  struct Level {
    std::int64_t row_block = 1, column_block = block, rows = 0, columns = 0;  // elements a block, blocks a slice
    std::vector<Entry> entries;                                               // [slice][row][column]
  };
  // Rows are the last but one axis, columns the last; a slice is one place on the axes before.
  using Numbers = std::unordered_map<std::int64_t, std::int64_t>;
  Entry scan(std::int64_t line, std::int64_t start, std::int64_t count) const;  // elements of a line from an offset on
  Entry along_row(std::int64_t slice, std::int64_t offset, std::int64_t row, std::int64_t first,
                  std::int64_t last) const;
  void visit(std::size_t level, std::int64_t slice, std::int64_t offset, std::int64_t row, std::int64_t column,
             const std::array<std::int64_t, 4>& window, Entry& sum) const;
  Level above(const Level& below, std::int64_t row_factor, std::int64_t column_factor) const;
  void renumber(std::int64_t line, std::int64_t start);

  Table table_;
  int rank_ = 1;
  bool empty_ = false;
  std::int64_t slices_ = 1, rows_ = 1, columns_ = 1, row_stride_ = 0, stride_ = 1;
  int leading_ = 0;  // axes before the rows
  std::array<std::int64_t, 2> leading_extent_{1, 1}, leading_stride_{0, 0};
  std::vector<Level> along_;    // 1 x 64, 1 x 512, ...: for a few rows
  std::vector<Level> squares_;  // 64 x 64, 512 x 512, ...: for many
  Entry everything_{};
  std::vector<Numbers> number_;  // of the names of each line; empty: as they are
};

// Of the captures of a graph, in order.
std::vector<Summary> summarise(const Graph& graph, std::span<const Table> tables);

}  // namespace tessera::mods
