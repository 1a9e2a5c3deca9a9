// A graph at many points: the interpreter again, an operation at a time over a stretch of points, so that the cost of
// deciding what to do is shared.
#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "mods/arithmetic.hpp"
#include "mods/program.hpp"

namespace tessera::mods {
namespace {

constexpr std::int64_t stretch = 64;

using Apply = void (*)(Type type, const Value* a, const Value* b, const Value* c, Value* out, std::int64_t count);

template <Op op>
void apply(Type type, const Value* a, const Value* b, const Value* c, Value* out, std::int64_t count) {
  // The type outside of the loop: what remains of compute() inside is one operation.
  if (type == Type::real)
    for (std::int64_t i = 0; i < count; ++i) out[i] = compute(op, Type::real, a[i], b[i], c[i]);
  else
    for (std::int64_t i = 0; i < count; ++i) out[i] = compute(op, Type::integer, a[i], b[i], c[i]);
}
template <std::size_t... op>
constexpr std::array<Apply, sizeof...(op)> table_of(std::index_sequence<op...>) {
  return {&apply<static_cast<Op>(op)>...};
}
constexpr auto table = table_of(std::make_index_sequence<op_count>());

}  // namespace

namespace {

// Whether a node has the same value at all points of the line, if it is known of those before it.
bool is_same(const Node& node, const Line& line, const char* same) {
  switch (node.op) {
    case Op::head:
      return line.h == nullptr;
    case Op::query:
      return line.q == nullptr;
    case Op::key:
      return line.k == nullptr;
    case Op::score:
      return line.s == nullptr;
    default:
      return std::all_of(node.arg.begin(), node.arg.begin() + node.arg_count,
                         [&](std::uint16_t a) { return same[a] != 0; });
  }
}

// Calls done(first, count, values) for each stretch.
template <class Done>
void evaluate_stretches(const Graph& graph, const Line& line, std::int64_t count, std::span<const Table> tables,
                        Done done) {
  const std::size_t nodes = graph.nodes.size();
  thread_local std::vector<Value> values;
  thread_local std::vector<char> same;  // of each node: it has one value for all points, which stands from the start on
  if (values.size() < nodes * stretch) values.resize(nodes * stretch), same.resize(nodes);
  for (std::int64_t first = 0; first < count; first += stretch) {
    const std::int64_t n = std::min(stretch, count - first), longest = std::min(stretch, count);
    const auto at = [&](std::size_t node) { return values.data() + static_cast<std::int64_t>(node) * stretch; };
    for (std::size_t i = 0; i < nodes; ++i) {
      const Node& node = graph.nodes[i];
      Value* here = at(i);
      if (first > 0 && same[i] != 0) continue;
      same[i] = is_same(node, line, same.data());
      const std::int64_t computed = same[i] != 0 ? 1 : n;
      const auto fill = [&](const Value& value) { std::fill(here, here + longest, value); };
      const auto coordinate = [&](const std::int64_t* each, std::int64_t all) {
        for (std::int64_t p = 0; p < n; ++p) here[p] = {each ? each[first + p] : all, 0};
      };
      const auto bits = [&](Type type, std::int64_t value) {
        fill(type == Type::real ? Value{0, std::bit_cast<double>(value)} : Value{value, 0});
      };
      switch (node.op) {
        case Op::constant:
          bits(node.type, node.value);
          break;
        case Op::param:
          bits(node.type, graph.params[node.slot].value);
          break;
        case Op::batch:
          coordinate(nullptr, line.at.b);
          break;
        case Op::head:
          coordinate(line.h, line.at.h);
          break;
        case Op::query:
          coordinate(line.q, line.at.q);
          break;
        case Op::key:
          coordinate(line.k, line.at.k);
          break;
        case Op::score:
          for (std::int64_t p = 0; p < n; ++p)
            here[p] = {0, line.s ? static_cast<double>(line.s[first + p]) : line.at.s};
          break;
        case Op::load:
        case Op::upper_bound:
          for (std::int64_t p = 0; p < computed; ++p) {
            std::int64_t index[Capture::max_rank] = {};
            for (std::size_t a = 0; a < node.arg_count; ++a) index[a] = at(node.arg[a])[p].i;
            if (node.op == Op::load) here[p] = element(tables[node.slot], node.arg_count, index);
            else here[p] = {upper_bound(tables[node.slot], node.arg_count, index), 0};
          }
          break;
        default:
          table[static_cast<std::size_t>(node.op)](graph.nodes[node.arg[node.op == Op::select ? 1 : 0]].type,
                                                   at(node.arg[0]), at(node.arg[1]), at(node.arg[2]), here, computed);
      }
      if (computed < longest && same[i] != 0) fill(Value(here[0]));
    }
    done(first, n, at(nodes - 1));
  }
}

}  // namespace

bool evaluate_line(const Graph& graph, const Line& line, std::int64_t count, std::span<const Table> tables,
                   float* out) {
  const bool is_real = graph.nodes[graph.nodes.size() - 1].type == Type::real;
  bool exact = true;
  evaluate_stretches(graph, line, count, tables, [&](std::int64_t first, std::int64_t n, const Value* values) {
    for (std::int64_t i = 0; i < n; ++i) {
      if (is_real) {
        out[first + i] = static_cast<float>(values[i].r);
      } else {
        exact = exact && values[i].i >= -Program::exact && values[i].i <= Program::exact;
        out[first + i] = static_cast<float>(values[i].i);
      }
    }
  });
  return exact;
}

void evaluate_line(const Graph& graph, const Line& line, std::int64_t count, std::span<const Table> tables,
                   std::int64_t* out) {
  evaluate_stretches(graph, line, count, tables, [&](std::int64_t first, std::int64_t n, const Value* values) {
    for (std::int64_t i = 0; i < n; ++i) out[first + i] = values[i].i;
  });
}

}  // namespace tessera::mods
