// The builder: every node is typed, folded and shared here, and every graph is brought into canonical order.
#include "mods/graph.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "mods/arithmetic.hpp"

namespace tessera::mods {
namespace {

constexpr std::uint16_t nowhere = 0xffff;
static_assert(Builder::max_nodes < nowhere && Builder::max_params <= 255);
// Up to here a plain search is faster than hashing.
constexpr std::size_t few_nodes = 32;

[[noreturn]] void refuse(const std::string& text) { throw Error(Code::invalid_mod, text); }

Value value_of(const Node& node) {
  return node.type == Type::real ? Value{0, std::bit_cast<double>(node.value)} : Value{node.value, 0};
}

// One NaN, so that equal graphs compare equal.
std::int64_t bits_of(double value) {
  return std::bit_cast<std::int64_t>(value != value ? std::numeric_limits<double>::quiet_NaN() : value);
}

std::size_t hash_of(const Node& node) {
  std::uint64_t h = static_cast<std::uint64_t>(node.value) * 0x9e3779b97f4a7c15u;
  for (const std::uint64_t part : {std::uint64_t{node.arg[0]} | std::uint64_t{node.arg[1]} << 16 |
                                       std::uint64_t{node.arg[2]} << 32 | std::uint64_t{node.arg[3]} << 48,
                                   static_cast<std::uint64_t>(node.op) | static_cast<std::uint64_t>(node.type) << 8 |
                                       std::uint64_t{node.slot} << 16})
    h = (h ^ part) * 0xff51afd7ed558ccdu, h ^= h >> 32;
  return static_cast<std::size_t>(h);
}

// Whether integers among the arguments of an operation become reals.
bool converts(Op op, const Type* argument) {
  switch (op) {
    case Op::exp:
    case Op::exp2:
    case Op::log:
    case Op::tanh:
    case Op::sigmoid:
    case Op::sqrt:
    case Op::rsqrt:
    case Op::erf:
    case Op::pow:
      return true;
    case Op::to_real:
    case Op::floor_div:
    case Op::mod:
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_not:
      return false;
    default:
      return std::find(argument, argument + info(op).arity, Type::real) != argument + info(op).arity;
  }
}

}  // namespace

void Builder::clear() { nodes_.clear(), params_.clear(), captures_.clear(), index_.clear(); }

std::uint16_t Builder::add(const Node& node) {
  const std::size_t count = nodes_.size();
  const auto here = [&](std::size_t i) { return static_cast<std::uint16_t>(i); };
  std::size_t slot = 0;
  if (count < few_nodes) {
    const auto found = std::find(nodes_.begin(), nodes_.end(), node);
    if (found != nodes_.end()) return here(static_cast<std::size_t>(found - nodes_.begin()));
  } else {
    const auto probe = [&](const Node& wanted) {
      const std::size_t mask = index_.size() - 1;
      std::size_t at = hash_of(wanted) & mask;
      while (index_[at] != nowhere && !(nodes_[index_[at]] == wanted)) at = (at + 1) & mask;
      return at;
    };
    if (index_.size() < 2 * (count + 1)) {
      index_.assign(std::bit_ceil(4 * (count + 1)), nowhere);
      for (std::size_t i = 0; i < count; ++i) index_[probe(nodes_[i])] = here(i);
    }
    slot = probe(node);
    if (index_[slot] != nowhere) return index_[slot];
  }
  if (count >= max_nodes)
    refuse("the expression has more than " + std::to_string(max_nodes) + " different operations, the most allowed");
  nodes_.push_back(node);
  if (count >= few_nodes) index_[slot] = here(count);
  return here(count);
}

std::uint16_t Builder::constant(bool value) { return add({Op::constant, Type::boolean, 0, 0, {}, value ? 1 : 0}); }
std::uint16_t Builder::constant(std::int64_t value) { return add({Op::constant, Type::integer, 0, 0, {}, value}); }
std::uint16_t Builder::constant(double value) { return add({Op::constant, Type::real, 0, 0, {}, bits_of(value)}); }
std::uint16_t Builder::param(std::int64_t value) { return add_param({Type::integer, value}); }
std::uint16_t Builder::param(double value) { return add_param({Type::real, bits_of(value)}); }
std::uint16_t Builder::add_param(Param param) {
  if (params_.size() >= max_params)
    refuse("the expression has more than " + std::to_string(max_params) + " parameters, the most allowed");
  params_.push_back(param);
  return same_param(params_.size() - 1);
}
std::uint16_t Builder::same_param(std::size_t slot) {
  return add({Op::param, params_[slot].type, static_cast<std::uint8_t>(slot), 0, {}, 0});
}
std::uint16_t Builder::leaf(Op op) { return add({op, result_type(op, nullptr), 0, 0, {}, 0}); }

std::uint16_t Builder::apply(Op op, std::uint16_t a) { return apply(op, std::array<std::uint16_t, 4>{a, 0, 0, 0}); }
std::uint16_t Builder::apply(Op op, std::uint16_t a, std::uint16_t b) {
  return apply(op, std::array<std::uint16_t, 4>{a, b, 0, 0});
}
std::uint16_t Builder::apply(Op op, std::uint16_t a, std::uint16_t b, std::uint16_t c) {
  return apply(op, std::array<std::uint16_t, 4>{a, b, c, 0});
}

std::uint16_t Builder::apply(Op op, std::array<std::uint16_t, 4> arg) {
  const auto count = static_cast<std::size_t>(info(op).arity);
  for (std::size_t i = count; i < arg.size(); ++i) arg[i] = 0;  // so that equal nodes are equal bit for bit
  std::array<Type, 3> types{};
  for (std::size_t i = 0; i < count; ++i) types[i] = type(arg[i]);
  if (converts(op, types.data()))
    for (std::size_t i = op == Op::select ? 1 : 0; i < count; ++i)
      if (types[i] == Type::integer) arg[i] = apply(Op::to_real, arg[i]), types[i] = Type::real;
  const Node node{op, result_type(op, types.data()), 0, static_cast<std::uint8_t>(count), arg, 0};
  if (const auto folded = fold(node)) return add(*folded);
  if (const auto simple = simplified(node)) return *simple;
  return add(node);
}

std::optional<Node> Builder::fold(const Node& node) const {
  std::array<Value, 3> value{};
  for (std::size_t i = 0; i < node.arg_count; ++i) {
    if (nodes_[node.arg[i]].op != Op::constant) return std::nullopt;
    value[i] = value_of(nodes_[node.arg[i]]);
  }
  const Value result =
      compute(node.op, nodes_[node.arg[node.op == Op::select ? 1 : 0]].type, value[0], value[1], value[2]);
  return Node{Op::constant, node.type, 0, 0, {}, node.type == Type::real ? bits_of(result.r) : result.i};
}

// x & true, x | x, !!x, where(true, x, y) and the like are one of their arguments.
std::optional<std::uint16_t> Builder::simplified(const Node& node) const {
  const auto& arg = node.arg;
  const auto is_constant = [&](std::size_t i) { return nodes_[arg[i]].op == Op::constant; };
  switch (node.op) {
    case Op::logical_and:
    case Op::logical_or:
      if (arg[0] == arg[1]) return arg[0];
      for (std::size_t i = 0; i < 2; ++i)
        if (is_constant(i)) {
          const bool neutral = (nodes_[arg[i]].value != 0) == (node.op == Op::logical_and);
          return neutral ? arg[1 - i] : arg[i];
        }
      return std::nullopt;
    case Op::logical_not:
      if (nodes_[arg[0]].op == Op::logical_not) return nodes_[arg[0]].arg[0];
      return std::nullopt;
    case Op::select:
      if (arg[1] == arg[2]) return arg[1];
      if (is_constant(0)) return nodes_[arg[0]].value ? arg[1] : arg[2];
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::uint16_t Builder::import(const Graph& graph, std::optional<std::uint16_t> score) {
  if (graph.nodes.empty()) return constant(true);
  std::vector<std::uint16_t>& here = place_;
  here.clear();
  std::array<std::uint16_t, max_params> param_node;
  for (std::size_t i = 0; i < graph.params.size(); ++i) {
    const Param& p = graph.params[i];
    param_node[i] = p.type == Type::real ? param(std::bit_cast<double>(p.value)) : param(p.value);
  }
  std::array<std::uint8_t, max_captures> slot;
  for (std::size_t i = 0; i < graph.captures.size(); ++i) slot[i] = capture(graph.captures[i]);
  for (const Node& node : graph.nodes) {
    if (node.op == Op::score && score) {
      here.push_back(*score);
    } else if (node.op == Op::param) {
      here.push_back(param_node[node.slot]);
    } else if (node.op == Op::constant) {
      here.push_back(node.type == Type::boolean   ? constant(node.value != 0)
                     : node.type == Type::integer ? constant(node.value)
                                                  : constant(std::bit_cast<double>(node.value)));
    } else {
      std::array<std::uint16_t, 4> arg{};
      for (std::size_t i = 0; i < node.arg_count; ++i) arg[i] = here[node.arg[i]];
      if (reads_capture(node.op)) here.push_back(read(node.op, slot[node.slot], {arg.data(), node.arg_count}));
      else here.push_back(node.arg_count == 0 ? leaf(node.op) : apply(node.op, arg));
    }
  }
  return here.back();
}

Graph Builder::finish(std::uint16_t root) {
  Graph graph;
  finish_into(graph, root);
  return graph;
}
Mask Builder::finish_mask(std::uint16_t root) {
  Mask mask;
  finish_into(mask.graph_, root);
  return mask;
}
ScoreMod Builder::finish_score(std::uint16_t root) {
  if (type(root) == Type::integer) root = apply(Op::to_real, root);
  ScoreMod score;
  if (nodes_[root].op != Op::score) finish_into(score.graph_, root);
  return score;
}

void Builder::finish_into(Graph& graph, std::uint16_t root) {
  // The order in which the text names the nodes: arguments from left to right, then the operation. What is printed and
  // read back is then equal, whatever the order in which it was built.
  place_.assign(nodes_.size(), nowhere);
  kept_.clear(), kept_params_.clear(), kept_captures_.clear(), path_.clear(), extents_.clear();
  constexpr int argument_bits = 3;  // path: a node, and how many of its arguments are done
  path_.push_back(std::uint32_t{root} << argument_bits);
  while (!path_.empty()) {
    const std::size_t at = path_.back() >> argument_bits, done = path_.back() & ((1u << argument_bits) - 1);
    Node node = nodes_[at];
    if (place_[at] == nowhere && done < node.arg_count) {
      ++path_.back();
      path_.push_back(std::uint32_t{node.arg[done]} << argument_bits);
      continue;
    }
    path_.pop_back();
    if (place_[at] != nowhere) continue;
    Extent extent{node.arg_count > 0 ? 1 : 0, 1};
    for (std::size_t a = 0; a < node.arg_count; ++a) {
      node.arg[a] = place_[node.arg[a]];
      extent.depth = std::max(extent.depth, extents_[node.arg[a]].depth + 1);
      extent.written += extents_[node.arg[a]].written;
    }
    if (extent.depth > max_depth)
      refuse("the expression nests more than " + std::to_string(max_depth) + " operations, the most allowed");
    if (extent.written > max_written)
      refuse("the expression, written out, has more than " + std::to_string(max_written) +
             " operations, the most allowed");
    if (node.op == Op::param) {
      kept_params_.push_back(params_[node.slot]);
      node.slot = static_cast<std::uint8_t>(kept_params_.size() - 1);
    }
    if (reads_capture(node.op)) {
      const Capture& read = captures_[node.slot];
      const auto found = std::find(kept_captures_.begin(), kept_captures_.end(), read);
      node.slot = static_cast<std::uint8_t>(found - kept_captures_.begin());
      if (found == kept_captures_.end()) kept_captures_.push_back(read);
    }
    place_[at] = static_cast<std::uint16_t>(kept_.size());
    kept_.push_back(node), extents_.push_back(extent);
  }
  const Node& result = kept_.back();
  if (result.op == Op::constant && result.type == Type::boolean && result.value) return;
  graph.nodes = decltype(graph.nodes)(kept_);
  graph.params = decltype(graph.params)(kept_params_);
  graph.captures = decltype(graph.captures)(kept_captures_);
}

Builder& scratch_builder() {
  thread_local Builder builder;
  builder.clear();
  return builder;
}

}  // namespace tessera::mods
