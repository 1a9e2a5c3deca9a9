// From a mask's graph to the text of its bounds. mods/bounds_build.cpp does the same with numbers: there the
// parameters, the batch and the head are known, here they are variables of the text.
#include "emit/bounds_text.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emit/bounds_sums.hpp"

namespace tessera::emit {
namespace {

class Writer : public SumWriter {
 public:
  Writer(const Graph& graph, std::string_view name, std::span<const DType> dtypes, bool with_sums)
      : SumWriter(name, dtypes, with_sums), graph_(graph) {
    translate();
  }
  std::string body() const { return body_ + "    return " + result_ + ";\n"; }

 private:
  // What signatures are known of an integer: of a load or of one number; else empty.
  std::string signature(const Sum& sum) const {
    if (sum.terms.empty()) {
      for (const Step& step : steps_)  // a uniform load
        if (!step.entry.empty() && sum.constant.text == step.variable + ".lo") return step.entry + ".signature";
      return "key_bit(" + sum.constant.text + ")";
    }
    return is_plain(sum) ? signature(sum.terms[0].step) : "";
  }
  std::string signature(std::uint32_t step) const {
    return steps_[step].entry.empty() ? "" : steps_[step].entry + ".signature";
  }
  static std::string comparison(Op op, const std::string& a, const std::string& b, const std::string& x,
                                const std::string& y) {
    std::string equality = "equal(" + a + ", " + b + ")";
    if (!x.empty() && !y.empty()) equality = "equal_by(" + equality + ", " + x + ", " + y + ")";
    switch (op) {
      case Op::lt:
        return "less(" + a + ", " + b + ")";
      case Op::le:
        return "less_or_equal(" + a + ", " + b + ")";
      case Op::gt:
        return "less(" + b + ", " + a + ")";
      case Op::ge:
        return "less_or_equal(" + b + ", " + a + ")";
      case Op::eq:
        return equality;
      default:
        return "negated(" + equality + ")";
    }
  }
  std::uint32_t truth_step(Op op, bool uniform, std::string definition) {
    Step step;
    step.op = op, step.type = Type::boolean, step.uniform = uniform, step.definition = std::move(definition);
    return add(std::move(step));
  }
  std::uint32_t compare(Op op, const Sum& a, const Sum& b) {
    const std::string x = signature(a), y = signature(b);
    std::string definition;
    if (const auto difference = combine(a, b, literal(-1)))
      definition = comparison(op, range(*difference), "point(0)", x, y);
    else definition = comparison(op, range(a), range(b), x, y);
    return truth_step(op, is_uniform(a) && is_uniform(b), std::move(definition));
  }

  // Where the condition is the same for all pairs, each part of a sum is chosen by itself.
  std::optional<Sum> chosen(std::uint32_t condition, const Sum& a, const Sum& b) {
    if (!with_sums_ || !steps_[condition].uniform) return {};
    const std::string by = steps_[condition].variable;
    assume(by + " != Truth::mixed");
    const auto choose = [&](const Scalar& x, const Scalar& y) {
      if (equal(x, y)) return x;
      return named(by + " == Truth::always ? " + x.text + " : " + y.text, std::max(x.reach, y.reach));
    };
    Sum result{choose(a.constant, b.constant), {}};
    std::size_t i = 0, j = 0;
    while (i < a.terms.size() || j < b.terms.size()) {
      const bool left = j == b.terms.size() || (i < a.terms.size() && a.terms[i].step <= b.terms[j].step);
      const bool right = i == a.terms.size() || (j < b.terms.size() && b.terms[j].step <= a.terms[i].step);
      const Term none{left ? a.terms[i].step : b.terms[j].step, literal(0), 0};
      const Term &x = left ? a.terms[i++] : none, &y = right ? b.terms[j++] : none;
      result.terms.push_back({none.step, choose(x.factor, y.factor), std::max(x.reach, y.reach)});
    }
    if (reach(result) > sum_limit) return {};
    return result;
  }

  void translate();
  void integer_node(const Node& node, std::vector<Sum>& sum, Sum& result);
  std::string real_operation(Op op, const std::vector<std::string>& arg) const;

  const Graph& graph_;
  std::string result_;
};

std::string Writer::real_operation(Op op, const std::vector<std::string>& arg) const {
  static constexpr std::pair<Op, const char*> functions[] = {
      {Op::neg, "opposite"},       {Op::abs, "absolute"},    {Op::sign, "sign"},
      {Op::sqrt, "square_root"},   {Op::log, "logarithm"},   {Op::rsqrt, "reciprocal_root"},
      {Op::exp, "exponential"},    {Op::sigmoid, "sigmoid"}, {Op::exp2, "exponential_of_two"},
      {Op::erf, "error_function"}, {Op::add, "sum"},         {Op::tanh, "hyperbolic_tangent"},
      {Op::sub, "difference"},     {Op::mul, "product"},     {Op::div, "ratio"},
      {Op::min, "smaller"},        {Op::max, "larger"},      {Op::pow, "power"},
      {Op::to_real, "real"},       {Op::select, "chosen"},
  };
  const auto* found = std::find_if(std::begin(functions), std::end(functions), [&](auto& f) { return f.first == op; });
  if (found == std::end(functions)) problem::fail(Code::internal, "an operation without bounds: ", mods::info(op).name);
  std::string text = std::string(found->second) + "(";
  for (std::size_t i = 0; i < arg.size(); ++i) text += (i ? ", " : "") + arg[i];
  return text + ")";
}

void Writer::integer_node(const Node& node, std::vector<Sum>& sum, Sum& result) {
  const auto arg = [&](std::size_t a) -> const Sum& { return sum[node.arg[a]]; };
  std::optional<Sum> exact;
  switch (node.op) {
    case Op::batch:
    case Op::head:
      result.constant = {{}, node.op == Op::batch ? "b" : "h", Wide{mods::farthest}};
      return;
    case Op::query:
    case Op::key:
      result = atom(node.op == Op::query ? query_step : key_step);
      return;
    case Op::add:
    case Op::sub:
      exact = combine(arg(0), arg(1), literal(node.op == Op::add ? 1 : -1));
      break;
    case Op::neg:
      exact = combine({}, arg(0), literal(-1));
      break;
    case Op::mul:
      for (const std::size_t a : {0, 1})
        if (!exact && arg(a).terms.empty()) exact = combine({}, arg(1 - a), arg(a).constant);
      break;
    default:
      break;
  }
  if (exact) {
    result = std::move(*exact);
    return;
  }
  std::vector<Sum> given;
  for (std::size_t a = 0; a < node.arg_count; ++a) given.push_back(arg(a));
  result = integer_step(node.op, given, node.slot);
}

void Writer::translate() {
  std::vector<Sum> sum(graph_.nodes.size());
  std::vector<std::uint32_t> place(graph_.nodes.size());  // of booleans and reals: the step
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    const auto arg = [&](std::size_t a) -> std::uint16_t { return node.arg[a]; };
    if (node.op == Op::param && node.type == Type::integer) {
      const std::string text = "args.p" + std::to_string(node.slot);
      sum[i].constant = {{}, text, with_sums_ ? assumed : anything};
      if (with_sums_) assume("within(" + text + ", " + literal(std::int64_t{assumed}).text + ")");
      continue;
    }
    if (node.op == Op::constant && node.type == Type::integer) {
      sum[i].constant = literal(node.value);
      continue;
    }
    if (node.type == Type::integer && node.op != Op::select) {
      integer_node(node, sum, sum[i]);
      continue;
    }
    const Type operands = node.arg_count > 0 ? graph_.nodes[arg(node.op == Op::select ? 1 : 0)].type : node.type;
    if (node.op >= Op::lt && node.op <= Op::ne && operands == Type::integer) {
      place[i] = compare(node.op, sum[arg(0)], sum[arg(1)]);
      continue;
    }
    if (node.op == Op::select && node.type == Type::integer)
      if (auto exact = chosen(place[arg(0)], sum[arg(1)], sum[arg(2)])) {
        sum[i] = std::move(*exact);
        continue;
      }
    Step step;
    step.op = node.op, step.type = node.type, step.uniform = true;
    std::vector<std::string> text;
    Wide far = 0;
    for (std::size_t a = 0; a < node.arg_count; ++a) {
      if (graph_.nodes[arg(a)].type == Type::integer) {
        text.push_back(range(sum[arg(a)]));
        step.uniform = step.uniform && is_uniform(sum[arg(a)]), far = std::max(far, reach(sum[arg(a)]));
      } else {
        text.push_back(steps_[place[arg(a)]].variable);
        step.uniform = step.uniform && steps_[place[arg(a)]].uniform;
      }
    }
    if (node.op == Op::load) {
      place[i] = load(node.type, node.slot, text, step.uniform);
      continue;
    }
    if (node.type == Type::boolean) {
      switch (node.op) {
        case Op::constant:
          step.definition = std::string("Truth::") + (node.value != 0 ? "always" : "never");
          break;
        case Op::logical_not:
          step.definition = "negated(" + text[0] + ")";
          break;
        case Op::logical_and:
          step.definition = "both(" + text[0] + ", " + text[1] + ")";
          break;
        case Op::logical_or:
          step.definition = "either(" + text[0] + ", " + text[1] + ")";
          break;
        case Op::select:
          step.definition = "chosen(" + text[0] + ", " + text[1] + ", " + text[2] + ")";
          break;
        default:  // of reals
          step.definition = comparison(node.op, text[0], text[1], signature(place[arg(0)]), signature(place[arg(1)]));
      }
    } else if (node.op == Op::constant) {
      const auto bits = std::to_string(static_cast<std::uint64_t>(node.value)) + "ULL";
      step.definition = "checked(real_of_bits((int64)" + bits + "), real_of_bits((int64)" + bits + "))";
    } else if (node.op == Op::param) {
      const std::string text_of = "args.p" + std::to_string(node.slot);
      step.definition = "checked(" + text_of + ", " + text_of + ")";
    } else {
      step.definition = real_operation(node.op, text), step.reach = far;
    }
    place[i] = add(std::move(step));
    if (node.type == Type::integer) sum[i] = atom(place[i]);
  }
  result_ = graph_.nodes.empty() ? "Truth::always" : steps_[place.back()].variable;
}

// For one captured tensor: its layout, and how its elements are read.
std::string capture_text(const std::string& name, std::size_t slot, const Capture& capture, DType dtype) {
  const std::string number = std::to_string(slot), table = "args.t" + number, arguments = name + "_cell_arguments";
  const std::size_t rank = capture.rank;
  const auto axis = [&](const char* what, std::size_t place) {  // of outer, inner, row, column
    return place + rank < 4 ? std::string() : table + what + "[" + std::to_string(place + rank - 4) + "]";
  };
  const auto extent = [&](std::size_t place) {
    const std::string last = axis("_last", place);
    return last.empty() ? "1" : last + " + 1";
  };
  const char* key = dtype == f32    ? "FloatKey"
                    : dtype == bf16 ? "Bf16Key"
                    : dtype == f16  ? "F16Key"
                    : dtype == b8   ? "BooleanKey"
                                    : "IntegerKey";
  const auto stride = [&](std::size_t place) {
    const std::string step = axis("_stride", place);
    return step.empty() ? "0" : step;
  };
  std::string text = "static __device__ SummaryLayout " + name + "_layout_" + number + "(const " + arguments;
  text +=
      "& args) {\n  return layout_of(" + extent(0) + ", " + extent(1) + ", " + extent(2) + ", " + extent(3) + ");\n}\n";
  const std::string elements = std::string("Elements<") + key + ", " + std::string(stored(dtype)) + ">";
  text += "static __device__ " + elements + " " + name + "_elements_" + number + "(const " + arguments;
  text += "& args, const SummaryNames& names) {\n  return {" + table + ", {" + stride(0) + ", " + stride(1) + ", ";
  text += stride(2) + ", " + stride(3) + "}, " + extent(1) + ", " + extent(2) + ", names};\n}\n";
  return text;
}

}  // namespace

std::string bounds_text(std::string_view given, const Graph& mask, std::span<const DType> dtypes) {
  const std::string name(given), arguments = name + "_cell_arguments";
  std::string text = "namespace bounds_math {\n";
  text += mod_function(name + "_cell", mask, Type::boolean, dtypes, {.reals = Reals::f64});
  for (std::size_t i = 0; i < mask.captures.size(); ++i) text += capture_text(name, i, mask.captures[i], dtypes[i]);
  const Writer sums(mask, name, dtypes, true);
  text += "struct " + name + " {\n  const " + arguments + "& args;\n  const SummaryView* tables;\n  int64 b, h;\n";
  text += "  bool sums = true;\n" + sums.fields();
  text +=
      "  __device__ " + name + "(int64 batch, int64 head, const " + arguments + "& given, const SummaryView* views)\n";
  text += "      : args(given), tables(views), b(batch), h(head) {\n" + sums.prologue() + "  }\n";
  if (sums.assumes()) {
    const Writer plain(mask, name, dtypes, false);
    text += "  LONG_FUNCTION Truth by_intervals(const Box& box) const {\n" + plain.body() + "  }\n";
  }
  text += "  LONG_FUNCTION Truth decide(const Box& box) const {\n";
  if (sums.assumes()) text += "    if (!sums) return by_intervals(box);\n";
  text += sums.body() + "  }\n  LONG_FUNCTION bool cell(int64 q, int64 k) const { return " + name;
  text += "_cell(0, b, h, q, k, args); }\n};\nstatic __device__ TileRuns " + name;
  text += "_runs(const Grid& grid, int64 query_tile, int64 b, int64 h, const " + arguments;
  text += "& args, const SummaryView* tables, int64 effort, Run* out, int64 limit) {\n  const " + name;
  return text +
         " mask(b, h, args, tables);\n  return runs_of_tile(mask, grid, query_tile, effort, out, limit);\n}\n}\n";
}

}  // namespace tessera::emit
