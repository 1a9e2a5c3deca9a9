// Whether a graph that came from outside is one: checked before anything else reads it.
#include <array>
#include <string>

#include "mods/graph.hpp"

namespace tessera::mods {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw Error(Code::invalid_mod, text); }
std::string node_name(std::size_t i) { return "node " + std::to_string(i) + " of the graph"; }
std::string quoted(Op op) { return "'" + std::string(info(op).name) + "'"; }

}  // namespace

void verify(const Graph& graph) {
  const std::size_t count = graph.nodes.size(), params = graph.params.size(), captures = graph.captures.size();
  if (count > Builder::max_nodes || params > Builder::max_params)
    refuse("the graph has " + std::to_string(count) + " nodes and " + std::to_string(params) + " parameters, at most " +
           std::to_string(Builder::max_nodes) + " and " + std::to_string(Builder::max_params) + " are allowed");
  for (std::size_t i = 0; i < params; ++i)
    if (graph.params[i].type != Type::integer && graph.params[i].type != Type::real)
      refuse("parameter " + std::to_string(i) + " of the graph is neither an integer nor a real");
  if (captures > Builder::max_captures)
    refuse("the graph reads " + std::to_string(captures) + " captured tensors, at most " +
           std::to_string(Builder::max_captures) + " are allowed");
  for (std::size_t i = 0; i < captures; ++i) {
    const Capture& capture = graph.captures[i];
    if (!(make_capture(name(capture), capture.type, capture.rank) == capture))
      refuse("the name of captured tensor " + std::to_string(i) + " of the graph is not filled up with zeros");
    for (std::size_t j = 0; j < i; ++j)
      if (graph.captures[j].name == capture.name)
        refuse("captured tensors " + std::to_string(j) + " and " + std::to_string(i) +
               " of the graph have one name: " + shown(graph.captures[j]) + " and " + shown(capture));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Node& node = graph.nodes[i];
    if (static_cast<std::size_t>(node.op) >= op_count)
      refuse(node_name(i) + " has the operation " + std::to_string(static_cast<int>(node.op)) + ", known are 0 to " +
             std::to_string(op_count - 1));
    const bool reads = reads_capture(node.op);
    if (reads && node.slot >= captures)
      refuse(node_name(i) + " reads captured tensor " + std::to_string(node.slot) + ", the graph has " +
             std::to_string(captures));
    const int arity = reads ? graph.captures[node.slot].rank : info(node.op).arity;
    if (node.arg_count != arity)
      refuse(node_name(i) + " has " + std::to_string(node.arg_count) + " arguments, " +
             (reads ? shown(graph.captures[node.slot]) : quoted(node.op)) + " takes " + std::to_string(arity));
    std::array<Type, 4> argument{};
    for (std::size_t a = 0; a < node.arg_count; ++a) {
      if (node.arg[a] >= i)
        refuse(node_name(i) + " uses node " + std::to_string(node.arg[a]) + ", which does not stand before it");
      argument[a] = graph.nodes[node.arg[a]].type;
    }
    Type type = node.type;
    if (node.op == Op::param) {
      if (node.slot >= params)
        refuse(node_name(i) + " names parameter " + std::to_string(node.slot) + ", the graph has " +
               std::to_string(params));
      type = graph.params[node.slot].type;
    } else if (node.op == Op::constant) {
      if (type != Type::boolean && type != Type::integer && type != Type::real)
        refuse(node_name(i) + " is a constant of no known type");
      if (type == Type::boolean && node.value != 0 && node.value != 1)
        refuse(node_name(i) + " is a boolean of value " + std::to_string(node.value) + ", allowed are 0 and 1");
    } else if (node.op == Op::load) {
      for (std::size_t a = 0; a < node.arg_count; ++a) check_index(graph.captures[node.slot], a, argument[a]);
      type = graph.captures[node.slot].type;
    } else if (node.op == Op::upper_bound) {
      check_search(graph.captures[node.slot]);
      for (std::size_t a = 0; a < node.arg_count; ++a) check_search(graph.captures[node.slot], a, argument[a]);
      type = Type::integer;
    } else {
      type = result_type(node.op, argument.data());
    }
    if (node.type != type)
      refuse(node_name(i) + " claims to be " + std::string(name(node.type)) + ", but " + quoted(node.op) + " gives " +
             std::string(name(type)));
  }
}

void verify_mask(const Graph& graph) {
  verify(graph);
  if (graph.nodes.empty()) return;
  const Type result = graph.nodes[graph.nodes.size() - 1].type;
  if (result != Type::boolean)
    refuse("a mask is true or false, this expression is " + std::string(name(result)) +
           ": compare it with something, as in (k <= q)");
  for (const Node& node : graph.nodes)
    if (node.op == Op::score) refuse("a mask sees b, h, q and k, not the score s");
}

void verify_score(const Graph& graph) {
  verify(graph);
  if (!graph.nodes.empty() && graph.nodes[graph.nodes.size() - 1].type == Type::boolean)
    refuse("a score change is a number, this expression is a boolean: where(condition, s, -inf) makes one");
}

}  // namespace tessera::mods
