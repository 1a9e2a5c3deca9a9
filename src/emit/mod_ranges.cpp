// Intervals of integers, and which parameters may be cut to 32 bits without a difference.
#include "emit/mod_ranges.hpp"

#include <algorithm>

#include "emit/mod_text.hpp"
#include "mods/intervals.hpp"

namespace tessera::emit {
namespace {

using Wide = __int128;

Interval hull(const Interval& a, const Interval& b) { return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)}; }
Interval cut(const Interval& a) {
  return {std::clamp(a.lo, every_i64.lo, every_i64.hi), std::clamp(a.hi, every_i64.lo, every_i64.hi)};
}
Interval exact(Op op, const Interval& a, const Interval& b) {
  switch (op) {
    case Op::add:
      return {a.lo + b.lo, a.hi + b.hi};
    case Op::sub:
      return {a.lo - b.hi, a.hi - b.lo};
    case Op::neg:
      return {-a.hi, -a.lo};
    case Op::abs:
      return a.lo >= 0 ? a : a.hi <= 0 ? Interval{-a.hi, -a.lo} : Interval{0, std::max(-a.lo, a.hi)};
    default: {  // a product
      const Wide ends[] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
      return {*std::min_element(ends, std::end(ends)), *std::max_element(ends, std::end(ends))};
    }
  }
}

// What is known of a node beside one parameter p.
struct Seen {
  Interval range = every_i64;  // of a node that does not depend on p, or of what stands beside p: +-p + range
  bool holds_p = false;
  bool assumes = false;  // its range rests on what is assumed of parameters
};

// Whether cutting parameter `slot` to +-cut_parameters changes nothing, whatever its value: it occurs in comparisons
// only, each between +-p + a and b, where a and b are integers so near that beyond the cut the answer is always the
// same. (Saturation does not matter: a sum that saturates is beyond any such a and b.)
bool may_be_cut(const Graph& graph, std::uint8_t slot) {
  std::vector<Seen> seen(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const auto arg = [&](std::size_t a) -> const Seen& { return seen[node.arg[a]]; };
    Seen& here = seen[i];
    bool below = false;  // p is somewhere in the arguments
    for (std::size_t a = 0; a < node.arg_count; ++a) {
      below = below || arg(a).holds_p;
      if (node.type == Type::integer && !mods::reads_capture(node.op)) here.assumes = here.assumes || arg(a).assumes;
    }
    if (node.op == Op::param && node.type == Type::integer) {
      here.assumes = node.slot != slot, here.holds_p = node.slot == slot;
      if (here.holds_p) here.range = {0, 0};
      continue;
    }
    const bool sums = node.op == Op::add || node.op == Op::sub || node.op == Op::neg;
    if (!below) {
      if (node.type != Type::integer) continue;
      if (node.op == Op::constant) here.range = {node.value, node.value};
      else if (node.arg_count == 0) here.range = of_coordinate(node.op, true);
      else if (node.op == Op::select) here.range = hull(arg(1).range, arg(2).range);
      else if (!mods::reads_capture(node.op))
        here.range = of_integers(node.op, arg(0).range, arg(node.arg_count > 1 ? 1 : 0).range).range;
      continue;
    }
    const Seen &a = arg(0), &b = arg(node.arg_count > 1 ? 1 : 0);
    if (sums && node.type == Type::integer && (node.op == Op::neg || a.holds_p != b.holds_p)) {
      here.holds_p = true, here.range = exact(node.op, a.range, b.range);
      continue;
    }
    if (node.op < Op::lt || node.op > Op::ne || a.holds_p == b.holds_p || a.assumes || b.assumes) return false;
    const Interval apart = exact(Op::sub, a.range, b.range);
    if (std::max(-apart.lo, apart.hi) >= cut_parameters) return false;
  }
  return true;
}

}  // namespace

Computed of_integers(Op op, const Interval& a, const Interval& b) {
  switch (op) {
    case Op::add:
    case Op::sub:
    case Op::neg:
    case Op::mul:
    case Op::abs: {
      const Interval all = exact(op, a, b);
      return {cut(all), contains(every_i64, all)};
    }
    default: {
      const auto ends = [](const Interval& x) {
        return mods::intervals::IntegerRange{static_cast<std::int64_t>(x.lo), static_cast<std::int64_t>(x.hi)};
      };
      const mods::intervals::IntegerRange all = mods::intervals::of_integers(op, ends(a), ends(b));
      return {{all.lo, all.hi}, true};
    }
  }
}

Interval of_coordinate(Op op, bool narrow) {
  if (!narrow) return {-Wide{mods::farthest}, Wide{mods::farthest}};
  return {op == Op::query ? -Wide{nearby} : Wide{0}, Wide{nearby}};
}

Interval of_elements(DType dtype) {
  if (dtype == DType::i32) return every_i32;
  return dtype == DType::u8 ? Interval{0, 255} : every_i64;
}

std::vector<Interval> narrow_parameters(const Graph& graph) {
  std::vector<Interval> all;
  for (std::size_t slot = 0; slot < graph.params.size(); ++slot) {
    Wide far = 0;
    if (graph.params[slot].type == Type::integer)
      far = may_be_cut(graph, static_cast<std::uint8_t>(slot)) ? cut_parameters : nearby;
    all.push_back({-far, far});
  }
  return all;
}

bool fits_narrow(const Graph& graph) {
  const std::vector<Interval> taken = narrow_parameters(graph);
  for (std::size_t slot = 0; slot < taken.size(); ++slot) {
    const Param& param = graph.params[slot];
    const bool cut = taken[slot].hi == cut_parameters;  // by pack_arguments, whatever it is
    if (param.type == Type::integer && !cut && !contains(taken[slot], {param.value, param.value})) return false;
  }
  return true;
}

}  // namespace tessera::emit
