// A graph as CUDA C++ text: one statement a node, in their order; the compiler does the rest.
#include "emit/mod_text.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "emit/mod_ranges.hpp"
#include "emit/mod_words.hpp"
#include "problem/fail.hpp"

namespace tessera::emit {
namespace {

class Writer {
 public:
  Writer(const Graph& graph, std::span<const DType> dtypes, const ModOptions& options)
      : graph_(graph), dtypes_(dtypes), options_(options) {
    if (options.narrow) parameters_ = narrow_parameters(graph);
  }

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
      const bool narrow = node.type == Type::integer && is_narrow(value);
      if (narrow && value.wide) value.text = "(int)(" + value.text + ")";
      text += "  const " + (narrow ? "int" : type_name(node.type, options_.reals)) + " " + variable + " = ";
      text += value.text + ";\n";
      values_.push_back({variable, value.range, !narrow});
    }
    return text;
  }
  const std::string& result() const { return values_.back().text; }

 private:
  struct Value {
    std::string text{};  // an expression that needs no parentheses
    Interval range{};    // of an integer
    bool wide = true;    // of an integer: the expression is a long long, else an int
  };
  bool is_narrow(const Value& value) const { return options_.narrow && contains(every_i32, value.range); }
  bool is_device() const { return options_.functions == Functions::device && options_.reals == Reals::f32; }

  // An integer as a float, calculated in floats where that is exact, for the sake of real_k.
  std::optional<std::string> as_real(std::size_t i) const {
    constexpr Interval exact{-(1 << 24), 1 << 24};
    const Node& node = graph_.nodes[i];
    const Value& value = values_[i];
    if (value.wide || !contains(exact, value.range)) return {};
    const auto of = [&](const char* symbol) -> std::optional<std::string> {
      const auto a = as_real(node.arg[0]), b = as_real(node.arg[1]);
      return a && b ? std::optional("(" + *a + symbol + *b + ")") : std::nullopt;
    };
    switch (node.op) {
      case Op::key:
        return "real_k";
      case Op::add:
        return of(" + ");
      case Op::sub:
        return of(" - ");
      case Op::neg:
        if (const auto a = as_real(node.arg[0])) return "(0.0f - " + *a + ")";  // an integer's 0 has no sign
        return {};
      case Op::abs:
        if (const auto a = as_real(node.arg[0])) return "fabsf(" + *a + ")";
        return {};
      default:
        return "(float)" + value.text;
    }
  }

  Value leaf(const Node& node) const {
    const auto position = [&](const char* text) {
      return Value{text, of_coordinate(node.op, options_.narrow), !options_.narrow};
    };
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
      case Op::param: {
        const std::string text = "args.p" + std::to_string(node.slot);
        if (node.type != Type::integer) return {text};
        if (!options_.narrow) return {text, every_i64};
        return {"(int)" + text, parameters_[node.slot], false};
      }
      default:
        break;
    }
    if (node.type == Type::boolean) return {node.value != 0 ? "true" : "false"};
    if (node.type == Type::real) return {real_literal(std::bit_cast<double>(node.value), options_.reals)};
    Value value{{}, {node.value, node.value}};
    value.wide = !is_narrow(value), value.text = integer_literal(node.value, !value.wide);
    return value;
  }

  // An index, clamped to [0, last].
  std::string clamped(const Value& index, const std::string& last) const {
    if (index.wide) return "mod_math::clamp(" + index.text + ", " + last + ")";
    return (index.range.lo >= 0 ? "mod_math::at_most(" : "mod_math::clamp(") + index.text + ", (int)" + last + ")";
  }
  Value read(const Node& node) const {
    const Element& element = element_of(graph_.captures[node.slot], dtypes_[node.slot]);
    const std::string table = "args.t" + std::to_string(node.slot);
    const bool searches = node.op == Op::upper_bound;
    const std::size_t last = node.arg_count - std::size_t{1}, indices = searches ? last : node.arg_count;
    // Without elements: all zeros. One axis after the other, so that what does not change in a loop is added before it.
    std::string place = searches ? table : "mod_math::or_zeros(" + table + ")";
    for (std::size_t i = 0; i < indices; ++i) {
      const std::string axis = "[" + std::to_string(i) + "]";
      Value index = values_[node.arg[i]];
      if (!index.wide && is_searched(graph_, node.slot)) index = {"(long long)" + index.text, index.range};
      place = std::string("mod_math::") + (options_.narrow ? "bytes_on(" : "on(") + place + ", " +
              clamped(index, table + "_last" + axis) + ", " + table + "_stride" + axis + ")";
    }
    if (searches) {
      const std::string axis = "[" + std::to_string(last) + "]";
      std::string step = table + "_stride" + axis;
      if (options_.narrow) step += " / (long long)sizeof(" + std::string(element.stored) + ")";
      return {table + " ? mod_math::upper_bound(" + place + ", " + table + "_last" + axis + " + 1, " + step + ", " +
                  values_[node.arg[last]].text + ") : 0",
              {0, every_i64.hi}};
    }
    std::string before(element.before);
    if (is_device() && element.dtype == f16) before = "mod_device::from_f16(";
    const std::string text = before + "mod_math::element(" + place + ")" + std::string(element.after);
    return {text, element.type == Type::integer ? of_elements(element.dtype) : Interval{}, element.dtype == i64};
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

  // Of integers that give one.
  Value integers(const Node& node) const {
    Value a = values_[node.arg[0]], b = values_[node.arg[node.arg_count > 1 ? 1 : 0]];
    const bool alone = node.arg_count == 1;
    const Computed all = of_integers(node.op, a.range, b.range);
    Value result{{}, all.range};
    result.wide = a.wide || b.wide || !is_narrow(result);
    // Operations of 64 bits widen what has 32.
    for (Value* x : {&a, &b})
      if (result.wide && !x->wide) x->text = "(long long)" + x->text;
    const auto infix = [&](const char* symbol) { result.text = a.text + symbol + b.text; };
    const auto call = [&](const char* function) {
      result.text = std::string("mod_math::") + function + "(" + a.text + (alone ? ")" : ", " + b.text + ")");
    };
    const bool known = b.range.lo == b.range.hi && b.range.lo > 0;  // divided by a literal
    const auto by = static_cast<std::uint64_t>(b.range.lo);
    switch (node.op) {
      case Op::add:
        all.plain ? infix(" + ") : call("add");
        break;
      case Op::sub:
        all.plain ? infix(" - ") : call("sub");
        break;
      case Op::mul:
        all.plain ? infix(" * ") : call("mul");
        break;
      case Op::neg:
        result.text = all.plain ? "-" + a.text : "mod_math::sub(0, " + a.text + ")";
        break;
      case Op::floor_div:  // an arithmetic shift rounds down, as does a division of what is not negative
        if (known && std::has_single_bit(by)) result.text = a.text + " >> " + std::to_string(std::countr_zero(by));
        else if (known && a.range.lo >= 0 && !result.wide)
          result.text = "(int)((unsigned)" + a.text + " / (unsigned)" + b.text + ")";
        else call("floor_div");
        break;
      case Op::mod:
        if (known && std::has_single_bit(by))
          result.text = a.text + " & " + integer_literal(static_cast<std::int64_t>(by) - 1, !result.wide);
        else if (known && a.range.lo >= 0 && !result.wide)
          result.text = "(int)((unsigned)" + a.text + " % (unsigned)" + b.text + ")";
        else call("floor_mod");
        break;
      case Op::min:
        call("min");
        break;
      case Op::max:
        call("max");
        break;
      case Op::abs:
        call("abs");
        break;
      case Op::sign:
        call("sign");
        break;
      default:
        problem::fail(Code::internal, "an operation on integers without a text: ", mods::info(node.op).name);
    }
    return result;
  }

  // Of floats that give one.
  Value reals(const Node& node) const {
    const std::string &a = values_[node.arg[0]].text, &b = values_[node.arg[node.arg_count > 1 ? 1 : 0]].text;
    const auto infix = [&](const char* symbol) { return Value{a + symbol + b}; };
    const auto call = [&](std::string_view function) {
      std::string text = std::string(function) + "(" + a;
      return Value{text + (node.arg_count > 1 ? ", " + b + ")" : ")")};
    };
    // By their names in the prelude of the device, or else in the library and the other prelude.
    const auto function = [&](std::string_view device, std::string_view library) {
      return is_device() ? call("mod_device::" + std::string(device)) : call(library);
    };
    switch (node.op) {
      case Op::add:
        return infix(" + ");
      case Op::sub:
        return infix(" - ");
      case Op::mul:
        if (const auto capped = times_tanh(node)) return {*capped};
        return infix(" * ");
      case Op::div:
        return is_device() ? quotient(node) : infix(" / ");
      case Op::min:
        return is_device() ? call("ptx::min") : call("mod_math::min");
      case Op::max:
        return is_device() ? call("ptx::max") : call("mod_math::max");
      case Op::neg:
        return {"-" + a};
      case Op::abs:
        return call("fabsf");
      case Op::sign:
        return call("mod_math::sign");
      case Op::exp:
        return function("exp", "expf");
      case Op::exp2:
        return function("exp2", "exp2f");
      case Op::log:
        return function("log", "logf");
      case Op::tanh:
        return function(options_.absolute_tanh ? "absolute_tanh" : "tanh", "tanhf");
      case Op::sigmoid:
        return function("sigmoid", "mod_math::sigmoid");
      case Op::sqrt:
        return function("sqrt", "sqrtf");
      case Op::rsqrt:
        return function("rsqrt", "mod_math::reciprocal_root");
      case Op::erf:
        return call("erff");
      case Op::pow:
        return call("powf");
      case Op::to_real:
        if (options_.narrow && options_.real_key)
          if (const auto exact = as_real(node.arg[0])) return {*exact};
        return {"(float)" + a};
      default:
        problem::fail(Code::internal, "an operation on reals without a text: ", mods::info(node.op).name);
    }
  }
  // A cap, a tanh(x / b) with a and b the same for all pairs: in one function, which calculates with them once.
  std::optional<std::string> times_tanh(const Node& node) const {
    if (!is_device() || !options_.absolute_tanh) return {};
    const auto is_leaf = [&](std::size_t i) {
      return graph_.nodes[i].op == Op::param || graph_.nodes[i].op == Op::constant;
    };
    for (const std::size_t which : {0, 1}) {
      const std::size_t a = node.arg[which];
      const Node& tanh = graph_.nodes[node.arg[1 - which]];
      if (!is_leaf(a) || tanh.op != Op::tanh) continue;
      const Node& inner = graph_.nodes[tanh.arg[0]];
      const bool divided = inner.op == Op::div && is_leaf(inner.arg[1]);
      return "mod_device::times_tanh(" + values_[a].text + ", " +
             (divided ? values_[inner.arg[0]].text + ", " + values_[inner.arg[1]].text
                      : values_[tanh.arg[0]].text + ", 1.0f") +
             ")";
    }
    return {};
  }
  Value quotient(const Node& node) const {
    const std::string &a = values_[node.arg[0]].text, &b = values_[node.arg[1]].text;
    const Node& divisor = graph_.nodes[node.arg[1]];
    if (divisor.op != Op::constant) return {"mod_device::ratio(" + a + ", " + b + ")"};
    // By a power of two: exact. By another number of a size whose reciprocal has all its bits: one more rounding.
    const float by = static_cast<float>(std::bit_cast<double>(divisor.value)), size = std::fabs(by);
    if (!(size >= 0x1p-120f && size <= 0x1p120f)) return {a + " / " + b};
    return {a + " * " + real_literal(1.0 / static_cast<double>(by), Reals::f32)};
  }

  Value operation(const Node& node) const {
    const Value &a = values_[node.arg[0]], &b = values_[node.arg[node.arg_count > 1 ? 1 : 0]],
                &c = values_[node.arg[node.arg_count > 2 ? 2 : 0]];
    const auto infix = [&](const char* symbol) { return Value{a.text + symbol + b.text}; };
    switch (node.op) {
      case Op::lt:
        return infix(" < ");
      case Op::le:
        return infix(" <= ");
      case Op::gt:
        return infix(" > ");
      case Op::ge:
        return infix(" >= ");
      case Op::eq:
        return infix(" == ");
      case Op::ne:
        return infix(" != ");
      case Op::logical_and:
        return infix(" && ");
      case Op::logical_or:
        return infix(" || ");
      case Op::logical_not:
        return {"!" + a.text};
      case Op::select:
        return {a.text + " ? " + b.text + " : " + c.text,
                {std::min(b.range.lo, c.range.lo), std::max(b.range.hi, c.range.hi)},
                b.wide || c.wide};
      default:
        break;
    }
    if (node.type == Type::integer) return integers(node);
    if (options_.reals == Reals::f32) return reals(node);
    return node.op == Op::neg ? Value{"-" + a.text} : operation_f64(node);
  }

  const Graph& graph_;
  std::span<const DType> dtypes_;
  ModOptions options_;
  std::vector<Interval> parameters_;  // narrow: what they are taken to be
  std::vector<Value> values_;
};

}  // namespace

std::string mod_function(std::string_view name, const Graph& graph, Type result, std::span<const DType> dtypes,
                         const ModOptions& options) {
  if (!is_identifier(name)) problem::fail(Code::internal, "a function cannot be called '", name, "'");
  if (dtypes.size() != graph.captures.size())
    problem::fail(Code::internal, "the expression reads ", graph.captures.size(), " captured tensors, given are ",
                  dtypes.size(), " types of them");
  const Type given = graph.nodes.empty() ? result : graph.nodes[graph.nodes.size() - 1].type;
  if (given != result || (graph.nodes.empty() && result == Type::integer))
    problem::fail(Code::internal, "the result of the expression is ", mods::name(given), ", not ", mods::name(result));
  const std::string struct_name = std::string(name) + "_arguments", position(position_type(options.narrow));
  std::string text = arguments_text(struct_name, graph, dtypes, options.reals);
  text += "static __device__ inline " + type_name(result, options.reals) + " " + std::string(name) + "(float s";
  for (const char* coordinate : {" b", " h", " q", " k"}) text += ", " + position + coordinate;
  if (options.real_key) text += ", float real_k";
  text += ", const " + struct_name + "& args) {\n";
  Writer writer(graph, dtypes, options);
  text += writer.statements() + "  return ";
  text += !graph.nodes.empty() ? writer.result() : result == Type::boolean ? "true" : "s";
  return text + ";\n}\n";
}

}  // namespace tessera::emit
