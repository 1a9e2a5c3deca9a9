#include "mods.hpp"

#include <bit>

#include "mods/arithmetic.hpp"
#include "problem/bindings.hpp"

namespace tessera::conformance {
namespace {

mods::Point point(const Sequence& s, std::int64_t head, std::int64_t query, std::int64_t key, double score) {
  return {.b = s.index, .h = head, .q = query + s.q_offset, .k = key, .s = score};
}

}  // namespace

Evaluated::Evaluated(const Graph& graph, const Inputs& inputs) : graph_(graph) {
  problem::bind_tables(graph_, inputs.bind, tables_.data());
}

bool Evaluated::mask_at(const Sequence& s, std::int64_t head, std::int64_t query, std::int64_t key) const {
  return mods::evaluate_mask(graph_, point(s, head, query, key, 0), tables());
}

double Evaluated::score_at(const Sequence& s, std::int64_t head, std::int64_t query, std::int64_t key,
                           double score) const {
  return mods::evaluate_score(graph_, point(s, head, query, key, score), tables());
}

float Evaluated::score_fp32_at(const Sequence& s, std::int64_t head, std::int64_t query, std::int64_t key,
                               float score) const {
  if (is_empty()) return score;
  const mods::Point at = point(s, head, query, key, static_cast<double>(score));
  thread_local std::vector<mods::Value> values;
  values.assign(graph_.nodes.size(), {0, 0});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Node& n = graph_.nodes[i];
    const auto bits = [&](std::int64_t value) {
      return n.type == Type::real ? mods::Value{0, std::bit_cast<double>(value)} : mods::Value{value, 0};
    };
    if (n.op == Op::constant) values[i] = bits(n.value);
    else if (n.op == Op::param) values[i] = bits(graph_.params[n.slot].value);
    else if (n.op == Op::batch) values[i].i = at.b;
    else if (n.op == Op::head) values[i].i = at.h;
    else if (n.op == Op::query) values[i].i = at.q;
    else if (n.op == Op::key) values[i].i = at.k;
    else if (n.op == Op::score) values[i].r = at.s;
    else if (mods::reads_capture(n.op)) {
      std::int64_t index[Capture::max_rank] = {};
      for (std::size_t a = 0; a < n.arg_count; ++a) index[a] = values[n.arg[a]].i;
      if (n.op == Op::load) values[i] = mods::element(tables_[n.slot], n.arg_count, index);
      else values[i].i = mods::upper_bound(tables_[n.slot], n.arg_count, index);
    } else {
      values[i] = mods::compute(n.op, graph_.nodes[n.arg[n.op == Op::select ? 1 : 0]].type, values[n.arg[0]],
                                values[n.arg[1]], values[n.arg[2]]);
    }
    values[i].r = static_cast<double>(static_cast<float>(values[i].r));
  }
  return static_cast<float>(values.back().r);
}

PlainIndices plain_indices(const Graph& graph, std::string_view name, int axis) {
  PlainIndices all;
  for (const Node& n : graph.nodes) {
    if (!mods::reads_capture(n.op) || mods::name(graph.captures[n.slot]) != name) continue;
    if (n.op == Op::upper_bound && axis + 1 == n.arg_count) continue;  // what is looked for
    const Op index = graph.nodes[n.arg[static_cast<std::size_t>(axis)]].op;
    all.b |= index == Op::batch, all.h |= index == Op::head, all.q |= index == Op::query, all.k |= index == Op::key;
  }
  return all;
}

namespace {

// An index of a table that may lie anywhere. What no position of a call brings into its tensor is refused (docs/
// contracts.md); a choice by an element, which nobody knows before the call, leaves it to be clamped, whatever
// positions the case has.
std::string anywhere(const std::string& index) { return "where(slope[h] < 99.0, " + index + ", 0)"; }

// One of the changes that people write.
std::string listed_score(Random& r) {
  switch (r.below(14)) {
    case 0:
      return "softcap(" + std::to_string(r.between(1, 40)) + ".0)";
    case 1:
      return "alibi(slope)";
    case 2:
      return "(s + table[h][" + anywhere("(k - q) + " + std::to_string(r.between(0, 60))) + "])";
    case 3:
      return "s + bias[q][k]";
    case 4:
      return "s + bias[b][h][q][k]";
    case 5:
      return "20.0 * tanh(s / 20.0) + 0.25 * h - table[h][" + anywhere("k - q") + "]";
    case 6:
      return "where((q + k) % 3 == 0, s, s - 1.5)";
    case 7:
      return "sigmoid(s) * 6.0 + 0.01 * min(q, 50)";
    case 8:
      return "s * exp(-0.01 * abs(q - k)) + weight[k]";
    case 9:
      return "min(s, 2.0 + slope[h]) - max(-s, 3.0)";
    case 10:
      return "s - 0.002 * real(q - k) * real(q - k) + sqrt(abs(s))";
    case 11:
      return "where(ids:int[q] == ids:int[k], s, s - 4.0)";
    case 12:
      return "max(s, 0.0) + log(1.0 + exp(-abs(s))) + erf(0.1 * s) + pow(1.0 + abs(s), 0.5)";
    default:
      return "where(k <= q, s + slope[h] * (k - q), s - rsqrt(1.0 + abs(s)))";
  }
}

// What depends on positions and captured tensors alone; small.
std::string random_bias(Random& r) {
  switch (r.below(8)) {
    case 0:
      return "slope[h] * (k - q) * 0.01";
    case 1:
      return "table[h][" + anywhere("(k - q) + " + std::to_string(r.between(-9, 60))) + "]";
    case 2:
      return "bias[q][k]";
    case 3:
      return "weight[k]";
    case 4:
      return "real((q + " + std::to_string(r.between(1, 9)) + " * k) % " + std::to_string(r.between(2, 9)) + ") * 0.3";
    case 5:
      return "table[h][" + anywhere("q // " + std::to_string(r.between(1, 40))) + "]";
    case 6:
      return "1.5 / (1.0 + real(abs(q - k)))";
    default:
      return "-0.125 * real(min(abs(q - k), " + std::to_string(r.between(1, 30)) + "))";
  }
}
std::string random_condition(Random& r) {
  const std::string n = std::to_string(r.between(1, 70));
  return r.pick<std::string>({"k <= q", "(q - k) < " + n, "k < " + n, "(q + h) % 3 == 0", "ids:int[q] == ids:int[k]",
                              "weight[k] > 0.1", "abs(q - k) > " + n});
}

// Continuous in the score, whose slope grows by no more than a few times; `depth` operations above it.
std::string nested_score(Random& r, int depth) {
  if (depth == 0) return r.chance(0.85) ? "s" : "(s + " + random_bias(r) + ")";
  const auto inner = [&] { return nested_score(r, depth - 1); };
  const auto other = [&] { return nested_score(r, static_cast<int>(r.below(depth))); };
  const auto real = [&](std::int64_t least, std::int64_t most) {
    return std::to_string(r.between(least, most)) + r.pick({".0", ".25", ".5", ".75"});
  };
  switch (r.below(14)) {
    case 0:
      return "(" + inner() + r.pick({" + ", " - "}) + real(0, 5) + ")";
    case 1:
      return "(" + inner() + " * " + r.pick({"0.5", "-0.75", "1.25", "0.125"}) + ")";
    case 2: {
      const std::string cap = real(1, 40);
      return "(" + cap + " * tanh(" + inner() + " / " + cap + "))";
    }
    case 3:
      return "(" + real(1, 9) + " * sigmoid(" + inner() + "))";
    case 4:
      return "min(" + inner() + ", " + real(0, 9) + ")";
    case 5:
      return "max(" + inner() + ", -" + real(0, 9) + ")";
    case 6:
    case 7:
      return "where(" + random_condition(r) + ", " + inner() + ", " + other() + ")";
    case 8:
    case 9:
    case 10:
      return "(" + inner() + r.pick({" + ", " - "}) + random_bias(r) + ")";
    case 11:
      return r.pick({"min(", "max("}) + inner() + ", " + other() + ")";
    case 12:
      return "(0.5 * (" + inner() + " + " + other() + "))";
    default:
      return r.pick({"abs(", "-("}) + inner() + ")";
  }
}

std::string listed_mask(Random& r, std::int64_t keys, bool may_name_batch) {
  const auto number = [&](std::int64_t least, std::int64_t most) { return std::to_string(r.between(least, most)); };
  switch (r.below(may_name_batch ? 15 : 13)) {
    case 0:
      return "documents(ids)";
    case 1:
      return "documents(ids) & causal";
    case 2:
      return "chunked(" + number(1, 130) + ") & causal";
    case 3:
      return "causal & (window(" + number(0, 60) + ", 0) | sinks(" + number(0, 9) + "))";
    case 4:
      return "dilated(" + number(1, 9) + ")";
    case 5:
      return "neighborhood_2d(" + number(8, 40) + ", " + number(3, 20) + ", 3, 3)";
    case 6:
      return "seen:bool[k] & causal";
    case 7:
      return "mask_tensor(grid, 2) | k == q";
    case 8:
      return "((q + k) % 3 != 0) | (k < " + number(0, 5) + ")";
    case 9:
      return "((q * k) % 7 < 4) & causal";
    case 10:
      return "weight[k] > -0.2";
    case 11:
      return "(k + " + number(0, 5) + " * h) % " + std::to_string(keys / 2 + 2) + " <= q";
    case 12:
      return r.pick({"documents_from_offsets(cu) & causal", "upper_bound(cu, q) % 2 == upper_bound(cu, k + 1) % 2"});
    case 13:
      return "key_lengths(len) & causal";
    default:
      return "prefix_lm(len)";
  }
}

}  // namespace

std::string random_score(Random& r) {
  if (r.chance(0.4)) return listed_score(r);
  return nested_score(r, static_cast<int>(r.between(1, 4)));
}

std::string random_mod_mask(Random& r, std::int64_t keys, bool may_name_batch) {
  const auto one = [&] {
    const std::string mask = listed_mask(r, keys, may_name_batch);
    return (r.chance(0.25) ? "!(" : "(") + mask + ")";
  };
  if (r.chance(0.5)) return listed_mask(r, keys, may_name_batch);
  const std::string first = one();
  return first + r.pick({" & ", " | "}) + one();
}

}  // namespace tessera::conformance
