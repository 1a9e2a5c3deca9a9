// A graph as CUDA C++ text: one statement a node, in their order; the compiler does the rest.
#include "emit/mod_text.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

#include "problem/fail.hpp"

namespace tessera::emit {
namespace {

// Largest absolute value that an integer may have: 2^63 is anything.
constexpr std::uint64_t anything = std::uint64_t{1} << 63;

bool is_identifier(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && (name[0] < '0' || name[0] > '9') && std::all_of(name.begin(), name.end(), fits);
}

std::string type_name(Type type, Reals reals) {
  return type == Type::boolean   ? "bool"
         : type == Type::integer ? "long long"
         : reals == Reals::f32   ? "float"
                                 : "double";
}

// How an element of a table is stored, and how it is read from `place`.
struct Element {
  DType dtype;
  Type type;
  std::string_view stored, before, after;
  std::uint64_t reach;  // largest absolute value of an integer
};
constexpr Element elements[] = {
    {f32, Type::real, "float", "", "", 0},
    {bf16, Type::real, "unsigned short", "mod_math::from_bf16(", ")", 0},
    {f16, Type::real, "unsigned short", "mod_math::from_f16(", ")", 0},
    {i32, Type::integer, "int", "", "", std::uint64_t{1} << 31},
    {i64, Type::integer, "long long", "", "", anything},
    {u8, Type::integer, "unsigned char", "", "", 255},
    {b8, Type::boolean, "unsigned char", "", " != 0", 0},
};

const Element& element_of(const Capture& capture, DType dtype) {
  const Element* found = std::find_if(std::begin(elements), std::end(elements),
                                      [&](const Element& e) { return e.dtype == dtype && e.type == capture.type; });
  if (found != std::end(elements)) return *found;
  std::string fitting;
  for (const Element& e : elements)
    if (e.type == capture.type) fitting += (fitting.empty() ? "" : ", ") + std::string(name(e.dtype));
  problem::fail(Code::invalid_dtype, "the captured tensor '", mods::name(capture), "' holds ", mods::name(capture.type),
                " an element and is bound to ", dtype, ": it can be ", fitting);
}

std::string integer_literal(std::int64_t value) {
  if (value == std::numeric_limits<std::int64_t>::min()) return "mod_math::least";
  const std::string digits = std::to_string(value) + "LL";
  return value < 0 ? "(" + digits + ")" : digits;
}

// The value, exactly: in hexadecimal, or as bits where C++ has no literal.
std::string double_literal(double value) {
  char digits[32];
  if (!std::isfinite(value)) {
    const std::uint64_t bits = std::isnan(value) ? 0x7ff8000000000000u : std::bit_cast<std::uint64_t>(value);
    const auto end = std::to_chars(digits, std::end(digits), bits, 16).ptr;
    return "real_of_bits(0x" + std::string(digits, end) + "LL)";
  }
  const auto end = std::to_chars(digits, std::end(digits), std::fabs(value), std::chars_format::hex).ptr;
  return (std::signbit(value) ? "(-0x" : "(0x") + std::string(digits, end) + ")";
}

// The nearest float.
std::string real_literal(double value, Reals reals) {
  if (reals == Reals::f64) return double_literal(value);
  const float real = static_cast<float>(value);
  char digits[32];
  if (!std::isfinite(real)) {
    const std::uint32_t bits = std::isnan(real) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(real);
    const auto end = std::to_chars(digits, std::end(digits), bits, 16).ptr;
    return "mod_math::from_bits(0x" + std::string(digits, end) + "u)";
  }
  const auto end = std::to_chars(digits, std::end(digits), std::fabs(real), std::chars_format::hex).ptr;
  const std::string magnitude = "0x" + std::string(digits, end) + "f";
  return std::signbit(real) ? "(-" + magnitude + ")" : magnitude;
}

class Writer {
 public:
  Writer(const Graph& graph, std::span<const DType> dtypes, Reals reals)
      : graph_(graph), dtypes_(dtypes), reals_(reals) {}

  // The statements; the result is then result().
  std::string statements() {
    std::string text;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.arg_count == 0) {
        values_.push_back(leaf(node));
        continue;
      }
      Value value = mods::reads_capture(node.op) ? read(node) : operation(node);
      const std::string variable = "n" + std::to_string(i);
      text += "  const " + type_name(node.type, reals_) + " " + variable + " = " + value.text + ";\n";
      values_.push_back({variable, value.reach});
    }
    return text;
  }
  const std::string& result() const { return values_.back().text; }

 private:
  struct Value {
    std::string text;         // an expression that needs no parentheses
    std::uint64_t reach = 0;  // largest absolute value of an integer
  };

  Value leaf(const Node& node) const {
    const auto position = [](std::string text) { return Value{std::move(text), std::uint64_t{mods::farthest}}; };
    switch (node.op) {
      case Op::batch:
        return position("b");
      case Op::head:
        return position("h");
      case Op::query:
        return position("q");
      case Op::key:
        return position("k");
      case Op::score:
        return {"s"};
      case Op::param:
        return {"args.p" + std::to_string(node.slot), anything};
      default:
        break;
    }
    if (node.type == Type::boolean) return {node.value != 0 ? "true" : "false"};
    if (node.type == Type::real) return {real_literal(std::bit_cast<double>(node.value), reals_)};
    const auto bits = static_cast<std::uint64_t>(node.value);
    return {integer_literal(node.value), node.value < 0 ? 0 - bits : bits};
  }

  Value read(const Node& node) const {
    const Element& element = element_of(graph_.captures[node.slot], dtypes_[node.slot]);
    const std::string table = "args.t" + std::to_string(node.slot);
    const bool searches = node.op == Op::upper_bound;
    const std::size_t last = node.arg_count - std::size_t{1};
    std::string place;
    for (std::size_t i = 0; i < node.arg_count - (searches ? std::size_t{1} : 0); ++i) {
      const std::string axis = "[" + std::to_string(i) + "]";
      place += (i ? " + " : "") + ("mod_math::clamp(" + values_[node.arg[i]].text + ", ") + table + "_last" + axis +
               ") * " + table + "_stride" + axis;
    }
    if (searches) {
      const std::string axis = "[" + std::to_string(last) + "]";
      return {table + " ? mod_math::upper_bound(" + table + (place.empty() ? "" : " + (" + place + ")") + ", " + table +
                  "_last" + axis + " + 1, " + table + "_stride" + axis + ", " + values_[node.arg[last]].text + ") : 0",
              anything};
    }
    // Without elements: all zeros.
    std::string text = table + " ? " + std::string(element.before) + table + "[" + place + "]";
    text += std::string(element.after) + " : " + (element.type == Type::boolean ? "false" : "0");
    return {text, element.reach};
  }

  // Of doubles: one rounding each, and the names that the mathematical library has for them.
  Value operation_f64(const Node& node) const {
    const auto call = [&](std::string_view function) {
      std::string text = std::string(function) + "(";
      for (std::size_t i = 0; i < node.arg_count; ++i) text += (i ? ", " : "") + values_[node.arg[i]].text;
      return Value{text + ")"};
    };
    switch (node.op) {
      case Op::add:
        return call("plus");
      case Op::sub:
        return call("minus");
      case Op::mul:
        return call("times");
      case Op::div:
        return call("over");
      case Op::min:
        return call("lower_number");
      case Op::max:
        return call("higher_number");
      case Op::abs:
        return call("::fabs");
      case Op::sign:
        return call("sign_of");
      case Op::sigmoid:
        return call("sigmoid_of");
      case Op::rsqrt:
        return call("reciprocal_root_of");
      case Op::exp:
      case Op::exp2:
      case Op::log:
      case Op::tanh:
      case Op::sqrt:
      case Op::erf:
      case Op::pow:
        return call("::" + std::string(mods::info(node.op).name));
      case Op::to_real:
        return {"(double)" + values_[node.arg[0]].text};
      default:
        problem::fail(Code::internal, "an operation on doubles without a text: ", mods::info(node.op).name);
    }
  }

  Value operation(const Node& node) const {
    if (node.type == Type::real && reals_ == Reals::f64 && node.op != Op::neg && node.op != Op::select)
      return operation_f64(node);
    const Value &a = values_[node.arg[0]], &b = values_[node.arg[node.arg_count > 1 ? 1 : 0]],
                &c = values_[node.arg[node.arg_count > 2 ? 2 : 0]];
    const bool whole = node.type == Type::integer;
    const auto infix = [&](const char* symbol) { return a.text + symbol + b.text; };
    const auto call = [&](std::string_view function) {
      std::string text = std::string(function) + "(" + a.text;
      return text + (node.arg_count > 1 ? ", " + b.text + ")" : ")");
    };
    // Whether an integer of at most this absolute value fits, so that nothing saturates.
    const auto fits = [](std::uint64_t reach) { return reach < anything; };
    switch (node.op) {
      case Op::add:
      case Op::sub: {
        const bool is_sum = node.op == Op::add;
        if (!whole) return {infix(is_sum ? " + " : " - ")};
        const std::uint64_t reach = fits(a.reach) && fits(b.reach) ? a.reach + b.reach : anything;
        if (fits(reach)) return {infix(is_sum ? " + " : " - "), reach};
        return {call(is_sum ? "mod_math::add" : "mod_math::sub"), anything};
      }
      case Op::mul: {
        if (!whole) return {infix(" * ")};
        if (a.reach == 0 || b.reach < (anything + a.reach - 1) / a.reach) return {infix(" * "), a.reach * b.reach};
        return {call("mod_math::mul"), anything};
      }
      case Op::floor_div:
        return {call("mod_math::floor_div"), a.reach};
      case Op::mod:
        return {call("mod_math::floor_mod"), b.reach};
      case Op::div:
        return {infix(" / ")};
      case Op::min:
        return {call("mod_math::min"), std::max(a.reach, b.reach)};
      case Op::max:
        return {call("mod_math::max"), std::max(a.reach, b.reach)};
      case Op::neg:
        if (!whole || fits(a.reach)) return {"-" + a.text, a.reach};
        return {"mod_math::sub(0, " + a.text + ")", anything};
      case Op::abs:
        return {call(whole ? "mod_math::abs" : "fabsf"), a.reach};
      case Op::sign:
        return {call("mod_math::sign"), 1};
      case Op::lt:
        return {infix(" < ")};
      case Op::le:
        return {infix(" <= ")};
      case Op::gt:
        return {infix(" > ")};
      case Op::ge:
        return {infix(" >= ")};
      case Op::eq:
        return {infix(" == ")};
      case Op::ne:
        return {infix(" != ")};
      case Op::logical_and:
        return {infix(" && ")};
      case Op::logical_or:
        return {infix(" || ")};
      case Op::logical_not:
        return {"!" + a.text};
      case Op::select:
        return {a.text + " ? " + b.text + " : " + c.text, std::max(b.reach, c.reach)};
      case Op::exp:
        return {call("expf")};
      case Op::exp2:
        return {call("exp2f")};
      case Op::log:
        return {call("logf")};
      case Op::tanh:
        return {call("tanhf")};
      case Op::sigmoid:
        return {call("mod_math::sigmoid")};
      case Op::sqrt:
        return {call("sqrtf")};
      case Op::rsqrt:
        return {call("mod_math::reciprocal_root")};
      case Op::erf:
        return {call("erff")};
      case Op::pow:
        return {call("powf")};
      case Op::to_real:
        return {"(float)" + a.text};
      default:
        break;
    }
    problem::fail(Code::internal, "an operation without a text: ", mods::info(node.op).name);
  }

  const Graph& graph_;
  std::span<const DType> dtypes_;
  Reals reals_;
  std::vector<Value> values_;
};

std::string arguments_text(std::string_view struct_name, const Graph& graph, std::span<const DType> dtypes,
                           Reals reals) {
  std::string text = "struct " + std::string(struct_name) + " {\n";
  for (std::size_t i = 0; i < graph.params.size(); ++i)
    text += "  alignas(8) " + type_name(graph.params[i].type, reals) + " p" + std::to_string(i) + ";\n";
  for (std::size_t i = 0; i < graph.captures.size(); ++i) {
    const Capture& capture = graph.captures[i];
    const std::string table = "t" + std::to_string(i), axes = "[" + std::to_string(capture.rank) + "]";
    text += "  const " + std::string(element_of(capture, dtypes[i]).stored) + "* " + table + ";  // ";
    text += mods::shown(capture) + "\n  long long " + table + "_last" + axes + ", " + table + "_stride" + axes + ";\n";
  }
  if (graph.params.empty() && graph.captures.empty()) text += "  long long none;\n";
  text += "};\nstatic_assert(sizeof(" + std::string(struct_name) + ") == ";
  return text + std::to_string(8 * argument_words(graph)) + ", \"as the host packs it\");\n";
}

}  // namespace

std::string mod_function(std::string_view name, const Graph& graph, Type result, std::span<const DType> dtypes,
                         Reals reals) {
  if (!is_identifier(name)) problem::fail(Code::internal, "a function cannot be called '", name, "'");
  if (dtypes.size() != graph.captures.size())
    problem::fail(Code::internal, "the expression reads ", graph.captures.size(), " captured tensors, given are ",
                  dtypes.size(), " types of them");
  const Type given = graph.nodes.empty() ? result : graph.nodes[graph.nodes.size() - 1].type;
  if (given != result || (graph.nodes.empty() && result == Type::integer))
    problem::fail(Code::internal, "the result of the expression is ", mods::name(given), ", not ", mods::name(result));
  const std::string struct_name = std::string(name) + "_arguments";
  std::string text = arguments_text(struct_name, graph, dtypes, reals);
  text += "static __device__ " + type_name(result, reals) + " " + std::string(name);
  text += "(float s, long long b, long long h, long long q, long long k, const " + struct_name + "& args) {\n";
  Writer writer(graph, dtypes, reals);
  text += writer.statements() + "  return ";
  text += !graph.nodes.empty() ? writer.result() : result == Type::boolean ? "true" : "s";
  return text + ";\n}\n";
}

std::string_view stored(DType dtype) {
  const Element* found =
      std::find_if(std::begin(elements), std::end(elements), [&](auto& e) { return e.dtype == dtype; });
  return found == std::end(elements) ? "void" : found->stored;
}

std::size_t argument_words(const Graph& graph) {
  std::size_t words = graph.params.size();
  for (const Capture& capture : graph.captures) words += 1 + 2 * std::size_t{capture.rank};
  return std::max<std::size_t>(words, 1);
}

void pack_arguments(const Graph& graph, std::span<const mods::Table> tables, std::uint64_t* words, Reals reals) {
  *words = 0;
  for (const Param& param : graph.params) {
    if (param.type == Type::integer || reals == Reals::f64) *words++ = static_cast<std::uint64_t>(param.value);
    else *words++ = std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(param.value)));
  }
  for (std::size_t i = 0; i < graph.captures.size(); ++i) {
    const std::size_t rank = graph.captures[i].rank;
    const mods::Table& table = tables[i];
    const bool empty = std::any_of(table.extent.begin(), table.extent.begin() + static_cast<std::ptrdiff_t>(rank),
                                   [](std::int64_t extent) { return extent <= 0; });
    *words++ = empty ? 0 : reinterpret_cast<std::uintptr_t>(table.data);
    for (std::size_t axis = 0; axis < rank; ++axis)
      *words++ = static_cast<std::uint64_t>(std::max<std::int64_t>(table.extent[axis] - 1, 0));
    for (std::size_t axis = 0; axis < rank; ++axis) *words++ = static_cast<std::uint64_t>(table.stride[axis]);
  }
}

}  // namespace tessera::emit
