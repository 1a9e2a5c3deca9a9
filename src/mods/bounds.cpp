// The bounds of a mask on one box after the other: interval arithmetic (shared/intervals.inl) over its steps.
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
RealRange of_one(Op op, const RealRange& a) {
  switch (op) {
    case Op::neg:
      return intervals::opposite(a);
    case Op::abs:
      return intervals::absolute(a);
    case Op::sign:
      return intervals::sign(a);
    case Op::sqrt:
      return intervals::square_root(a);
    case Op::rsqrt:
      return intervals::reciprocal_root(a);
    case Op::log:
      return intervals::logarithm(a);
    case Op::exp:
      return intervals::exponential(a);
    case Op::exp2:
      return intervals::exponential_of_two(a);
    case Op::sigmoid:
      return intervals::sigmoid(a);
    case Op::tanh:
      return intervals::hyperbolic_tangent(a);
    case Op::erf:
      return intervals::error_function(a);
    default:
      return intervals::unknown();
  }
}

RealRange of_two(Op op, const RealRange& a, const RealRange& b) {
  switch (op) {
    case Op::add:
      return intervals::sum(a, b);
    case Op::sub:
      return intervals::difference(a, b);
    case Op::mul:
      return intervals::product(a, b);
    case Op::div:
      return intervals::ratio(a, b);
    case Op::min:
      return intervals::smaller(a, b);
    case Op::max:
      return intervals::larger(a, b);
    case Op::pow:
      return intervals::power(a, b);
    default:
      return intervals::unknown();
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
    r = intervals::with_term(r, terms[i].factor, x);
  }
  if (flat.other != absent) r = intervals::meet(r, range(flat.other));
  return r;
}

Summary::Entry Bounds::load(const Step& step) {
  std::int64_t first[Capture::max_rank], last[Capture::max_rank];
  for (std::size_t a = 0; a < step.arg_count; ++a) {
    const IntegerRange r = range(step.arg[a]);
    first[a] = r.lo, last[a] = r.hi;
  }
  if (step.slot >= summaries_.size()) return intervals::zero_element();  // not bound: as the interpreter reads it
  return summaries_[step.slot].range(first, last);
}

IntegerRange Bounds::search(const Step& step) {
  std::int64_t first[Capture::max_rank], last[Capture::max_rank];
  for (std::size_t a = 0; a < step.arg_count; ++a) {
    const IntegerRange r = range(step.arg[a]);
    first[a] = r.lo, last[a] = r.hi;
  }
  if (step.slot >= summaries_.size()) return {0, 0};  // not bound: as the interpreter searches it
  return summaries_[step.slot].upper_bound(first, last);
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
    case Op::mul: {
      const Flat &x = sums_[step.arg[0]], &y = sums_[step.arg[1]];
      const bool square =
          x.constant == y.constant && x.count == y.count &&
          std::equal(terms_.begin() + x.first, terms_.begin() + x.first + x.count, terms_.begin() + y.first);
      return square ? intervals::square(arg(0)) : intervals::product(arg(0), arg(1));
    }
    case Op::select: {
      const Truth by = truth(step.arg[0]);
      if (by != Truth::mixed) return arg(by == Truth::always ? 1 : 2);
      return intervals::hull(arg(1), arg(2));
    }
    case Op::upper_bound:
      return search(step);
    default:
      return intervals::of_integers(step.op, arg(0), arg(step.arg_count > 1 ? 1 : 0));
  }
}

RealRange Bounds::real_of(const Step& step) {
  switch (step.op) {
    case Op::constant: {
      const double value = std::bit_cast<double>(step.value);
      return intervals::checked(value, value);
    }
    case Op::to_real:
      return intervals::real(range(step.arg[0]));
    case Op::select: {
      const Truth by = truth(step.arg[0]);
      if (by != Truth::mixed) return real(step.arg[by == Truth::always ? 1 : 2]);
      return intervals::hull(real(step.arg[1]), real(step.arg[2]));
    }
    default:
      if (step.arg_count == 1) return of_one(step.op, real(step.arg[0]));
      if (step.arg_count == 2) return of_two(step.op, real(step.arg[0]), real(step.arg[1]));
      return intervals::unknown();
  }
}

Truth Bounds::compared(const Step& step) {
  Truth t = Truth::mixed;
  if (step.operands == Type::real) {
    const RealRange &a = real(step.arg[0]), &b = real(step.arg[1]);
    t = intervals::compared(step.op, a, b);
    if (t != Truth::mixed || a.nan || b.nan) return t;
    const bool loads = steps_[step.arg[0]].op == Op::load && steps_[step.arg[1]].op == Op::load;
    if (!loads || (signatures_[step.arg[0]] & signatures_[step.arg[1]]) != 0) return t;
  } else {
    t = step.difference != absent ? intervals::compared(step.op, range(step.difference), IntegerRange{0, 0})
                                  : intervals::compared(step.op, range(step.arg[0]), range(step.arg[1]));
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
      return intervals::decided(step.value != 0);
    case Op::logical_not:
      return intervals::negated(arg(0));
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
    if (step.type == Type::integer) integers_[n] = intervals::integers_of(e);
    if (step.type == Type::boolean) truths_[n] = intervals::truth_of(e);
    if (step.type == Type::real) reals_[n] = intervals::reals_of(e);
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
