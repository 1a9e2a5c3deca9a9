// The plain interpreter: the reference for everything that evaluates faster.
#include <algorithm>
#include <bit>
#include <vector>

#include "mods/arithmetic.hpp"
#include "mods/graph.hpp"

namespace tessera::mods {
namespace {

Value read(Type type, std::int64_t bits) {
  return type == Type::real ? Value{0, std::bit_cast<double>(bits)} : Value{bits, 0};
}

Value read(const Graph& graph, const Node& node, std::span<const Table> tables, const Value* value) {
  if (node.slot >= tables.size()) return {0, 0};
  std::int64_t index[Capture::max_rank];
  for (std::size_t i = 0; i < node.arg_count; ++i) index[i] = value[node.arg[i]].i;
  const int rank = graph.captures[node.slot].rank;
  if (node.op == Op::upper_bound) return {upper_bound(tables[node.slot], rank, index), 0};
  return element(tables[node.slot], rank, index);
}

Value evaluate_into(const Graph& graph, const Point& at, std::span<const Table> tables, Value* value) {
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
      case Op::load:
      case Op::upper_bound:
        value[i] = read(graph, node, tables, value);
        break;
      default:  // arguments that are not there are 0: node 0, which has a value
        value[i] = compute(node.op, nodes[node.arg[node.op == Op::select ? 1 : 0]].type, value[node.arg[0]],
                           value[node.arg[1]], value[node.arg[2]]);
    }
  }
  return value[count - 1];
}

}  // namespace

Value element(const Table& table, int rank, const std::int64_t* index) {
  std::int64_t at = 0;
  bool empty = table.data == nullptr;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) {
    empty = empty || table.extent[i] <= 0;
    at += std::clamp(index[i], std::int64_t{0}, std::max(table.extent[i] - 1, std::int64_t{0})) * table.stride[i];
  }
  if (empty) return {0, 0};
  const auto of = [&](auto like) { return static_cast<const decltype(like)*>(table.data)[at]; };
  switch (table.dtype) {
    case DType::f32:
      return {0, of(float{})};
    case DType::bf16:
      return {0, static_cast<float>(of(BFloat16{}))};
    case DType::f16:
      return {0, static_cast<float>(of(Float16{}))};
    case DType::i32:
      return {of(std::int32_t{}), 0};
    case DType::i64:
      return {of(std::int64_t{}), 0};
    case DType::u8:
      return {of(std::uint8_t{}), 0};
    case DType::b8:  // a byte, so that one that is no bool is true and not undefined
      return {of(std::uint8_t{}) != 0, 0};
    case DType::none:
      break;
  }
  return {0, 0};
}

std::int64_t upper_bound(const Table& table, int rank, const std::int64_t* argument) {
  const auto last = static_cast<std::size_t>(rank - 1);
  std::int64_t line = 0;
  bool empty = table.data == nullptr;
  for (std::size_t i = 0; i <= last; ++i) {
    empty = empty || table.extent[i] <= 0;
    if (i < last)
      line +=
          std::clamp(argument[i], std::int64_t{0}, std::max(table.extent[i] - 1, std::int64_t{0})) * table.stride[i];
  }
  if (empty) return 0;
  const auto search = [&](auto like) {
    const auto* data = static_cast<const decltype(like)*>(table.data) + line;
    return upper_bound(table.extent[last], argument[last],
                       [&](std::int64_t i) { return static_cast<std::int64_t>(data[i * table.stride[last]]); });
  };
  if (table.dtype == DType::i32) return search(std::int32_t{});
  if (table.dtype == DType::i64) return search(std::int64_t{});
  return table.dtype == DType::u8 ? search(std::uint8_t{}) : 0;
}

Value evaluate(const Graph& graph, const Point& point, std::span<const Table> tables) {
  constexpr std::size_t few = 64;
  if (graph.nodes.size() <= few) {
    Value values[few];
    return evaluate_into(graph, point, tables, values);
  }
  thread_local std::vector<Value> values;
  values.resize(graph.nodes.size());
  return evaluate_into(graph, point, tables, values.data());
}

double evaluate_score(const Graph& graph, const Point& point, std::span<const Table> tables) {
  return graph.nodes.empty() ? point.s : evaluate(graph, point, tables).r;
}

bool evaluate_mask(const Graph& graph, const Point& point, std::span<const Table> tables) {
  return graph.nodes.empty() || evaluate(graph, point, tables).i != 0;
}

}  // namespace tessera::mods
