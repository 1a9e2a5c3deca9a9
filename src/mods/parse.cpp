// Reads the text form: what << prints, with the usual precedence where parentheses are left out, and the names of the
// ready-made masks. From loose to tight: |, &, comparisons, + -, * / // %, unary - !.
#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>
#include <string>
#include <string_view>

#include "mods/graph.hpp"
#include "mods/ready_made.hpp"
#include "tessera/mods.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {
namespace {

using mods::Builder;

constexpr std::size_t max_text_bytes = 1 << 20;  // more than max_written operations can fill
// Of calls of the parser in each other: at most three for each level of what is printed. They take a third of a MB of
// stack.
constexpr int max_nesting = 3 * (mods::max_depth + 1);

// A part of the text: where errors point.
struct Part {
  std::size_t begin = 0, end = 0;
};

[[noreturn]] void fail(std::string_view text, Part part, const std::string& why) {
  throw Error(Code::parse, why + mods::pointing(text, part.begin, part.end));
}

class Parser {
 public:
  enum class Kind { any, mask, score };
  Parser(std::string_view text, Kind kind) : text_(text), kind_(kind) {
    if (text.size() > max_text_bytes)
      throw Error(Code::parse, "the text of the expression has " + std::to_string(text.size()) + " bytes, at most " +
                                   std::to_string(max_text_bytes) + " are read");
  }

  Graph parse() {
    const Value root = binary(1);
    skip_space();
    if (at_ < text_.size())
      stop(rest(), text_[at_] == '=' ? "expected an operator: equality is written =="
                                     : "expected an operator or the end of the text");
    if (is(Kind::mask) && builder_.type(root.node) != Type::boolean)
      stop(root.part, "a mask is true or false, this is " + std::string(mods::name(builder_.type(root.node))) +
                          ": compare it with something, as in (k <= q)");
    if (is(Kind::score) && builder_.type(root.node) == Type::boolean)
      stop(root.part, "a score change is a number, this is a boolean: where(condition, s, -inf) makes one");
    return guarded(root.part, [&] {
      return is(Kind::score) ? builder_.finish_score(root.node).graph() : builder_.finish(root.node);
    });
  }

 private:
  struct Value {
    std::uint16_t node = 0;
    Part part{};
  };
  struct Infix {
    std::string_view text;
    Op op;
  };
  struct Nesting {
    explicit Nesting(Parser& parser) : depth(parser.depth_) {
      if (++depth > max_nesting) parser.stop_nesting();
    }
    ~Nesting() { --depth; }
    int& depth;
  };

  [[noreturn]] void stop(Part part, const std::string& why) const { fail(text_, part, why); }
  [[noreturn]] void stop_nesting() const {
    stop(rest(),
         "nested too deep: " + std::to_string(mods::max_depth) + " levels of operations and parentheses are read");
  }
  // Complaints of the builder, pointing at a part of the text.
  template <class Work>
  auto guarded(Part part, Work work) -> decltype(work()) {
    try {
      return work();
    } catch (const Error& error) {
      stop(part, error.what());
    }
  }

  bool is(Kind kind) const { return kind_ == kind; }
  static bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool at_number() const { return is_digit(peek()) || peek() == '.'; }
  Part rest() const { return {at_, at_ + 1}; }
  void skip_space() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') ++at_;
  }
  bool take(std::string_view what) {
    skip_space();
    if (text_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  void expect(std::string_view what) {
    if (!take(what)) stop(rest(), "expected '" + std::string(what) + "'");
  }
  std::string_view word() {
    const std::size_t begin = at_;
    while (is_letter(peek()) || is_digit(peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  const Infix* infix() {  // the longest symbol here; does not move
    static constexpr Infix table[] = {
        {"||", Op::logical_or}, {"|", Op::logical_or}, {"&&", Op::logical_and}, {"&", Op::logical_and},
        {"<=", Op::le},         {">=", Op::ge},        {"==", Op::eq},          {"!=", Op::ne},
        {"<", Op::lt},          {">", Op::gt},         {"+", Op::add},          {"-", Op::sub},
        {"//", Op::floor_div},  {"*", Op::mul},        {"/", Op::div},          {"%", Op::mod}};
    skip_space();
    for (const Infix& entry : table)
      if (text_.substr(at_, entry.text.size()) == entry.text) return &entry;
    return nullptr;
  }

  // Operators at least as tight as `loosest`, from left to right.
  Value binary(int loosest) {
    const Nesting nesting(*this);
    Value left = unary();
    bool compared = false;
    for (const Infix* sign; (sign = infix()) != nullptr;) {
      const int precedence = mods::info(sign->op).precedence;
      if (precedence < loosest) break;
      const Part where{at_, at_ + sign->text.size()};
      const bool compares = precedence == mods::comparison_precedence;
      if (compares && compared) stop(where, "comparisons do not chain: write (a < b) & (b < c)");
      compared = compares;
      at_ = where.end;
      const Value right = binary(precedence + 1);
      const Op op = sign->op;
      left = {guarded(where, [&] { return builder_.apply(op, left.node, right.node); }),
              {left.part.begin, right.part.end}};
    }
    return left;
  }

  Value unary() {
    const Nesting nesting(*this);
    skip_space();
    const std::size_t begin = at_;
    const auto prefix = [&](Op op) {
      const Part sign{begin, at_};
      const Value of = unary();
      return Value{guarded(sign, [&] { return builder_.apply(op, of.node); }), {begin, of.part.end}};
    };
    if (take("-")) return at_number() ? literal(begin) : prefix(Op::neg);
    if (take("!") || take("~")) return prefix(Op::logical_not);
    if (take("(")) {
      const Value inside = binary(1);
      expect(")");
      return {inside.node, {begin, at_}};
    }
    if (take("$")) return same_param(begin);
    if (at_number()) return literal(begin);
    if (is_letter(peek())) {
      const std::string_view name = word();
      const std::size_t end = at_;
      skip_space();
      if (peek() == '[' || peek() == ':') return element(name, begin);
      at_ = end;
      if (name == mods::info(Op::upper_bound).name) return search(begin);
      const mods::OpInfo* op = mods::find_call(name);
      return op ? call(*op, {begin, at_}) : named(name, begin);
    }
    stop(rest(), at_ < text_.size() ? "expected a number, a name or '('" : "the text ends where a value is expected");
  }

  // A number that begins (maybe with its sign) at `begin`: real if it has a point or an exponent.
  Param number(std::size_t begin) {
    std::size_t end = begin + (text_[begin] == '-' ? 1 : 0);
    bool real = false;
    for (; end < text_.size(); ++end) {
      const char c = text_[end], last = text_[end - (end > begin ? 1 : 0)];
      const bool exponent_sign = (c == '-' || c == '+') && real && (last == 'e' || last == 'E');
      if (!is_digit(c) && c != '.' && c != 'e' && c != 'E' && !exponent_sign) break;
      real = real || !is_digit(c);
    }
    at_ = end;
    const auto read = [&](auto value) {
      const auto [stopped, error] = std::from_chars(text_.data() + begin, text_.data() + end, value);
      const bool whole = stopped == text_.data() + end;
      const char* type = real ? "a real (a double)" : "an integer (int64)";
      if (error == std::errc::result_out_of_range && whole)
        stop({begin, end}, "this number is beyond the range of " + std::string(type));
      if (error != std::errc{} || !whole) stop({begin, end}, "this is not a number");
      return value;
    };
    if (real) return {Type::real, std::bit_cast<std::int64_t>(read(double{}))};
    return {Type::integer, read(std::int64_t{})};
  }
  std::uint16_t constant(const Param& p) {
    return p.type == Type::real ? builder_.constant(std::bit_cast<double>(p.value)) : builder_.constant(p.value);
  }
  Value literal(std::size_t begin) {
    const Param value = number(begin);
    const Part part{begin, at_};
    return {guarded(part, [&] { return constant(value); }), part};
  }

  // Inside param( ) and window( ): a number, inf, nan or unbounded.
  Param argument() {
    skip_space();
    const std::size_t begin = at_;
    const bool negative = take("-");
    if (at_number()) return number(begin);
    const std::string_view name = word();
    if (name == "unbounded" && !negative) return {Type::integer, unbounded};
    if (name == "inf") return {Type::real, std::bit_cast<std::int64_t>(negative ? -infinity : infinity)};
    if (name == "nan") return {Type::real, std::bit_cast<std::int64_t>(nan)};
    stop({begin, std::max(at_, begin + 1)}, "expected a number");
  }
  Value same_param(std::size_t begin) {
    std::size_t slot = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), slot);
    at_ = static_cast<std::size_t>(end - text_.data());
    if (error != std::errc{} || slot >= builder_.param_count())
      stop({begin, std::max(at_, begin + 1)},
           "$n repeats the n-th param() of the text, counted from 0; before here there are " +
               std::to_string(builder_.param_count()));
    return {builder_.same_param(slot), {begin, at_}};
  }

  // An element of a captured tensor: `slope[h]`, `ids:int[q]`, `table[h][k - q]`. Without its type: what it is
  // elsewhere before here, or real.
  Value element(std::string_view name, std::size_t begin) {
    const Nesting nesting(*this);
    const Part part{begin, begin + name.size()};
    Type type = Type::real;
    if (const Capture* known = builder_.find_capture(name)) type = known->type;
    if (take(":")) {
      skip_space();
      const std::size_t from = at_;
      const std::string_view kind = word();
      if (kind == "int") type = Type::integer;
      else if (kind == "bool") type = Type::boolean;
      else if (kind == "real") type = Type::real;
      else stop({from, std::max(at_, from + 1)}, "a captured tensor holds int, bool or real");
    }
    Indices index;
    if (!take("[")) stop(rest(), "expected '[': a captured tensor is read at an index, as in slope[h]");
    do {
      room_for_one(index);
      push(index, binary(1));
      expect("]");
    } while (take("["));
    const Part whole{begin, at_};
    const Capture capture = guarded(part, [&] { return mods::make_capture(name, type, static_cast<int>(index.rank)); });
    for (std::size_t i = 0; i < index.rank; ++i)
      guarded(index.part[i], [&] { mods::check_index(capture, i, builder_.type(index.node[i])); });
    return {guarded(whole,
                    [&] {
                      return builder_.load(builder_.capture(capture), {index.node.data(), index.rank});
                    }),
            whole};
  }

  struct Indices {
    std::array<std::uint16_t, Capture::max_rank> node{};
    std::array<Part, Capture::max_rank> part{};
    std::size_t rank = 0;
  };
  void room_for_one(const Indices& index) const {
    if (index.rank == index.node.size())
      stop({at_ - 1, at_}, "a captured tensor has at most " + std::to_string(index.node.size()) + " axes");
  }
  static void push(Indices& index, const Value& value) {
    index.part[index.rank] = value.part, index.node[index.rank++] = value.node;
  }

  // upper_bound(offsets, q), upper_bound(offsets[b], q): a captured tensor of integers without its last index.
  Value search(std::size_t begin) {
    const Nesting nesting(*this);
    expect("(");
    skip_space();
    const std::size_t from = at_;
    const std::string_view name = is_letter(peek()) ? word() : std::string_view();
    if (name.empty()) stop(rest(), "expected the name of a captured tensor of integers");
    Part tensor{from, at_};
    if (take(":") && !take("int")) stop(rest(), "upper_bound searches a tensor of integers: expected int");
    Indices given;
    while (take("[")) {
      room_for_one(given);
      push(given, binary(1));
      expect("]");
    }
    if (!take(","))
      stop(rest(), "expected ',': upper_bound takes a captured tensor without its last index and a number");
    room_for_one(given);
    push(given, binary(1));
    expect(")");
    const Part whole{begin, at_};
    const Capture capture =
        guarded(tensor, [&] { return mods::make_capture(name, Type::integer, static_cast<int>(given.rank)); });
    for (std::size_t i = 0; i < given.rank; ++i)
      guarded(given.part[i], [&] { mods::check_search(capture, i, builder_.type(given.node[i])); });
    const std::uint8_t slot = guarded(tensor, [&] { return builder_.capture(capture); });
    return {guarded(whole, [&] { return builder_.upper_bound(slot, {given.node.data(), given.rank}); }), whole};
  }

  Value named(std::string_view name, std::size_t begin) {
    const Part part{begin, at_};
    const auto value = [&](auto work) { return Value{guarded({begin, at_}, work), {begin, at_}}; };
    const auto leaf = [&](Op op) { return value([&] { return builder_.leaf(op); }); };
    if (name == "b" || name == "b_idx") return leaf(Op::batch);
    if (name == "h" || name == "h_idx") return leaf(Op::head);
    if (name == "q" || name == "q_idx") return leaf(Op::query);
    if (name == "k" || name == "kv_idx") return leaf(Op::key);
    if (name == "s" || name == "score") {
      if (is(Kind::mask)) stop(part, "a mask sees b, h, q and k, not the score s");
      return leaf(Op::score);
    }
    if (name == "true" || name == "false") return value([&] { return builder_.constant(name == "true"); });
    if (name == "inf") return value([&] { return builder_.constant(infinity); });
    if (name == "nan") return value([&] { return builder_.constant(nan); });
    for (const mods::ReadyMade& mod : mods::ready_made())
      if (name == mod.name) return ready_made(mod, begin);
    if (name == "param") {
      expect("(");
      const Param p = argument();
      expect(")");
      return value([&] {
        return p.type == Type::real ? builder_.param(std::bit_cast<double>(p.value)) : builder_.param(p.value);
      });
    }
    std::string known;
    for (const mods::ReadyMade& mod : mods::ready_made()) {
      if (is(Kind::mask) && mod.is_score) continue;
      known.append(known.empty() ? "" : ", ").append(mod.name);
    }
    stop(part, "there is no '" + std::string(name.substr(0, 40)) + "': expected a coordinate (" +
                   (is(Kind::mask) ? "" : "s, ") +
                   "b, h, q, k), an element of a captured tensor (slope[h]), param(x), a function or one of " + known);
  }

  // window(1023, 0), documents(ids), causal: a name and its arguments, in parentheses if there are any.
  Value ready_made(const mods::ReadyMade& mod, std::size_t begin) {
    if (is(Kind::mask) && mod.is_score)
      stop({begin, at_}, "a mask sees b, h, q and k, not the score: '" + std::string(mod.name) + "' changes it");
    mods::Arguments given;
    const bool open = take("(");
    if (!open && !mod.arguments.empty()) stop(rest(), "expected '('");
    for (std::size_t i = 0; i < mod.arguments.size(); ++i) {
      const char kind = mod.arguments[i];
      skip_space();
      if (is_capital(kind) && peek() == ')') break;
      if (i > 0) expect(",");
      skip_space();
      const std::size_t from = at_;
      if (kind == 't') {
        given.tensor = is_letter(peek()) ? word() : std::string_view();
        if (given.tensor.empty()) stop(rest(), "expected the name of a captured tensor");
      } else if (kind == 'B') {
        const std::string_view said = word();
        if (said != "true" && said != "false") stop({from, std::max(at_, from + 1)}, "expected true or false");
        given.integer[given.integers++] = said == "true";
      } else {
        const Param p = argument();
        if (kind == 'r') {
          given.real = p.type == Type::real ? std::bit_cast<double>(p.value) : static_cast<double>(p.value);
        } else {
          if (p.type != Type::integer)
            stop({from, at_},
                 "argument " + std::to_string(i + 1) + " of " + std::string(mod.name) + " is an integer, not a real");
          given.integer[given.integers++] = p.value;
        }
      }
    }
    if (open) expect(")");
    const Part whole{begin, at_};
    return {guarded(whole, [&] { return builder_.import(mod.make(given)); }), whole};
  }
  Value call(const mods::OpInfo& op, Part name) {
    std::uint16_t arg[3] = {};
    expect("(");
    for (int i = 0; i < op.arity; ++i) {
      if (i > 0 && !take(","))
        stop(rest(), "expected ',': '" + std::string(op.name) + "' takes " + std::to_string(op.arity) + " arguments");
      arg[i] = binary(1).node;
    }
    expect(")");
    return {guarded(name,
                    [&] {
                      if (op.arity == 1) return builder_.apply(op.op, arg[0]);
                      if (op.arity == 2) return builder_.apply(op.op, arg[0], arg[1]);
                      return builder_.apply(op.op, arg[0], arg[1], arg[2]);
                    }),
            {name.begin, at_}};
  }

  static constexpr double infinity = std::numeric_limits<double>::infinity();
  static constexpr double nan = std::numeric_limits<double>::quiet_NaN();

  std::string_view text_;
  Kind kind_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Builder builder_;
};

}  // namespace

Mask parse_mask(std::string_view text) { return Mask(Parser(text, Parser::Kind::mask).parse()); }
ScoreMod parse_score(std::string_view text) { return ScoreMod(Parser(text, Parser::Kind::score).parse()); }

}  // namespace TESSERA_API_NAMESPACE

Graph mods::parse(std::string_view text) { return Parser(text, Parser::Kind::any).parse(); }

}  // namespace tessera
