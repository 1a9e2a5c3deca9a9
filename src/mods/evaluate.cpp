// The plain interpreter: the reference for everything that evaluates faster.
#include <bit>
#include <vector>

#include "mods/arithmetic.hpp"
#include "mods/graph.hpp"

namespace tessera::mods {
namespace {

Value read(Type type, std::int64_t bits) {
  return type == Type::real ? Value{0, std::bit_cast<double>(bits)} : Value{bits, 0};
}

Value evaluate_into(const Graph& graph, const Point& at, Value* value) {
  const Node* nodes = graph.nodes.data();
  const std::size_t count = graph.nodes.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Node& node = nodes[i];
    switch (node.op) {
      case Op::constant:
        value[i] = read(node.type, node.value);
        break;
      case Op::param:
        value[i] = read(node.type, graph.params[node.slot].value);
        break;
      case Op::batch:
        value[i] = {at.b, 0};
        break;
      case Op::head:
        value[i] = {at.h, 0};
        break;
      case Op::query:
        value[i] = {at.q, 0};
        break;
      case Op::key:
        value[i] = {at.k, 0};
        break;
      case Op::score:
        value[i] = {0, at.s};
        break;
      default:  // arguments that are not there are 0: node 0, which has a value
        value[i] = compute(node.op, nodes[node.arg[node.op == Op::select ? 1 : 0]].type, value[node.arg[0]],
                           value[node.arg[1]], value[node.arg[2]]);
    }
  }
  return value[count - 1];
}

}  // namespace

Value evaluate(const Graph& graph, const Point& point, std::span<const Table>) {
  constexpr std::size_t few = 64;
  if (graph.nodes.size() <= few) {
    Value values[few];
    return evaluate_into(graph, point, values);
  }
  thread_local std::vector<Value> values;
  values.resize(graph.nodes.size());
  return evaluate_into(graph, point, values.data());
}

bool evaluate_mask(const Graph& graph, const Point& point, std::span<const Table> tables) {
  return graph.nodes.empty() || evaluate(graph, point, tables).i != 0;
}

}  // namespace tessera::mods
