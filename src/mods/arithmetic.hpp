// What an operation means on numbers: the one definition that folding, the interpreter and later evaluators share.
// Integers are int64 and saturate; division by zero is 0; // and % round toward minus infinity (the remainder has the
// sign of the divisor). min and max of a NaN and a number are the number. Nothing here is undefined behaviour.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "tessera/expr.hpp"

namespace tessera::mods {

// A number of any type: integers and booleans in i, reals in r. No default values: the interpreter has arrays of them.
struct Value {
  std::int64_t i;
  double r;
};

inline std::int64_t saturated(bool overflow, bool negative, std::int64_t exact) {
  if (!overflow) return exact;
  return negative ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max();
}
inline std::int64_t add(std::int64_t a, std::int64_t b) {
  std::int64_t r;
  const bool overflow = __builtin_add_overflow(a, b, &r);
  return saturated(overflow, b < 0, r);
}
inline std::int64_t sub(std::int64_t a, std::int64_t b) {
  std::int64_t r;
  const bool overflow = __builtin_sub_overflow(a, b, &r);
  return saturated(overflow, b > 0, r);
}
inline std::int64_t mul(std::int64_t a, std::int64_t b) {
  std::int64_t r;
  const bool overflow = __builtin_mul_overflow(a, b, &r);
  return saturated(overflow, (a < 0) != (b < 0), r);
}
inline std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return sub(0, a);
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
}
inline std::int64_t floor_mod(std::int64_t a, std::int64_t b) {
  if (b == 0 || b == -1) return 0;
  const std::int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// How many of the `count` integers at(0), at(1), ... lie before the place of x: where they ascend, how many are at most
// x. These steps are the definition, of every evaluator and for integers in any order: with other ones, integers that
// do not ascend would give other answers.
//
// It never falls as x grows, whatever the integers are. Take x < y and follow both searches. They begin with the same
// (first, last) and part, if ever, at one middle, because at(middle) <= y but not at(middle) <= x: the other way round,
// at(middle) <= x < y, cannot be. From there x stays within [first, middle], so its answer is at most middle, and y
// within [middle + 1, last], so its answer is more. If they never part, the answers are equal. So where x lies in
// [a, b], the answer lies between those of a and of b: the bounds of a box (bounds.cpp) need no order either.
template <class At>
constexpr std::int64_t upper_bound(std::int64_t count, std::int64_t x, At at) {
  std::int64_t first = 0, last = count;
  while (first < last) {
    const std::int64_t middle = first + (last - first) / 2;
    if (at(middle) <= x) first = middle + 1;
    else last = middle;
  }
  return first;
}

// `type` is that of the arguments (for select: of the last two). Comparisons and logic answer in i.
inline Value compute(Op op, Type type, const Value& a, const Value& b, const Value& c) {
  const auto integer = [](std::int64_t i) { return Value{i, 0}; };
  const auto real = [](double r) { return Value{0, r}; };
  const auto truth = [](bool t) { return Value{t ? 1 : 0, 0}; };
  const bool is_real = type == Type::real;
  switch (op) {
    case Op::add:
      return is_real ? real(a.r + b.r) : integer(add(a.i, b.i));
    case Op::sub:
      return is_real ? real(a.r - b.r) : integer(sub(a.i, b.i));
    case Op::mul:
      return is_real ? real(a.r * b.r) : integer(mul(a.i, b.i));
    case Op::floor_div:
      return integer(floor_div(a.i, b.i));
    case Op::mod:
      return integer(floor_mod(a.i, b.i));
    case Op::div:
      return real(a.r / b.r);
    case Op::min:
      return is_real ? real(std::isnan(a.r) || b.r < a.r ? b.r : a.r) : integer(a.i < b.i ? a.i : b.i);
    case Op::max:
      return is_real ? real(std::isnan(a.r) || b.r > a.r ? b.r : a.r) : integer(a.i > b.i ? a.i : b.i);
    case Op::neg:
      return is_real ? real(-a.r) : integer(sub(0, a.i));
    case Op::abs:
      return is_real ? real(std::fabs(a.r)) : integer(a.i < 0 ? sub(0, a.i) : a.i);
    case Op::sign:
      if (is_real) return real(a.r > 0 ? 1 : a.r < 0 ? -1 : a.r);  // of zeroes and NaN: themselves
      return integer((a.i > 0) - (a.i < 0));
    case Op::lt:
      return truth(is_real ? a.r < b.r : a.i < b.i);
    case Op::le:
      return truth(is_real ? a.r <= b.r : a.i <= b.i);
    case Op::gt:
      return truth(is_real ? a.r > b.r : a.i > b.i);
    case Op::ge:
      return truth(is_real ? a.r >= b.r : a.i >= b.i);
    case Op::eq:
      return truth(is_real ? a.r == b.r : a.i == b.i);
    case Op::ne:
      return truth(is_real ? a.r != b.r : a.i != b.i);
    case Op::logical_and:
      return truth(a.i && b.i);
    case Op::logical_or:
      return truth(a.i || b.i);
    case Op::logical_not:
      return truth(!a.i);
    case Op::select:
      return a.i ? b : c;
    case Op::exp:
      return real(std::exp(a.r));
    case Op::exp2:
      return real(std::exp2(a.r));
    case Op::log:
      return real(std::log(a.r));
    case Op::tanh:
      return real(std::tanh(a.r));
    case Op::sigmoid:
      return real(1 / (1 + std::exp(-a.r)));
    case Op::sqrt:
      return real(std::sqrt(a.r));
    case Op::rsqrt:
      return real(1 / std::sqrt(a.r));
    case Op::erf:
      return real(std::erf(a.r));
    case Op::pow:
      return real(std::pow(a.r, b.r));
    case Op::to_real:
      return real(static_cast<double>(a.i));
    case Op::load:
    case Op::upper_bound:
    case Op::constant:
    case Op::param:
    case Op::batch:
    case Op::head:
    case Op::query:
    case Op::key:
    case Op::score:
      break;
  }
  return {0, 0};
}

}  // namespace tessera::mods
