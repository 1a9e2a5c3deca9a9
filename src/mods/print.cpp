// The text form: fully parenthesised, and read back by parse.cpp to the equal graph.
#include <algorithm>
#include <bit>
#include <bitset>
#include <charconv>
#include <cmath>
#include <ostream>
#include <string>

#include "mods/graph.hpp"
#include "tessera/mods.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {
namespace {

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

// Writes any graph, even one that nobody verified: it ends, and reads nothing that is not there.
class Writer {
 public:
  explicit Writer(const Graph& graph) : graph_(graph) {}
  std::string text() {
    write(graph_.nodes.size() - 1, 0);
    return std::move(out_);
  }

 private:
  void write(std::size_t i, int depth) {
    const Node& node = graph_.nodes[i];
    const bool known = static_cast<std::size_t>(node.op) < mods::op_count;
    if (++written_ > mods::max_written || depth > mods::max_depth || !known) {
      out_ += known ? "..." : "?";
      return;
    }
    const mods::OpInfo& op = mods::info(node.op);
    const auto argument = [&](std::size_t a) {
      if (node.arg[a] < i) write(node.arg[a], depth + 1);
      else out_ += "?";
    };
    if (node.op == Op::constant) {
      out_ += number(node.type, node.value);
    } else if (node.op == Op::param) {
      write_param(node.slot);
    } else if (node.op == Op::load) {
      if (node.slot < graph_.captures.size()) {
        const Capture& read = graph_.captures[node.slot];
        out_.append(mods::name(read)).append(mods::suffix(read.type));
      } else {
        out_ += "?";
      }
      for (std::size_t a = 0; a < std::min<std::size_t>(node.arg_count, node.arg.size()); ++a)
        out_ += '[', argument(a), out_ += ']';
    } else if (op.arity == 0) {
      out_ += op.name;
    } else if (op.precedence > 0) {
      out_ += '(';
      if (op.arity == 2) argument(0), out_.append(" ").append(op.name).append(" "), argument(1);
      else out_ += op.name, argument(0);
      out_ += ')';
    } else {
      out_.append(op.name).append("(");
      for (std::size_t a = 0; a < static_cast<std::size_t>(op.arity); ++a) {
        if (a > 0) out_ += ", ";
        argument(a);
      }
      out_ += ')';
    }
  }
  void write_param(std::size_t slot) {
    if (slot >= graph_.params.size()) {
      out_ += "?";
    } else if (named_[slot]) {
      out_ += "$" + std::to_string(slot);
    } else {
      named_[slot] = true;
      out_ += "param(" + number(graph_.params[slot].type, graph_.params[slot].value) + ")";
    }
  }

  const Graph& graph_;
  std::string out_;
  std::size_t written_ = 0;
  std::bitset<256> named_;  // slots that the text has named
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const Graph& graph) {
  return graph.nodes.empty() ? out << "full" : out << Writer(graph).text();
}
std::ostream& operator<<(std::ostream& out, const Mask& mask) { return out << mask.graph(); }
std::ostream& operator<<(std::ostream& out, const ScoreMod& score) {
  return score.is_identity() ? out << "s" : out << score.graph();
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
