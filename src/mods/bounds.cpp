// Interval arithmetic over the steps of a mask's bounds.
// Integer operations saturate, which keeps their order, so the ends of an interval are those of the exact one cut to
// int64. Real +, -, *, / and sqrt are rounded correctly and hence monotone: computed on the ends of their arguments
// they are exact bounds of what the interpreter computes between. Functions of the mathematical library need not be
// monotone in their last bits: their ends are moved outward.
// Must not know: tiles.
#include "mods/bounds.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "mods/arithmetic.hpp"

namespace tessera::mods {
namespace {

constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr RealRange unknown{-infinity, infinity, true};

Truth decided(bool truth) { return truth ? Truth::always : Truth::never; }
Truth negated(Truth t) { return t == Truth::mixed ? Truth::mixed : t == Truth::always ? Truth::never : Truth::always; }

IntegerRange hull(const IntegerRange& a, const IntegerRange& b) { return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)}; }
// Of an operation that is monotone in each argument while the other stands still.
template <class Operation>
IntegerRange corners(const IntegerRange& a, const IntegerRange& b, Operation operation) {
  const std::int64_t x = operation(a.lo, b.lo), y = operation(a.lo, b.hi), z = operation(a.hi, b.lo),
                     w = operation(a.hi, b.hi);
  return {std::min(std::min(x, y), std::min(z, w)), std::max(std::max(x, y), std::max(z, w))};
}
IntegerRange quotient(const IntegerRange& a, const IntegerRange& b) {
  if (b.lo > 0 || b.hi < 0) return corners(a, b, floor_div);
  IntegerRange r{0, 0};  // by zero
  if (b.lo < 0) r = hull(r, corners(a, {b.lo, -1}, floor_div));
  if (b.hi > 0) r = hull(r, corners(a, {1, b.hi}, floor_div));
  return r;
}
IntegerRange remainder(const IntegerRange& a, const IntegerRange& b) {
  if (b.lo == b.hi) {
    if (b.lo == 0 || b.lo == -1) return {0, 0};
    if (floor_div(a.lo, b.lo) == floor_div(a.hi, b.lo)) return {floor_mod(a.lo, b.lo), floor_mod(a.hi, b.lo)};
  } else if (b.lo > 0 && a.lo >= 0 && a.hi < b.lo) {
    return a;
  }
  return {b.lo < 0 ? b.lo + 1 : 0, b.hi > 0 ? b.hi - 1 : 0};
}

bool is_point(const RealRange& a) { return !a.nan && a.lo == a.hi; }
bool is_infinite(const RealRange& a) { return a.lo == -infinity || a.hi == infinity; }
bool has_zero(const RealRange& a) { return a.lo <= 0 && a.hi >= 0; }
RealRange hull(const RealRange& a, const RealRange& b) {
  if (a.nan || b.nan) return unknown;
  return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)};
}
RealRange checked(double lo, double hi) {
  if (std::isnan(lo) || std::isnan(hi)) return unknown;
  return {lo, hi};
}
double result(Op op, double a, double b = 0) { return compute(op, Type::real, {0, a}, {0, b}, {0, 0}).r; }

// Outward by far more than the errors of a mathematical library, a few units in the last place.
RealRange outward(double lo, double hi, double lowest, double highest) {
  if (std::isnan(lo) || std::isnan(hi)) return unknown;
  constexpr double largest = std::numeric_limits<double>::max(), smallest = std::numeric_limits<double>::min();
  constexpr double relative = 0x1p-46;
  lo = std::clamp(lo, -infinity, largest), hi = std::clamp(hi, -largest, infinity);
  return {std::max(lowest, lo - std::fabs(lo) * relative - smallest),
          std::min(highest, hi + std::fabs(hi) * relative + smallest)};
}

RealRange corners(Op op, const RealRange& a, const RealRange& b) {
  const double x = result(op, a.lo, b.lo), y = result(op, a.lo, b.hi), z = result(op, a.hi, b.lo),
               w = result(op, a.hi, b.hi);
  if (std::isnan(x) || std::isnan(y) || std::isnan(z) || std::isnan(w)) return unknown;
  return {std::min(std::min(x, y), std::min(z, w)), std::max(std::max(x, y), std::max(z, w))};
}

RealRange of_one(Op op, const RealRange& a) {
  if (a.nan) return unknown;
  if (is_point(a)) {
    // Zero of either sign, where the sign makes a difference.
    if (op == Op::rsqrt && a.lo == 0) return unknown;
    const double r = result(op, a.lo);
    return checked(r, r);
  }
  switch (op) {
    case Op::neg:
      return {-a.hi, -a.lo};
    case Op::abs:
      if (a.lo >= 0) return a;
      return a.hi <= 0 ? RealRange{-a.hi, -a.lo} : RealRange{0, std::max(-a.lo, a.hi)};
    case Op::sign:
      return {result(op, a.lo), result(op, a.hi)};
    case Op::sqrt:
      return a.lo >= 0 ? checked(std::sqrt(a.lo), std::sqrt(a.hi)) : unknown;
    case Op::rsqrt:
      return a.lo > 0 ? checked(result(op, a.hi), result(op, a.lo)) : unknown;
    case Op::log:
      return a.lo >= 0 ? outward(std::log(a.lo), std::log(a.hi), -infinity, infinity) : unknown;
    case Op::exp:
    case Op::exp2:
      return outward(result(op, a.lo), result(op, a.hi), 0, infinity);
    case Op::sigmoid:
      return outward(result(op, a.lo), result(op, a.hi), 0, 1);
    case Op::tanh:
    case Op::erf:
      return outward(result(op, a.lo), result(op, a.hi), -1, 1);
    default:
      return unknown;
  }
}

RealRange of_two(Op op, const RealRange& a, const RealRange& b) {
  if (a.nan || b.nan) return unknown;
  // A zero may have either sign, which tells when it divides.
  if (op == Op::div ? has_zero(b) || (is_infinite(a) && is_infinite(b)) : false) return unknown;
  if (op == Op::pow && a.lo <= 0) return unknown;
  if (is_point(a) && is_point(b)) {
    const double r = result(op, a.lo, b.lo);
    return checked(r, r);
  }
  switch (op) {
    case Op::add:
      if ((a.lo == -infinity && b.hi == infinity) || (a.hi == infinity && b.lo == -infinity)) return unknown;
      return checked(a.lo + b.lo, a.hi + b.hi);
    case Op::sub:
      if ((a.lo == -infinity && b.lo == -infinity) || (a.hi == infinity && b.hi == infinity)) return unknown;
      return checked(a.lo - b.hi, a.hi - b.lo);
    case Op::mul:
      if ((has_zero(a) && is_infinite(b)) || (has_zero(b) && is_infinite(a))) return unknown;
      return corners(op, a, b);
    case Op::div:
      return corners(op, a, b);
    case Op::min:
      return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    case Op::max:
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    case Op::pow: {  // of a positive base: monotone in either argument
      const RealRange r = corners(op, a, b);
      return r.nan ? unknown : outward(r.lo, r.hi, 0, infinity);
    }
    default:
      return unknown;
  }
}

// a op b, from their ends.
template <class Range>
Truth compared(Op op, const Range& a, const Range& b) {
  switch (op) {
    case Op::lt:
      return a.hi < b.lo ? Truth::always : a.lo >= b.hi ? Truth::never : Truth::mixed;
    case Op::le:
      return a.hi <= b.lo ? Truth::always : a.lo > b.hi ? Truth::never : Truth::mixed;
    case Op::gt:
      return compared(Op::lt, b, a);
    case Op::ge:
      return compared(Op::le, b, a);
    case Op::eq:
      if (a.hi < b.lo || b.hi < a.lo) return Truth::never;
      return a.lo == a.hi && b.lo == b.hi ? Truth::always : Truth::mixed;
    default:
      return negated(compared(Op::eq, a, b));
  }
}

}  // namespace

IntegerRange Bounds::range(std::uint32_t sum) {
  const Flat& flat = sums_[sum];
  if (flat.plain != absent) {
    refresh(flat.plain);
    return integers_[flat.plain];
  }
  IntegerRange r{flat.constant, flat.constant};
  const Term* terms = terms_.data() + flat.first;
  for (std::uint32_t i = 0; i < flat.count; ++i) {
    refresh(terms[i].step);
    const IntegerRange x = integers_[terms[i].step];
    const std::int64_t f = terms[i].factor;
    if (f >= 0) r.lo += f * x.lo, r.hi += f * x.hi;
    else r.lo += f * x.hi, r.hi += f * x.lo;
  }
  if (flat.other != absent) {
    const IntegerRange other = range(flat.other);
    r = {std::max(r.lo, other.lo), std::min(r.hi, other.hi)};
  }
  return r;
}

Summary::Entry Bounds::load(const Step& step) {
  std::int64_t first[Capture::max_rank], last[Capture::max_rank];
  for (std::size_t a = 0; a < step.arg_count; ++a) {
    const IntegerRange r = range(step.arg[a]);
    first[a] = r.lo, last[a] = r.hi;
  }
  if (step.slot >= summaries_.size()) return {0, 0, Summary::bit(0)};  // not bound: as the interpreter reads it
  return summaries_[step.slot].range(first, last);
}

// Of an integer that is a load or a constant; all ones where nothing is known.
std::uint64_t Bounds::signature(std::uint32_t sum) {
  const Flat& flat = sums_[sum];
  if (flat.count == 0) return Summary::bit(flat.constant);
  if (flat.plain == absent || steps_[flat.plain].op != Op::load) return ~std::uint64_t{0};
  refresh(flat.plain);
  return signatures_[flat.plain];
}

IntegerRange Bounds::integer_of(const Step& step) {
  const auto arg = [&](std::size_t a) { return range(step.arg[a]); };
  switch (step.op) {
    case Op::query:
      return {box_.q_begin, box_.q_end - 1};
    case Op::key:
      return {box_.k_begin, box_.k_end - 1};
    case Op::add: {
      const IntegerRange a = arg(0), b = arg(1);
      return {mods::add(a.lo, b.lo), mods::add(a.hi, b.hi)};
    }
    case Op::sub: {
      const IntegerRange a = arg(0), b = arg(1);
      return {mods::sub(a.lo, b.hi), mods::sub(a.hi, b.lo)};
    }
    case Op::neg: {
      const IntegerRange a = arg(0);
      return {mods::sub(0, a.hi), mods::sub(0, a.lo)};
    }
    case Op::mul: {
      const IntegerRange a = arg(0), b = arg(1);
      IntegerRange r = corners(a, b, mods::mul);
      const Flat &x = sums_[step.arg[0]], &y = sums_[step.arg[1]];
      const bool square =
          x.constant == y.constant && x.count == y.count &&
          std::equal(terms_.begin() + x.first, terms_.begin() + x.first + x.count, terms_.begin() + y.first);
      if (square) r.lo = a.lo <= 0 && a.hi >= 0 ? 0 : std::min(mods::mul(a.lo, a.lo), mods::mul(a.hi, a.hi));
      return r;
    }
    case Op::floor_div:
      return quotient(arg(0), arg(1));
    case Op::mod:
      return remainder(arg(0), arg(1));
    case Op::min: {
      const IntegerRange a = arg(0), b = arg(1);
      return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    }
    case Op::max: {
      const IntegerRange a = arg(0), b = arg(1);
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    }
    case Op::abs: {
      const IntegerRange a = arg(0);
      if (a.lo >= 0) return a;
      const std::int64_t low = mods::sub(0, a.lo);
      return a.hi <= 0 ? IntegerRange{mods::sub(0, a.hi), low} : IntegerRange{0, std::max(low, a.hi)};
    }
    case Op::sign: {
      const IntegerRange a = arg(0);
      return {(a.lo > 0) - (a.lo < 0), (a.hi > 0) - (a.hi < 0)};
    }
    case Op::select: {
      const Truth by = truth(step.arg[0]);
      if (by != Truth::mixed) return arg(by == Truth::always ? 1 : 2);
      return hull(arg(1), arg(2));
    }
    default:
      return {least, most};
  }
}

RealRange Bounds::real_of(const Step& step) {
  switch (step.op) {
    case Op::constant: {
      const double value = std::bit_cast<double>(step.value);
      return checked(value, value);
    }
    case Op::to_real: {
      const IntegerRange a = range(step.arg[0]);
      return {static_cast<double>(a.lo), static_cast<double>(a.hi)};
    }
    case Op::select: {
      const Truth by = truth(step.arg[0]);
      if (by != Truth::mixed) return real(step.arg[by == Truth::always ? 1 : 2]);
      return hull(real(step.arg[1]), real(step.arg[2]));
    }
    default:
      if (step.arg_count == 1) return of_one(step.op, real(step.arg[0]));
      if (step.arg_count == 2) return of_two(step.op, real(step.arg[0]), real(step.arg[1]));
      return unknown;
  }
}

Truth Bounds::compared(const Step& step) {
  Truth t = Truth::mixed;
  if (step.operands == Type::real) {
    const RealRange &a = real(step.arg[0]), &b = real(step.arg[1]);
    if (!a.nan && !b.nan) t = mods::compared(step.op, a, b);
    if (t != Truth::mixed || a.nan || b.nan) return t;
    const bool loads = steps_[step.arg[0]].op == Op::load && steps_[step.arg[1]].op == Op::load;
    if (!loads || (signatures_[step.arg[0]] & signatures_[step.arg[1]]) != 0) return t;
  } else {
    t = step.difference != absent ? mods::compared(step.op, range(step.difference), IntegerRange{0, 0})
                                  : mods::compared(step.op, range(step.arg[0]), range(step.arg[1]));
    if (t != Truth::mixed || step.arg_count == 0) return t;
    if ((signature(step.arg[0]) & signature(step.arg[1])) != 0) return t;
  }
  // Nothing in the one is in the other.
  return step.op == Op::eq ? Truth::never : step.op == Op::ne ? Truth::always : t;
}

Truth Bounds::truth_of(const Step& step) {
  const auto arg = [&](std::size_t a) { return truth(step.arg[a]); };
  switch (step.op) {
    case Op::constant:
      return decided(step.value != 0);
    case Op::logical_not:
      return negated(arg(0));
    case Op::logical_and:
    case Op::logical_or: {  // the cheaper side may decide alone
      const std::size_t first = steps_[step.arg[0]].cost <= steps_[step.arg[1]].cost ? 0 : 1;
      const Truth decisive = step.op == Op::logical_and ? Truth::never : Truth::always, a = arg(first);
      if (a == decisive) return a;
      const Truth b = arg(1 - first);
      return b == decisive || a == b ? b : Truth::mixed;
    }
    case Op::select:
      if (const Truth by = arg(0); by != Truth::mixed) return arg(by == Truth::always ? 1 : 2);
      return arg(1) == arg(2) ? arg(1) : Truth::mixed;
    default:
      return compared(step);
  }
}

void Bounds::compute(std::uint32_t n) {
  const Step& step = steps_[n];
  stale_[n] = 0;
  if (step.op == Op::load) {
    const Summary::Entry e = load(step);
    signatures_[n] = e.signature;
    if (step.type == Type::integer) integers_[n] = {e.lo, e.hi};
    if (step.type == Type::boolean) truths_[n] = e.lo == e.hi ? decided(e.lo != 0) : Truth::mixed;
    if (step.type == Type::real) {
      static const std::int64_t first = real_key(-infinity), last = real_key(infinity);
      reals_[n] = e.lo < first || e.hi > last ? unknown : RealRange{key_real(e.lo), key_real(e.hi)};
    }
  } else if (step.type == Type::integer) {
    integers_[n] = integer_of(step);
  } else if (step.type == Type::real) {
    reals_[n] = real_of(step);
  } else {
    truths_[n] = truth_of(step);
  }
}

Truth Bounds::operator()(const Box& box) {
  std::uint8_t changed = 0;
  if (box.q_begin != box_.q_begin || box.q_end != box_.q_end) changed |= query_bit;
  if (box.k_begin != box_.k_begin || box.k_end != box_.k_end) changed |= key_bit;
  box_ = box;
  integers_[query_step] = {box.q_begin, box.q_end - 1}, integers_[key_step] = {box.k_begin, box.k_end - 1};
  for (std::size_t i = key_step + 1; i < steps_.size(); ++i)
    if ((steps_[i].depends & changed) != 0) stale_[i] = 1;
  return truth(root_);
}

}  // namespace tessera::mods
