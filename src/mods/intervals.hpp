// Interval arithmetic and the questions asked of summaries, for the host: the texts of shared/, which are embedded for
// devices as well. Must not know: graphs, tiles.
#pragma once
#include <math.h>

#include <cstdint>

#include "mods/arithmetic.hpp"

namespace tessera::mods::intervals {

using int64 = std::int64_t;
using uint64 = std::uint64_t;

#define SHARED inline
#define LONG_SHARED inline
#define ROLLED
#include "mods/shared/intervals.inl"
#include "mods/shared/summaries.inl"
#undef ROLLED
#undef LONG_SHARED
#undef SHARED

// Of an operation on integers that gives one, but a choice, a load or a search. Of one argument: b is not looked at.
inline IntegerRange of_integers(Op op, const IntegerRange& a, const IntegerRange& b) {
  switch (op) {
    case Op::add:
      return sum(a, b);
    case Op::sub:
      return difference(a, b);
    case Op::neg:
      return opposite(a);
    case Op::mul:
      return product(a, b);
    case Op::floor_div:
      return quotient(a, b);
    case Op::mod:
      return remainder(a, b);
    case Op::min:
      return smaller(a, b);
    case Op::max:
      return larger(a, b);
    case Op::abs:
      return absolute(a);
    case Op::sign:
      return sign(a);
    default:
      return {least_integer(), most_integer()};
  }
}
// a op b, from their ends: of integers, or of reals.
template <class Range>
Truth compared(Op op, const Range& a, const Range& b) {
  switch (op) {
    case Op::lt:
      return less(a, b);
    case Op::le:
      return less_or_equal(a, b);
    case Op::gt:
      return less(b, a);
    case Op::ge:
      return less_or_equal(b, a);
    case Op::eq:
      return equal(a, b);
    default:
      return negated(equal(a, b));
  }
}

}  // namespace tessera::mods::intervals
