// Tracing: expressions are nodes of the builder of the trace that the thread is in.
#include "tessera/trace.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <memory>
#include <ostream>
#include <sstream>
#include <vector>

#include "mods/graph.hpp"

namespace tessera {
namespace {

using mods::Builder;

[[noreturn]] void refuse(const std::string& text) { throw Error(Code::invalid_mod, text); }

// The thread's builders, one for each trace inside another. They keep their capacity, so that tracing what was traced
// before allocates nothing.
thread_local std::size_t depth = 0;
Builder& next_builder() {
  thread_local std::vector<std::unique_ptr<Builder>> builders;
  if (builders.size() == depth) builders.push_back(std::make_unique<Builder>());
  Builder& builder = *builders[depth];
  builder.clear();
  return builder;
}
thread_local detail::Tracing* innermost = nullptr;
std::atomic<std::uint64_t> traces = 0;

// `why`, the text, and a line that points at a part of it.
[[noreturn]] void refuse_at(const std::string& why, const std::string& text, std::size_t begin, std::size_t length) {
  refuse(why + "\n  " + text + "\n  " + std::string(begin, ' ') + "^" +
         std::string(std::max<std::size_t>(length, 1) - 1, '~'));
}
constexpr std::size_t shown_result = 400, shown_argument = 100;  // bytes of a text in an error

}  // namespace

inline namespace TESSERA_API_NAMESPACE {
namespace detail {

Tracing::Tracing() : builder_(next_builder()), outer_(innermost), id_(++traces) { innermost = this, ++depth; }
Tracing::~Tracing() { innermost = outer_, --depth; }

Tracing& Tracing::current() {
  if (innermost == nullptr)
    refuse(
        "an expression is made or used outside of a trace: expressions live only inside the function that mask_mod() "
        "or score_mod() is called with");
  return *innermost;
}

std::uint16_t Tracing::node(const Expr& x) {
  if (x.trace_ == id_) return x.node_;
  if (x.trace_ != 0)
    refuse(
        "an expression of another trace is used: what a traced function is given and what it makes of it belongs to "
        "that one call");
  if (x.type_ == Type::boolean) return builder_.constant(x.bits_ != 0);
  if (x.type_ == Type::integer) return builder_.constant(x.bits_);
  return builder_.constant(std::bit_cast<double>(x.bits_));
}

// At most `most` bytes of it.
std::string Tracing::text(std::uint16_t node, std::size_t most) {
  std::ostringstream out;
  try {
    const Graph graph = builder_.finish(node);
    if (graph.nodes.empty()) out << "true";
    else out << graph;
  } catch (const Error&) {  // beyond the limits of a text
    return "...";
  }
  const std::string whole = out.str();
  return whole.size() <= most ? whole : whole.substr(0, most - 3) + "...";
}

Expr Tracing::coordinate(Op op) { return {id_, builder_.leaf(op)}; }

Expr Tracing::apply(Op op, std::initializer_list<Expr> arguments) {
  Tracing& trace = current();
  Builder& builder = trace.builder_;
  std::array<std::uint16_t, 3> arg{};
  std::transform(arguments.begin(), arguments.end(), arg.begin(), [&](const Expr& x) { return trace.node(x); });
  try {
    const std::uint16_t node = arguments.size() == 1   ? builder.apply(op, arg[0])
                               : arguments.size() == 2 ? builder.apply(op, arg[0], arg[1])
                                                       : builder.apply(op, arg[0], arg[1], arg[2]);
    return {trace.id_, node};
  } catch (const Error& error) {
    const mods::OpInfo& info = mods::info(op);
    const auto argument = [&](std::size_t i) { return trace.text(arg[i], shown_argument); };
    std::string text, before;
    if (info.precedence > 0 && arguments.size() == 2) {
      before = "(" + argument(0) + " ";
      text = before + std::string(info.name) + " " + argument(1) + ")";
    } else if (info.precedence > 0) {
      before = "(";
      text = before + std::string(info.name) + argument(0) + ")";
    } else {
      text = std::string(info.name) + "(";
      for (std::size_t i = 0; i < arguments.size(); ++i) text += (i > 0 ? ", " : "") + argument(i);
      text += ")";
    }
    refuse_at(error.what(), text, before.size(), info.name.size());
  }
}

Expr Tracing::param(std::int64_t value) { return {current().id_, current().builder_.param(value)}; }
Expr Tracing::param(double value) { return {current().id_, current().builder_.param(value)}; }

Expr Tracing::import(const Mask& mask) { return {current().id_, current().builder_.import(mask.graph())}; }

Captured Tracing::capture(std::string_view name, DType dtype, int rank) {
  Type type{};
  switch (dtype) {
    case DType::f32:
    case DType::bf16:
    case DType::f16:
      type = Type::real;
      break;
    case DType::i32:
    case DType::i64:
    case DType::u8:
      type = Type::integer;
      break;
    case DType::b8:
      type = Type::boolean;
      break;
    case DType::none:
      refuse("the captured tensor '" + std::string(name.substr(0, 40)) + "' has no type: give it one, as in f32");
  }
  const Capture capture = mods::make_capture(name, type, rank);
  current().builder_.capture(capture);  // so that a name used twice is refused here
  return Captured(capture);
}

Captured Tracing::index(Captured captured, const Expr& index) {
  Tracing& trace = current();
  const Capture& capture = captured.capture_;
  if (captured.given_ == capture.rank)
    refuse("the captured tensor " + mods::shown(capture) + " takes " + std::to_string(capture.rank) +
           " indices, this is one more");
  const std::uint16_t node = trace.node(index);
  try {
    mods::check_index(capture, captured.given_, trace.builder_.type(node));
  } catch (const Error& error) {
    std::string before(mods::name(capture));
    for (std::size_t i = 0; i < captured.given_; ++i) before += "[.]";
    const std::string at = trace.text(node, shown_argument);
    refuse_at(error.what(), before + "[" + at + "]", before.size() + 1, at.size());
  }
  captured.index_[captured.given_++] = {trace.id_, node};
  return captured;
}

Expr Tracing::load(const Captured& captured) {
  Tracing& trace = current();
  const Capture& capture = captured.capture_;
  if (captured.given_ != capture.rank)
    refuse("the captured tensor " + mods::shown(capture) + " takes " + std::to_string(capture.rank) + " indices, not " +
           std::to_string(captured.given_));
  std::array<std::uint16_t, Capture::max_rank> node{};
  for (std::size_t i = 0; i < capture.rank; ++i) node[i] = trace.node(captured.index_[i]);
  Builder& builder = trace.builder_;
  return {trace.id_, builder.load(builder.capture(capture), {node.data(), capture.rank})};
}

Expr Tracing::search(const Captured& captured, const Expr& x) {
  Tracing& trace = current();
  const Capture& capture = captured.capture_;
  mods::check_search(capture);
  const std::size_t before = capture.rank - std::size_t{1};
  if (captured.given_ != before)
    refuse("upper_bound searches along the last axis of " + mods::shown(capture) + ": it takes the tensor with " +
           std::to_string(before) + " indices, not " + std::to_string(captured.given_));
  std::array<std::uint16_t, Capture::max_rank> node{};
  for (std::size_t i = 0; i < before; ++i) node[i] = trace.node(captured.index_[i]);
  node[before] = trace.node(x);
  Builder& builder = trace.builder_;
  try {
    mods::check_search(capture, before, builder.type(node[before]));
  } catch (const Error& error) {
    std::string shown = "upper_bound(" + std::string(mods::name(capture));
    for (std::size_t i = 0; i < before; ++i) shown += "[.]";
    const std::string wanted = trace.text(node[before], shown_argument);
    refuse_at(error.what(), shown + ", " + wanted + ")", shown.size() + 2, wanted.size());
  }
  return {trace.id_, builder.upper_bound(builder.capture(capture), {node.data(), capture.rank})};
}

void Tracing::print(std::ostream& out, const Expr& x) {
  Tracing& trace = current();
  out << trace.text(trace.node(x), std::numeric_limits<std::size_t>::max());
}

Mask Tracing::finish_mask(const Expr& result) {
  const std::uint16_t root = node(result);
  if (const Type type = builder_.type(root); type != Type::boolean) {
    const std::string shown = text(root, shown_result);
    refuse_at("a mask is true or false, this is " + std::string(mods::name(type)) +
                  ": compare it with something, as in k <= q",
              shown, 0, shown.size());
  }
  return builder_.finish_mask(root);
}

ScoreMod Tracing::finish_score(const Expr& result) {
  const std::uint16_t root = node(result);
  if (builder_.type(root) == Type::boolean) {
    const std::string shown = text(root, shown_result);
    refuse_at("a score change is a number, this is a boolean: where(condition, s, -inf) makes one", shown, 0,
              shown.size());
  }
  return builder_.finish_score(root);
}

Expr operator+(const Expr& a, const Expr& b) { return Tracing::apply(Op::add, {a, b}); }
Expr operator-(const Expr& a, const Expr& b) { return Tracing::apply(Op::sub, {a, b}); }
Expr operator*(const Expr& a, const Expr& b) { return Tracing::apply(Op::mul, {a, b}); }
Expr operator/(const Expr& a, const Expr& b) { return Tracing::apply(Op::div, {a, b}); }
Expr operator%(const Expr& a, const Expr& b) { return Tracing::apply(Op::mod, {a, b}); }
Expr operator-(const Expr& a) { return Tracing::apply(Op::neg, {a}); }
Expr operator<(const Expr& a, const Expr& b) { return Tracing::apply(Op::lt, {a, b}); }
Expr operator<=(const Expr& a, const Expr& b) { return Tracing::apply(Op::le, {a, b}); }
Expr operator>(const Expr& a, const Expr& b) { return Tracing::apply(Op::gt, {a, b}); }
Expr operator>=(const Expr& a, const Expr& b) { return Tracing::apply(Op::ge, {a, b}); }
Expr operator==(const Expr& a, const Expr& b) { return Tracing::apply(Op::eq, {a, b}); }
Expr operator!=(const Expr& a, const Expr& b) { return Tracing::apply(Op::ne, {a, b}); }
Expr operator&(const Expr& a, const Expr& b) { return Tracing::apply(Op::logical_and, {a, b}); }
Expr operator|(const Expr& a, const Expr& b) { return Tracing::apply(Op::logical_or, {a, b}); }
Expr operator!(const Expr& a) { return Tracing::apply(Op::logical_not, {a}); }

}  // namespace detail

using detail::Tracing;

void Expr::set(double value) { set(Type::real, std::bit_cast<std::int64_t>(value)); }
void Expr::set(std::uint64_t value) {
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    refuse("the number " + std::to_string(value) + " is beyond the range of an integer (int64)");
  set(Type::integer, static_cast<std::int64_t>(value));
}
Expr::Expr(const Mask& mask) { *this = Tracing::import(mask); }
std::ostream& operator<<(std::ostream& out, const Expr& x) {
  Tracing::print(out, x);
  return out;
}

Expr where(const Expr& condition, const Expr& a, const Expr& b) {
  return Tracing::apply(Op::select, {condition, a, b});
}
Expr min(const Expr& a, const Expr& b) { return Tracing::apply(Op::min, {a, b}); }
Expr max(const Expr& a, const Expr& b) { return Tracing::apply(Op::max, {a, b}); }
Expr abs(const Expr& x) { return Tracing::apply(Op::abs, {x}); }
Expr sign(const Expr& x) { return Tracing::apply(Op::sign, {x}); }
Expr floor_div(const Expr& a, const Expr& b) { return Tracing::apply(Op::floor_div, {a, b}); }
Expr exp(const Expr& x) { return Tracing::apply(Op::exp, {x}); }
Expr exp2(const Expr& x) { return Tracing::apply(Op::exp2, {x}); }
Expr log(const Expr& x) { return Tracing::apply(Op::log, {x}); }
Expr tanh(const Expr& x) { return Tracing::apply(Op::tanh, {x}); }
Expr sigmoid(const Expr& x) { return Tracing::apply(Op::sigmoid, {x}); }
Expr sqrt(const Expr& x) { return Tracing::apply(Op::sqrt, {x}); }
Expr rsqrt(const Expr& x) { return Tracing::apply(Op::rsqrt, {x}); }
Expr erf(const Expr& x) { return Tracing::apply(Op::erf, {x}); }
Expr pow(const Expr& a, const Expr& b) { return Tracing::apply(Op::pow, {a, b}); }
Expr real(const Expr& x) { return Tracing::apply(Op::to_real, {x}); }

Captured Captured::operator[](const Expr& index) const { return Tracing::index(*this, index); }
Captured::operator Expr() const { return Tracing::load(*this); }
Expr upper_bound(const Captured& captured, const Expr& x) { return Tracing::search(captured, x); }
Captured capture(std::string_view name, DType dtype, int rank) { return Tracing::capture(name, dtype, rank); }

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
