// How large the integers of a graph can be: intervals of its nodes, from those of its coordinates, literals and tables.
// What is proved here decides which operations of the emitted text are plain ones, and which of them have 32 bits.
// Must not know: text.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "mods/graph.hpp"

namespace tessera::emit {

// Of an integer, inclusive. Wider than any integer, so that sums and products of ends are exact.
struct Interval {
  __int128 lo = 0, hi = 0;
  bool operator==(const Interval&) const = default;
};
constexpr bool contains(const Interval& all, const Interval& some) { return all.lo <= some.lo && some.hi <= all.hi; }
inline constexpr Interval every_i64{-(__int128{1} << 63), (__int128{1} << 63) - 1};
inline constexpr Interval every_i32{-(std::int64_t{1} << 31), (std::int64_t{1} << 31) - 1};

// An operation on integers that gives one, but a choice, a load and a search: where it does not saturate, and else.
// `plain` says whether the exact result always fits into 64 bits.
struct Computed {
  Interval range;
  bool plain = true;
};
Computed of_integers(Op op, const Interval& a, const Interval& b);
Interval of_coordinate(Op op, bool narrow);
Interval of_elements(DType dtype);  // of a table of integers

// Of each parameter of a graph, in order, what the narrow text takes its integers to be.
std::vector<Interval> narrow_parameters(const Graph& graph);

}  // namespace tessera::emit
