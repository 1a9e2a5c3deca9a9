// What can be known of many elements of a captured tensor at once, without reading them again.
// Must not know: graphs' operations, tiles.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "mods/graph.hpp"
#include "mods/intervals.hpp"
#include "mods/kept.hpp"

namespace tessera::mods {

using intervals::key_real;
using intervals::real_key;

// A pyramid over a table: min, max and a signature for each block of 64 elements along the last axis, and for blocks of
// blocks (shared/summaries.inl). Made once in one pass over the table; the table must outlive it, for the ends of
// ranges are read from there.
class Summary {
 public:
  using Entry = intervals::SummaryEntry;
  static std::uint64_t bit(std::int64_t key) { return intervals::key_bit(key); }

  // names_only: the elements are compared for equality with others of their line (all indices but the last are the
  // same) and with nothing else, so each line may be renumbered by first appearance: neighbours get neighbouring
  // numbers, and ranges say more.
  Summary(const Table& table, const Capture& capture, bool names_only = false);
  // Of the elements whose indices lie in [first[i], last[i]], each clamped to the table.
  Entry range(const std::int64_t* first, const std::int64_t* last) const;
  // upper_bound() of arithmetic.hpp along the lines with these indices, for numbers in [first, last] of the last axis.
  intervals::IntegerRange upper_bound(const std::int64_t* first, const std::int64_t* last) const;
  // What a device reads: arrays that this keeps.
  intervals::SummaryView view() const;
  std::size_t bytes() const;  // of memory beside the table

 private:
  struct Names {
    Vector<std::int64_t> first, keys, numbers;  // intervals::SummaryNames
  };
  intervals::SummaryNames names() const {
    if (names_.first.empty()) return {};
    return {names_.first.data(), names_.keys.data(), names_.numbers.data()};
  }
  Entry scan(std::int64_t line, std::int64_t begin, std::int64_t end) const;
  std::int64_t offset(std::int64_t line) const;  // of its first element
  void renumber(std::int64_t line);

  Table table_;
  int rank_ = 1;
  std::array<std::int64_t, 4> stride_{};  // outer, inner, row, column
  intervals::SummaryLayout layout_{};
  Vector<Entry> entries_;
  Names names_;
};

// Of the captures of a graph, in order.
Vector<Summary> summarise(const Graph& graph, std::span<const Table> tables);

}  // namespace tessera::mods
