// Reads the text form: what << prints, with the usual precedence where parentheses are left out, and the names of the
// ready-made masks. From loose to tight: |, &, comparisons, + -, * / // %, unary - !.
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "mods/graph.hpp"
#include "tessera/mods.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {
namespace {

using mods::Builder;

constexpr int max_depth = 200;  // of nested parentheses and signs: the parser recurses
constexpr std::size_t max_text = 1 << 16;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {
    if (text.size() > max_text)
      throw Error(Code::parse, "the text of the mask has " + std::to_string(text.size()) + " characters, at most " +
                                   std::to_string(max_text) + " are read");
  }

  Graph parse() {
    const std::uint16_t root = binary(1);
    skip_space();
    if (at_ < text_.size()) fail(at_, "expected an operator or the end of the text");
    return builder_.finish(root);
  }
  [[noreturn]] void fail(std::size_t where, const std::string& why) const {
    std::string shown;
    for (const char c : text_) shown += static_cast<unsigned char>(c) < 32 || c == 127 ? ' ' : c;
    throw Error(Code::parse, why + "\n  " + shown + "\n  " + std::string(where, ' ') + "^");
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }
  bool take(std::string_view what) {
    skip_space();
    if (text_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

  // The builder's complaints about types, pointing at the operation.
  template <class... Args>
  std::uint16_t apply(std::size_t where, Op op, Args... args) {
    try {
      return builder_.apply(op, args...);
    } catch (const Error& error) {
      fail(where, error.what());
    }
  }

  struct Infix {
    std::string_view text;
    Op op;
    int precedence;
  };
  const Infix* infix() {  // the longest symbol here; does not move
    static constexpr Infix table[] = {
        {"||", Op::logical_or, 1}, {"|", Op::logical_or, 1}, {"&&", Op::logical_and, 2}, {"&", Op::logical_and, 2},
        {"<=", Op::le, 3},         {">=", Op::ge, 3},        {"==", Op::eq, 3},          {"!=", Op::ne, 3},
        {"<", Op::lt, 3},          {">", Op::gt, 3},         {"+", Op::add, 4},          {"-", Op::sub, 4},
        {"//", Op::floor_div, 5},  {"*", Op::mul, 5},        {"/", Op::div, 5},          {"%", Op::mod, 5}};
    skip_space();
    for (const Infix& entry : table)
      if (text_.substr(at_, entry.text.size()) == entry.text) return &entry;
    return nullptr;
  }

  std::uint16_t binary(int lowest) {
    if (lowest > 5) return unary();
    std::uint16_t left = binary(lowest + 1);
    int seen = 0;
    for (const Infix* op; (op = infix()) && op->precedence == lowest;) {
      if (lowest == 3 && seen++ > 0) fail(at_, "comparisons do not chain: write (a < b) & (b < c)");
      const std::size_t where = at_;
      at_ += op->text.size();
      const std::uint16_t right = binary(lowest + 1);
      left = apply(where, op->op, left, right);
    }
    return left;
  }

  std::uint16_t unary() {
    const Nesting nesting(*this);
    skip_space();
    const std::size_t where = at_;
    if (take("-")) {
      if (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '.')) return literal(where);
      if (take("inf")) return builder_.constant(-std::numeric_limits<double>::infinity());
      return apply(where, Op::neg, unary());
    }
    if (take("!") || take("~")) return apply(where, Op::logical_not, unary());
    if (take("(")) {
      const std::uint16_t inside = binary(1);
      expect(")");
      return inside;
    }
    if (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '.')) return literal(where);
    if (at_ < text_.size() && is_letter(text_[at_])) return word();
    fail(at_, at_ < text_.size() ? "expected a number, a name or '('" : "the text ends where a value is expected");
  }

  struct Nesting {
    Parser& parser;
    explicit Nesting(Parser& p) : parser(p) {
      if (++parser.depth_ > max_depth)
        parser.fail(parser.at_, "nested deeper than " + std::to_string(max_depth) + " levels");
    }
    ~Nesting() { --parser.depth_; }
  };
  void expect(std::string_view what) {
    skip_space();
    if (!take(what)) fail(at_, "expected '" + std::string(what) + "'");
  }

  // A number from `from` (which may be its sign): real if it has a point or an exponent.
  Param number(std::size_t from) {
    const bool negative = text_[from] == '-';
    std::size_t end = from + (negative ? 1 : 0);
    bool real = false;
    while (end < text_.size() && (is_digit(text_[end]) || text_[end] == '.' || text_[end] == 'e' || text_[end] == 'E' ||
                                  ((text_[end] == '-' || text_[end] == '+') && end > from + 1 &&
                                   (text_[end - 1] == 'e' || text_[end - 1] == 'E')))) {
      real = real || !is_digit(text_[end]);
      ++end;
    }
    at_ = end;
    const char *first = text_.data() + from, *last = text_.data() + end;
    if (real) {
      double value = 0;
      const auto [stop, error] = std::from_chars(first, last, value);
      if (error != std::errc{} || stop != last) fail(from, "not a number that fits a real");
      return {Type::real, std::bit_cast<std::int64_t>(value)};
    }
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(first, last, value);
    if (error != std::errc{} || stop != last) fail(from, "not a number that fits an int64");
    return {Type::integer, value};
  }
  std::uint16_t literal(std::size_t from) {
    const Param p = number(from);
    return p.type == Type::real ? builder_.constant(std::bit_cast<double>(p.value)) : builder_.constant(p.value);
  }
  // Inside param( ) and window( ): a number, or unbounded.
  Param argument() {
    skip_space();
    const std::size_t where = at_;
    if (take("unbounded")) return {Type::integer, unbounded};
    const double infinity = std::numeric_limits<double>::infinity();
    if (take("inf")) return {Type::real, std::bit_cast<std::int64_t>(infinity)};
    if (take("-inf")) return {Type::real, std::bit_cast<std::int64_t>(-infinity)};
    if (take("nan")) return {Type::real, std::bit_cast<std::int64_t>(std::numeric_limits<double>::quiet_NaN())};
    take("-");
    if (at_ >= text_.size() || !(is_digit(text_[at_]) || text_[at_] == '.')) fail(where, "expected a number");
    return number(where);
  }

  std::uint16_t word() {
    const std::size_t where = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    const std::string_view name = text_.substr(where, at_ - where);
    if (name == "true" || name == "full") return optional_call(name == "full"), builder_.constant(true);
    if (name == "false") return builder_.constant(false);
    if (name == "inf") return builder_.constant(std::numeric_limits<double>::infinity());
    if (name == "nan") return builder_.constant(std::numeric_limits<double>::quiet_NaN());
    if (name == "b") return builder_.leaf(Op::batch);
    if (name == "h") return builder_.leaf(Op::head);
    if (name == "q" || name == "q_idx") return builder_.leaf(Op::query);
    if (name == "k" || name == "kv_idx") return builder_.leaf(Op::key);
    if (name == "s" || name == "score") return builder_.leaf(Op::score);
    if (name == "causal") return optional_call(true), import(causal());
    if (name == "param") {
      expect("(");
      const Param p = argument();
      expect(")");
      try {
        return p.type == Type::real ? builder_.param(std::bit_cast<double>(p.value)) : builder_.param(p.value);
      } catch (const Error& error) {
        fail(where, error.what());
      }
    }
    if (name == "window") {
      expect("(");
      const Param left = argument();
      expect(",");
      const Param right = argument();
      expect(")");
      if (left.type != Type::integer || right.type != Type::integer) fail(where, "a window's sides are integers");
      try {
        return import(window(left.value, right.value));
      } catch (const Error& error) {
        fail(where, error.what());
      }
    }
    if (const mods::OpInfo* op = mods::find_call(name)) {
      expect("(");
      std::uint16_t arg[3] = {};
      for (int i = 0; i < op->arity; ++i) {
        if (i > 0) expect(",");
        arg[i] = binary(1);
      }
      expect(")");
      if (op->arity == 1) return apply(where, op->op, arg[0]);
      if (op->arity == 2) return apply(where, op->op, arg[0], arg[1]);
      return apply(where, op->op, arg[0], arg[1], arg[2]);
    }
    fail(where,
         "there is no '" + std::string(name) +
             "': a coordinate (b, h, q, k), a mask (full, causal, window(left, right)), param(x), or a function");
  }
  void optional_call(bool allowed) {
    if (allowed && take("(")) expect(")");
  }
  std::uint16_t import(const Mask& mask) { return builder_.import(mask.graph()); }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Builder builder_;
};

}  // namespace

Mask parse_mask(std::string_view text) {
  Parser parser(text);
  Graph graph = parser.parse();
  try {
    return Mask(std::move(graph));
  } catch (const Error& error) {
    parser.fail(0, error.what());
  }
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
