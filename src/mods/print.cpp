// The text form: fully parenthesised, and read back by parse.cpp to the equal graph.
#include <algorithm>
#include <bit>
#include <bitset>
#include <charconv>
#include <cmath>
#include <optional>
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
  std::string pointing(std::size_t node, std::optional<std::size_t> argument) {
    wanted_node_ = node, wanted_argument_ = argument;
    write(graph_.nodes.size() - 1, 0);
    return end_ ? mods::pointing(out_, begin_, *end_) : "\n  " + out_;
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
    const bool wanted = i == wanted_node_ && !end_;
    const std::size_t begin = out_.size();
    const auto argument = [&](std::size_t a) {
      const std::size_t from = out_.size();
      if (node.arg[a] < i) write(node.arg[a], depth + 1);
      else out_ += "?";
      if (wanted && wanted_argument_ == a) begin_ = from, end_ = out_.size();
    };
    if (node.op == Op::constant) {
      out_ += number(node.type, node.value);
    } else if (node.op == Op::param) {
      write_param(node.slot);
    } else if (mods::reads_capture(node.op)) {
      const bool searches = node.op == Op::upper_bound;
      if (searches) out_.append(op.name).append("(");
      if (node.slot < graph_.captures.size()) {
        const Capture& read = graph_.captures[node.slot];
        out_.append(mods::name(read)).append(searches ? "" : mods::suffix(read.type));
      } else {
        out_ += "?";
      }
      const std::size_t count = std::min<std::size_t>(node.arg_count, node.arg.size()), number = searches ? 1 : 0;
      for (std::size_t a = 0; a + number < count; ++a) out_ += '[', argument(a), out_ += ']';
      if (searches) out_ += ", ", count > 0 ? argument(count - 1) : void(out_ += "?"), out_ += ')';
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
    if (wanted && !wanted_argument_) begin_ = begin, end_ = out_.size();
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
  // What is to be pointed at, and where its text stands.
  std::size_t wanted_node_ = ~std::size_t{0};
  std::optional<std::size_t> wanted_argument_, end_;
  std::size_t begin_ = 0;
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

std::string mods::pointing(std::string_view text, std::size_t begin, std::size_t end) {
  constexpr std::size_t before = 80, after = 60;  // of a long text, what is around the part
  const std::size_t from = begin > before ? begin - before : 0, upto = std::min(text.size(), begin + after);
  std::string shown = from > 0 ? "..." : "", pad(shown.size(), ' '), mark;
  for (std::size_t i = from; i < std::max(upto, begin + 1); ++i) {
    const auto byte = static_cast<unsigned char>(i < text.size() ? text[i] : ' ');
    if (i < text.size()) shown += byte < ' ' || byte == 0x7f ? ' ' : text[i];
    if ((byte & 0xc0) == 0x80) continue;  // inside a UTF-8 character: no column of its own
    if (i < begin) pad += ' ';
    else if (mark.empty()) mark = "^";
    else if (i < end) mark += '~';
  }
  if (upto < text.size()) shown += "...";
  return "\n  " + shown + "\n  " + pad + mark;
}

std::string mods::pointing(const Graph& graph, std::size_t node, std::optional<std::size_t> argument) {
  return Writer(graph).pointing(node, argument);
}

}  // namespace tessera
