#include "emit/mod_errors.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace tessera::emit {
namespace {

constexpr double unbounded = std::numeric_limits<double>::infinity();

std::optional<double> size_of(const Graph& graph, const Node& node) {
  if (node.type != Type::real || node.arg_count != 0) return {};
  if (node.op == Op::constant) return std::fabs(std::bit_cast<double>(node.value));
  if (node.op == Op::param) return std::fabs(std::bit_cast<double>(graph.params[node.slot].value));
  return {};
}

// How much a node moves when its argument `which` does, at most.
double slope(const Graph& graph, const Node& node, int which) {
  switch (node.op) {
    case Op::add:
    case Op::sub:
    case Op::neg:
    case Op::min:
    case Op::max:
    case Op::abs:
    case Op::tanh:
      return 1;
    case Op::select:
      return which == 0 ? unbounded : 1;
    case Op::mul:
      return size_of(graph, graph.nodes[node.arg[1 - which]]).value_or(unbounded);
    case Op::div:
      return which == 0 ? 1 / size_of(graph, graph.nodes[node.arg[1]]).value_or(0) : unbounded;
    default:
      return unbounded;
  }
}

}  // namespace

bool takes_absolute_tanh(const Graph& graph) {
  constexpr double most = 128;
  if (graph.nodes.empty()) return false;
  std::vector<double> moves(graph.nodes.size(), 0);  // the result, when the node does
  moves.back() = 1;
  bool any = false;
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (moves[i] == 0) continue;
    if (node.op == Op::tanh) {
      any = true;
      if (!(moves[i] <= most)) return false;
    }
    for (int a = 0; a < node.arg_count; ++a)
      moves[node.arg[static_cast<std::size_t>(a)]] += moves[i] * slope(graph, node, a);
  }
  return any;
}

}  // namespace tessera::emit
