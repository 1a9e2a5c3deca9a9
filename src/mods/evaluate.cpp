// The plain interpreter: the reference for everything that evaluates faster.
#include <array>
#include <bit>
#include <vector>

#include "mods/arithmetic.hpp"
#include "mods/graph.hpp"

namespace tessera::mods {
namespace {

Value evaluate_into(const Graph& graph, const Point& at, Value* value) {
  const Node* nodes = graph.nodes.data();
  const std::size_t count = graph.nodes.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Node& node = nodes[i];
    const auto bits = [&](Type type, std::int64_t v) {
      return type == Type::real ? Value{0, std::bit_cast<double>(v)} : Value{v, 0};
    };
    switch (node.op) {
      case Op::constant:
        value[i] = bits(node.type, node.value);
        break;
      case Op::param:
        value[i] = bits(node.type, graph.params[node.slot].value);
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
      default:
        value[i] = compute(node.op, nodes[node.arg[node.op == Op::select ? 1 : 0]].type, value[node.arg[0]],
                           value[node.arg[1]], value[node.arg[2]]);
    }
  }
  return value[count - 1];
}

}  // namespace

Value evaluate(const Graph& graph, const Point& point) {
  std::array<Value, 64> few;
  if (graph.nodes.size() <= few.size()) return evaluate_into(graph, point, few.data());
  std::vector<Value> many(graph.nodes.size());
  return evaluate_into(graph, point, many.data());
}

bool evaluate_mask(const Graph& graph, const Point& point) {
  return graph.nodes.empty() || evaluate(graph, point).i != 0;
}

}  // namespace tessera::mods
