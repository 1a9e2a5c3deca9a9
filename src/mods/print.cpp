// The text form: fully parenthesised, and read back by parse.cpp to the equal graph.
#include <bit>
#include <charconv>
#include <cmath>
#include <ostream>
#include <string>

#include "mods/graph.hpp"
#include "tessera/mods.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {
namespace {

constexpr std::size_t longest = 1 << 20;  // a graph shares what its text repeats: without an end it could explode

std::string number(Type type, std::int64_t bits) {
  if (type == Type::boolean) return bits ? "true" : "false";
  if (type == Type::integer) return std::to_string(bits);
  const double value = std::bit_cast<double>(bits);
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;  // the shortest that reads back exactly
  std::string shown(text, end);
  if (shown.find_first_of(".e") == std::string::npos) shown += ".0";
  return shown;
}

void write(const Graph& graph, std::size_t i, std::string& out) {
  if (out.size() > longest) return;
  const Node& node = graph.nodes[i];
  const mods::OpInfo& op = mods::info(node.op);
  if (node.op == Op::constant) {
    out += number(node.type, node.value);
  } else if (node.op == Op::param) {
    const Param& param = graph.params[node.slot];
    out += "param(" + number(param.type, param.value) + ")";
  } else if (op.arity == 0) {
    out += op.name;
  } else if (op.precedence > 0 && op.arity == 2) {
    out += '(';
    write(graph, node.arg[0], out);
    out.append(" ").append(op.name).append(" ");
    write(graph, node.arg[1], out);
    out += ')';
  } else if (op.precedence > 0) {
    out.append("(").append(op.name);
    write(graph, node.arg[0], out);
    out += ')';
  } else {
    out.append(op.name).append("(");
    for (std::size_t a = 0; a < node.arg_count; ++a) {
      if (a > 0) out += ", ";
      write(graph, node.arg[a], out);
    }
    out += ')';
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Graph& graph) {
  if (graph.nodes.empty()) return out << "full";
  std::string text;
  write(graph, graph.nodes.size() - 1, text);
  if (text.size() > longest) text.resize(longest), text += "...";
  return out << text;
}
std::ostream& operator<<(std::ostream& out, const Mask& mask) { return out << mask.graph(); }

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
