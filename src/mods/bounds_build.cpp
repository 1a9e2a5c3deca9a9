// From a mask's graph to the steps of its bounds: integers become sums of atoms where nothing can saturate.
// Must not know: tiles.
#include <algorithm>
#include <bit>
#include <limits>

#include "mods/arithmetic.hpp"
#include "mods/bounds.hpp"

namespace tessera::mods {
namespace {

using Wide = __int128;
constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
// Sums stay within this, so that their bounds are calculated in int64, one after the other, without care.
constexpr Wide limit = Wide{1} << 62;

Wide magnitude(Wide x) { return x < 0 ? -x : x; }
// What holds of a step or a sum because of what stands below it.
template <class Above, class Below>
void rest(Above& above, const Below& below) {
  constexpr std::uint32_t enough = 1 << 20;
  above.depends |= below.depends;
  above.cost = std::min(above.cost + below.cost, enough);
}

bool is_comparison(Op op) { return op >= Op::lt && op <= Op::ne; }

}  // namespace

Dependence dependence(const Graph& graph) {
  Dependence d;
  for (const Node& node : graph.nodes) {
    d.batch = d.batch || node.op == Op::batch, d.head = d.head || node.op == Op::head;
    d.query = d.query || node.op == Op::query, d.key = d.key || node.op == Op::key;
    d.score = d.score || node.op == Op::score;
  }
  return d;
}

Bounds::Bounds(const Graph& graph, std::span<const Summary> summaries, std::int64_t b, std::int64_t h, const Box& whole)
    : summaries_(summaries), box_(whole) {
  Step coordinate;
  coordinate.type = Type::integer;
  coordinate.op = Op::query, coordinate.depends = query_bit, add(coordinate);
  coordinate.op = Op::key, coordinate.depends = key_bit, add(coordinate);
  translate(graph, b, h);
}

// A step is computed for the whole box as soon as it is there: what follows is built on what it can be at all.
std::uint32_t Bounds::add(const Step& step) {
  const auto n = static_cast<std::uint32_t>(steps_.size());
  steps_.push_back(step);
  divided_.emplace_back();
  integers_.emplace_back(), reals_.emplace_back(), truths_.push_back(Truth::mixed), signatures_.push_back(0);
  stale_.push_back(0);
  compute(n);
  return n;
}

Bounds::Sum Bounds::atom(std::uint32_t step) const {
  const IntegerRange r = integers_[step];
  if (r.lo == r.hi) return {r.lo, {}};
  return {0, {{step, 1}}};
}

bool Bounds::combine(const Sum& a, const Sum& b, Wide factor, Sum& result) const {
  const Wide constant = a.constant + factor * b.constant;
  if (magnitude(factor) > limit || magnitude(constant) > most) return false;
  result = {static_cast<std::int64_t>(constant), {}};
  Wide reach = magnitude(constant);
  bool representable = true;
  const auto put = [&](std::uint32_t step, Wide f) {
    if (f == 0) return true;
    const IntegerRange r = integers_[step];
    const Wide far = std::max(magnitude(r.lo), magnitude(r.hi));
    representable = magnitude(f) <= limit;
    if (!representable) return false;
    reach += magnitude(f) * far;  // both below 2^64, and checked after each
    result.terms.push_back({step, static_cast<std::int64_t>(f)});
    return reach <= limit;
  };
  bool fits = true;
  std::size_t i = 0, j = 0;
  while (fits && (i < a.terms.size() || j < b.terms.size())) {
    const std::uint32_t left = i < a.terms.size() ? a.terms[i].step : absent;
    const std::uint32_t right = j < b.terms.size() ? b.terms[j].step : absent;
    Wide f = 0;
    if (left <= right) f += a.terms[i++].factor;
    if (right <= left) f += factor * b.terms[j++].factor;
    fits = put(std::min(left, right), f);
  }
  // A constant or an atom alone needs no calculation, so it may be as large as it likes.
  return fits || (representable && i == a.terms.size() && j == b.terms.size() && constant == 0 &&
                  result.terms.size() == 1 && result.terms[0].factor == 1);
}

// x % n is x - n * (x // n): together with other terms that may be the better bound, for what stands in x may cancel.
bool Bounds::without_remainders(const Sum& sum, Sum& result) {
  if (sum.terms.size() < 2) return false;
  result = sum;
  bool changed = false;
  for (const Term& term : sum.terms) {
    const Step step = steps_[term.step];
    if (step.op != Op::mod || divided_[term.step].terms.empty()) continue;
    const IntegerRange by = range(step.arg[1]);
    const Sum divided = divided_[term.step];
    const Sum quotient = integer_step(Op::floor_div, std::array{divided, Sum{by.lo, {}}});
    Sum next;
    if (!combine(result, {0, {{term.step, 1}}}, -Wide{term.factor}, next)) return false;
    if (!combine(next, divided, term.factor, result)) return false;
    if (!combine(result, quotient, -Wide{term.factor} * by.lo, next)) return false;
    result = std::move(next), changed = true;
  }
  return changed;
}

std::uint32_t Bounds::use(const Sum& sum, bool expand) {
  // Everything that is not a sum of distances sees more than the distance.
  Wide q = 0, k = 0;
  for (const Term& term : sum.terms) {
    if (term.step == query_step) q = term.factor;
    if (term.step == key_step) k = term.factor;
  }
  if (expand && q + k != 0) distance_only_ = false;
  Flat flat;
  if (Sum other; expand && without_remainders(sum, other)) flat.other = use(other, false);
  flat.constant = sum.constant;
  flat.first = static_cast<std::uint32_t>(terms_.size()), flat.count = static_cast<std::uint32_t>(sum.terms.size());
  terms_.insert(terms_.end(), sum.terms.begin(), sum.terms.end());
  if (sum.constant == 0 && sum.terms.size() == 1 && sum.terms[0].factor == 1) flat.plain = sum.terms[0].step;
  for (const Term& term : sum.terms) rest(flat, steps_[term.step]);
  if (flat.other != absent) rest(flat, sums_[flat.other]);
  sums_.push_back(flat);
  return static_cast<std::uint32_t>(sums_.size() - 1);
}

Bounds::Sum Bounds::integer_step(Op op, std::span<const Sum> arg, std::uint8_t slot) {
  const bool divides = op == Op::floor_div || op == Op::mod;
  const bool by_constant = divides && arg[1].terms.empty() && arg[1].constant != 0;
  if (by_constant)  // a quotient may be there already, from a remainder
    for (std::uint32_t i = 0; i < steps_.size(); ++i)
      if (steps_[i].op == op && divided_[i] == arg[0] && !divided_[i].terms.empty() &&
          sums_[steps_[i].arg[1]].constant == arg[1].constant)
        return atom(i);
  Step step;
  step.op = op, step.slot = slot;
  step.type = step.operands = Type::integer;
  step.arg_count = static_cast<std::uint8_t>(arg.size());
  if (reads_capture(op)) step.cost = 10;
  for (std::size_t a = 0; a < arg.size(); ++a) {
    step.arg[a] = use(arg[a]);
    rest(step, sums_[step.arg[a]]);
  }
  const std::uint32_t n = add(step);
  if (by_constant) divided_[n] = arg[0];
  return atom(n);
}

std::uint32_t Bounds::compare(Op op, const Sum& a, const Sum& b) {
  Step step;
  step.op = op, step.type = Type::boolean, step.operands = Type::integer;
  if (Sum difference; combine(a, b, -1, difference)) step.difference = use(difference);
  if (step.difference != absent) rest(step, sums_[step.difference]);
  // The sides themselves: where there is no difference, and where their signatures may tell that they are never equal.
  const bool equality = op == Op::eq || op == Op::ne;
  const auto plain = [](const Sum& x) { return x.terms.empty() || (x.constant == 0 && x.terms.size() == 1); };
  if (step.difference == absent || (equality && plain(a) && plain(b))) {
    const bool distance = distance_only_;
    const bool alone = step.difference == absent;
    step.arg_count = 2;
    step.arg[0] = use(a, alone), step.arg[1] = use(b, alone);
    if (!alone) distance_only_ = distance;
    for (std::size_t side = 0; side < 2; ++side) rest(step, sums_[step.arg[side]]);
  }
  return add(step);
}

void Bounds::translate(const Graph& graph, std::int64_t b, std::int64_t h) {
  Vector<Sum> sum(graph.nodes.size());
  Vector<std::uint32_t> place(graph.nodes.size(), absent);  // of booleans and reals: the step
  const auto constant = [&](Type type, std::int64_t bits) {
    Step step;
    step.op = Op::constant, step.type = type, step.value = bits;
    return add(step);
  };
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const auto arg = [&](std::size_t a) -> std::uint16_t { return node.arg[a]; };
    const Type operands = node.arg_count > 0 ? graph.nodes[arg(node.op == Op::select ? 1 : 0)].type : node.type;
    if (node.op == Op::constant || node.op == Op::param) {
      const std::int64_t bits = node.op == Op::param ? graph.params[node.slot].value : node.value;
      if (node.type == Type::integer) sum[i] = {bits, {}};
      else place[i] = constant(node.type, bits);
      continue;
    }
    if (node.op == Op::select && truths_[place[arg(0)]] != Truth::mixed) {  // chosen once for all
      const std::uint16_t chosen = arg(truths_[place[arg(0)]] == Truth::always ? 1 : 2);
      sum[i] = sum[chosen], place[i] = place[chosen];
      continue;
    }
    if (node.type == Type::integer && node.op != Op::select) {
      Sum result;
      bool exact = false;
      switch (node.op) {
        case Op::batch:
        case Op::head:
          sum[i] = {node.op == Op::batch ? b : h, {}};
          continue;
        case Op::query:
        case Op::key:
          sum[i] = atom(node.op == Op::query ? query_step : key_step);
          continue;
        case Op::add:
        case Op::sub:
          exact = combine(sum[arg(0)], sum[arg(1)], node.op == Op::add ? 1 : -1, result);
          break;
        case Op::neg:
          exact = combine({}, sum[arg(0)], -1, result);
          break;
        case Op::mul:
          for (const std::size_t a : {0, 1})
            if (!exact && sum[arg(a)].terms.empty()) exact = combine({}, sum[arg(1 - a)], sum[arg(a)].constant, result);
          break;
        default:
          break;
      }
      if (!exact) {
        Vector<Sum> given;
        for (std::size_t a = 0; a < node.arg_count; ++a) given.push_back(sum[arg(a)]);
        result = integer_step(node.op, given, node.slot);
      }
      sum[i] = std::move(result);
      continue;
    }
    if (is_comparison(node.op) && operands == Type::integer) {
      place[i] = compare(node.op, sum[arg(0)], sum[arg(1)]);
      continue;
    }
    Step step;
    step.op = node.op, step.type = node.type, step.operands = operands, step.slot = node.slot;
    step.arg_count = node.arg_count;
    if (node.op == Op::load) step.cost = 10;
    for (std::size_t a = 0; a < node.arg_count; ++a) {
      if (graph.nodes[arg(a)].type == Type::integer) {
        step.arg[a] = use(sum[arg(a)]);
        rest(step, sums_[step.arg[a]]);
      } else {
        step.arg[a] = place[arg(a)];
        rest(step, steps_[step.arg[a]]);
      }
    }
    place[i] = add(step);
    if (node.type == Type::integer) sum[i] = atom(place[i]);
  }
  root_ = graph.nodes.empty() ? constant(Type::boolean, 1) : place.back();
}

}  // namespace tessera::mods
