// The table of operations, and the builder: every node is typed, folded and shared here.
#include "mods/graph.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "mods/arithmetic.hpp"

namespace tessera::mods {
namespace {

constexpr OpInfo table[] = {
    {Op::constant, "constant", 0, 0},
    {Op::param, "param", 0, 0},
    {Op::batch, "b", 0, 0},
    {Op::head, "h", 0, 0},
    {Op::query, "q", 0, 0},
    {Op::key, "k", 0, 0},
    {Op::score, "s", 0, 0},
    {Op::add, "+", 2, 4},
    {Op::sub, "-", 2, 4},
    {Op::mul, "*", 2, 5},
    {Op::floor_div, "//", 2, 5},
    {Op::mod, "%", 2, 5},
    {Op::div, "/", 2, 5},
    {Op::min, "min", 2, 0},
    {Op::max, "max", 2, 0},
    {Op::neg, "-", 1, 6},
    {Op::abs, "abs", 1, 0},
    {Op::sign, "sign", 1, 0},
    {Op::lt, "<", 2, 3},
    {Op::le, "<=", 2, 3},
    {Op::gt, ">", 2, 3},
    {Op::ge, ">=", 2, 3},
    {Op::eq, "==", 2, 3},
    {Op::ne, "!=", 2, 3},
    {Op::logical_and, "&", 2, 2},
    {Op::logical_or, "|", 2, 1},
    {Op::logical_not, "!", 1, 6},
    {Op::select, "where", 3, 0},
    {Op::exp, "exp", 1, 0},
    {Op::exp2, "exp2", 1, 0},
    {Op::log, "log", 1, 0},
    {Op::tanh, "tanh", 1, 0},
    {Op::sigmoid, "sigmoid", 1, 0},
    {Op::sqrt, "sqrt", 1, 0},
    {Op::rsqrt, "rsqrt", 1, 0},
    {Op::erf, "erf", 1, 0},
    {Op::pow, "pow", 2, 0},
    {Op::to_real, "real", 1, 0},
};
static_assert(std::size(table) == static_cast<std::size_t>(Op::to_real) + 1);

const char* name(Type type) {
  return type == Type::boolean ? "a boolean" : type == Type::integer ? "an integer" : "a real";
}
[[noreturn]] void refuse(const std::string& text) { throw Error(Code::invalid_mod, text); }

enum class Rule { arithmetic, integer_only, real_only, comparison, logic, choice, conversion };
Rule rule(Op op) {
  switch (op) {
    case Op::floor_div:
    case Op::mod:
      return Rule::integer_only;
    case Op::lt:
    case Op::le:
    case Op::gt:
    case Op::ge:
    case Op::eq:
    case Op::ne:
      return Rule::comparison;
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_not:
      return Rule::logic;
    case Op::select:
      return Rule::choice;
    case Op::to_real:
      return Rule::conversion;
    case Op::div:
    case Op::exp:
    case Op::exp2:
    case Op::log:
    case Op::tanh:
    case Op::sigmoid:
    case Op::sqrt:
    case Op::rsqrt:
    case Op::erf:
    case Op::pow:
      return Rule::real_only;
    default:
      return Rule::arithmetic;
  }
}

Value value_of(const Node& node) {
  return node.type == Type::real ? Value{0, std::bit_cast<double>(node.value)} : Value{node.value, 0};
}

}  // namespace

const OpInfo& info(Op op) { return table[static_cast<std::size_t>(op)]; }
const OpInfo* find_call(std::string_view text) {
  for (const OpInfo& entry : table)
    if (entry.arity > 0 && entry.precedence == 0 && entry.name == text) return &entry;
  return nullptr;
}

void Builder::clear() { nodes_.clear(), params_.clear(); }

std::uint16_t Builder::add(const Node& node) {
  const auto found = std::find(nodes_.begin(), nodes_.end(), node);
  if (found != nodes_.end()) return static_cast<std::uint16_t>(found - nodes_.begin());
  if (nodes_.size() >= max_nodes)
    refuse("the expression has more than " + std::to_string(max_nodes) + " different operations, the most allowed");
  nodes_.push_back(node);
  return static_cast<std::uint16_t>(nodes_.size() - 1);
}

std::uint16_t Builder::constant(bool value) { return add({Op::constant, Type::boolean, 0, 0, {}, value ? 1 : 0}); }
std::uint16_t Builder::constant(std::int64_t value) { return add({Op::constant, Type::integer, 0, 0, {}, value}); }
std::uint16_t Builder::constant(double value) {
  if (value != value) value = std::numeric_limits<double>::quiet_NaN();  // one NaN, so that equal graphs compare equal
  return add({Op::constant, Type::real, 0, 0, {}, std::bit_cast<std::int64_t>(value)});
}
std::uint16_t Builder::param(std::int64_t value) { return param(Param{Type::integer, value}); }
std::uint16_t Builder::param(double value) { return param(Param{Type::real, std::bit_cast<std::int64_t>(value)}); }
std::uint16_t Builder::param(const Param& param) {
  if (params_.size() >= max_params)
    refuse("the expression has more than " + std::to_string(max_params) + " parameters, the most allowed");
  params_.push_back(param);
  return add({Op::param, param.type, static_cast<std::uint8_t>(params_.size() - 1), 0, {}, 0});
}
std::uint16_t Builder::leaf(Op op) { return add({op, op == Op::score ? Type::real : Type::integer, 0, 0, {}, 0}); }

std::uint16_t Builder::apply(Op op, std::uint16_t a) { return apply(op, std::array<std::uint16_t, 3>{a, 0, 0}); }
std::uint16_t Builder::apply(Op op, std::uint16_t a, std::uint16_t b) {
  return apply(op, std::array<std::uint16_t, 3>{a, b, 0});
}
std::uint16_t Builder::apply(Op op, std::uint16_t a, std::uint16_t b, std::uint16_t c) {
  return apply(op, std::array<std::uint16_t, 3>{a, b, c});
}

std::uint16_t Builder::apply(Op op, std::array<std::uint16_t, 3> arg) {
  const OpInfo& what = info(op);
  const auto count = static_cast<std::size_t>(what.arity);
  const std::string call = "'" + std::string(what.name) + "'";
  for (std::size_t i = count; i < arg.size(); ++i) arg[i] = 0;  // so that equal nodes are equal bit for bit
  const std::size_t first = op == Op::select ? 1 : 0;           // where the arguments of one common type begin
  const auto any = [&](Type t) {
    for (std::size_t i = first; i < count; ++i)
      if (type(arg[i]) == t) return true;
    return false;
  };
  const auto only = [&](Type t) {
    for (std::size_t i = first; i < count; ++i)
      if (type(arg[i]) != t) refuse(call + " takes " + std::string(name(t)) + ", not " + name(type(arg[i])));
  };
  const auto convert = [&] {  // integers beside reals become reals
    for (std::size_t i = first; i < count; ++i)
      if (type(arg[i]) == Type::integer) arg[i] = apply(Op::to_real, arg[i]);
  };
  Type result = Type::boolean;
  switch (rule(op)) {
    case Rule::logic:
      only(Type::boolean);
      break;
    case Rule::conversion:
      only(Type::integer), result = Type::real;
      break;
    case Rule::integer_only:
      only(Type::integer), result = Type::integer;
      break;
    case Rule::real_only:
      if (any(Type::boolean)) refuse(call + " takes a real, not a boolean");
      if (op == Op::div && !any(Type::real)) refuse("'/' of two integers: write // for the floor, or real(x) / y");
      convert(), result = Type::real;
      break;
    case Rule::comparison:
    case Rule::arithmetic:
      if (any(Type::boolean)) refuse(call + " takes numbers, not a boolean: use where(condition, 1, 0)");
      if (any(Type::real)) convert();
      if (rule(op) == Rule::arithmetic) result = type(arg[0]);
      break;
    case Rule::choice:
      if (type(arg[0]) != Type::boolean)
        refuse("'where' chooses by a boolean, not by " + std::string(name(type(arg[0]))));
      if (any(Type::real)) {
        if (any(Type::boolean)) refuse("'where' chooses between two values of one type, not a boolean and a real");
        convert();
      }
      if (type(arg[1]) != type(arg[2]))
        refuse("'where' chooses between two values of one type, not " + std::string(name(type(arg[1]))) + " and " +
               name(type(arg[2])));
      result = type(arg[1]);
      break;
  }
  const Node node{op, result, 0, static_cast<std::uint8_t>(count), arg, 0};
  if (const auto folded = fold(node)) return add(*folded);
  // x & true and the like: the argument itself.
  if (op == Op::logical_and || op == Op::logical_or)
    for (std::size_t i = 0; i < 2; ++i)
      if (nodes_[arg[i]].op == Op::constant) {
        const bool neutral = (nodes_[arg[i]].value != 0) == (op == Op::logical_and);
        return neutral ? arg[1 - i] : arg[i];
      }
  if (op == Op::logical_not && nodes_[arg[0]].op == Op::logical_not) return nodes_[arg[0]].arg[0];
  if ((op == Op::logical_and || op == Op::logical_or) && arg[0] == arg[1]) return arg[0];
  return add(node);
}

std::optional<Node> Builder::fold(const Node& node) const {
  Value value[3];
  for (std::size_t i = 0; i < node.arg_count; ++i) {
    if (nodes_[node.arg[i]].op != Op::constant) return std::nullopt;
    value[i] = value_of(nodes_[node.arg[i]]);
  }
  const Type arguments = nodes_[node.arg[node.op == Op::select ? 1 : 0]].type;
  Value result = compute(node.op, arguments, value[0], value[1], value[2]);
  if (result.r != result.r) result.r = std::numeric_limits<double>::quiet_NaN();
  return Node{
      Op::constant, node.type, 0, 0, {}, node.type == Type::real ? std::bit_cast<std::int64_t>(result.r) : result.i};
}

std::uint16_t Builder::import(const Graph& graph) {
  if (graph.nodes.empty()) return constant(true);
  std::vector<std::uint16_t>& here = import_map_;
  here.clear();
  std::array<std::uint16_t, max_params> param_node;
  for (std::size_t i = 0; i < graph.params.size(); ++i) param_node[i] = param(graph.params[i]);
  for (const Node& node : graph.nodes) {
    if (node.op == Op::constant) here.push_back(add(node));
    else if (node.op == Op::param) here.push_back(param_node[node.slot]);
    else if (node.arg_count == 0) here.push_back(leaf(node.op));
    else here.push_back(apply(node.op, {here[node.arg[0]], here[node.arg[1]], here[node.arg[2]]}));
  }
  return here.back();
}

Graph Builder::finish(std::uint16_t root) {
  // Mark what the root uses, walking down from it; arguments always stand before their node.
  order_.assign(nodes_.size(), unused);
  order_[root] = used;
  for (std::size_t i = root + 1u; i-- > 0;)
    if (order_[i] == used)
      for (std::size_t a = 0; a < nodes_[i].arg_count; ++a) order_[nodes_[i].arg[a]] = used;
  kept_.clear(), kept_params_.clear();
  for (std::size_t i = 0; i <= root; ++i) {
    if (order_[i] == unused) continue;
    Node node = nodes_[i];
    for (std::size_t a = 0; a < 3; ++a) node.arg[a] = a < node.arg_count ? order_[node.arg[a]] : std::uint16_t{0};
    if (node.op == Op::param) {
      kept_params_.push_back(params_[node.slot]);
      node.slot = static_cast<std::uint8_t>(kept_params_.size() - 1);
    }
    kept_.push_back(node);
    order_[i] = static_cast<std::uint16_t>(kept_.size() - 1);
  }
  Graph graph;
  const bool always =
      kept_.size() == 1 && kept_[0].op == Op::constant && kept_[0].type == Type::boolean && kept_[0].value;
  if (always) return graph;
  graph.nodes = detail::Frozen<Node, 20>(kept_);
  graph.params = detail::Frozen<Param, 4>(kept_params_);
  return graph;
}

void verify(const Graph& graph) {
  // Rebuilding it through the builder checks every type; what the builder cannot see is checked here.
  const auto at = [](std::size_t i) { return "node " + std::to_string(i) + " of the graph"; };
  if (graph.nodes.size() > Builder::max_nodes || graph.params.size() > Builder::max_params)
    refuse("the graph has " + std::to_string(graph.nodes.size()) + " nodes and " + std::to_string(graph.params.size()) +
           " parameters, at most " + std::to_string(Builder::max_nodes) + " and " +
           std::to_string(Builder::max_params) + " are allowed");
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (static_cast<std::size_t>(node.op) >= std::size(table)) refuse(at(i) + " is of no known operation");
    if (node.arg_count != info(node.op).arity)
      refuse(at(i) + " has " + std::to_string(node.arg_count) + " arguments, '" + std::string(info(node.op).name) +
             "' takes " + std::to_string(info(node.op).arity));
    for (std::size_t a = 0; a < node.arg_count; ++a)
      if (node.arg[a] >= i) refuse(at(i) + " uses a node that does not stand before it");
    if (node.op == Op::param && (node.slot >= graph.params.size() || graph.params[node.slot].type != node.type))
      refuse(at(i) + " names parameter " + std::to_string(node.slot) + ", which is not there or of another type");
  }
  if (graph.nodes.empty()) return;
  thread_local Builder builder;
  builder.clear();
  if (builder.type(builder.import(graph)) != graph.nodes[graph.nodes.size() - 1].type)
    refuse("the last node of the graph claims another type than its operation has");
}

void verify_mask(const Graph& graph) {
  verify(graph);
  if (graph.nodes.empty()) return;
  const Type result = graph.nodes[graph.nodes.size() - 1].type;
  if (result != Type::boolean)
    refuse("a mask answers true or false, but this expression is " + std::string(name(result)) +
           ": compare it with something, as in (k <= q)");
  for (const Node& node : graph.nodes)
    if (node.op == Op::score) refuse("a mask sees b, h, q and k, not the score s");
}

Builder& scratch_builder() {
  thread_local Builder builder;
  builder.clear();
  return builder;
}

}  // namespace tessera::mods
