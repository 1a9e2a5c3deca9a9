// From a mask's graph to the text of its bounds. mods/bounds_build.cpp does the same with numbers: there the
// parameters, the batch and the head are known, here they are variables of the text.
#include "emit/bounds_text.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "problem/fail.hpp"

namespace tessera::emit {
namespace {

using Wide = __int128;
constexpr Wide anything = Wide{1} << 63;  // the largest absolute value of an integer
// Values of q and k, and what is assumed of other integers: sums of a few of them times one another stay small. What is
// not known to be that small is checked where the mask is made.
constexpr Wide position = Wide{1} << 49, assumed = Wide{1} << 48;
constexpr Wide sum_limit = Wide{1} << 62;

// An integer that depends on neither q nor k, as an expression.
struct Scalar {
  std::optional<std::int64_t> literal{};
  std::string text{};
  Wide reach = 0;  // of its absolute value
};
Scalar literal(std::int64_t value) {
  const std::string digits =
      value == std::numeric_limits<std::int64_t>::min() ? "least_integer()" : "int64(" + std::to_string(value) + "LL)";
  return {value, digits, value < 0 ? -Wide{value} : Wide{value}};
}
bool is_zero(const Scalar& s) { return s.literal == 0; }

struct Term {
  std::uint32_t step = 0;
  Scalar factor;
  Wide reach = 0;  // of factor * step
};
// constant + the sum of terms, which are sorted by their steps.
struct Sum {
  Scalar constant = literal(0);
  std::vector<Term> terms;
};
bool equal(const Scalar& a, const Scalar& b) { return a.text == b.text; }
bool equal(const Sum& a, const Sum& b) {
  return equal(a.constant, b.constant) &&
         std::equal(a.terms.begin(), a.terms.end(), b.terms.begin(), b.terms.end(),
                    [](const Term& x, const Term& y) { return x.step == y.step && equal(x.factor, y.factor); });
}

// A variable of the text: an interval of integers or reals, or a truth.
struct Step {
  Op op{};
  Type type{};
  bool uniform = false;  // depends on neither q nor k
  Wide reach = anything;
  std::string variable, definition;
  std::string entry;                        // of a load: the variable of its summary's entry
  std::optional<Sum> divided{}, divisor{};  // of a quotient or remainder of a sum by what is uniform
};

class Writer {
 public:
  // with_sums: as described above; else plain intervals of every operation.
  Writer(const Graph& graph, std::string_view name, std::span<const DType> dtypes, bool with_sums)
      : graph_(graph), name_(name), dtypes_(dtypes), with_sums_(with_sums) {
    for (const Op op : {Op::query, Op::key}) {
      const std::string axis = op == Op::query ? "q" : "k";
      Step step;
      step.op = op, step.type = Type::integer, step.reach = position;
      step.definition = "IntegerRange{box." + axis + "_begin, box." + axis + "_end - 1}";
      add(std::move(step));
    }
    translate();
  }

  const std::string& fields() const { return fields_; }      // of what is uniform
  const std::string& prologue() const { return prologue_; }  // statements that compute them
  std::string body() const { return body_ + "    return " + result_ + ";\n"; }
  bool assumes() const { return assumes_; }

 private:
  static constexpr std::uint32_t query_step = 0, key_step = 1;

  static std::string type_name(Type type) {
    return type == Type::integer ? "IntegerRange" : type == Type::real ? "RealRange" : "Truth";
  }
  void define(bool uniform, const std::string& type, const std::string& variable, const std::string& value) {
    if (uniform && with_sums_) {
      fields_ += "  " + type + " " + variable + ";\n";
      prologue_ += "    " + variable + " = " + value + ";\n";
    } else {
      body_ += "    const " + type + " " + variable + " = " + value + ";\n";
    }
  }
  void assume(const std::string& condition) {
    assumes_ = true;
    prologue_ += "    sums = sums && " + condition + ";\n";
  }

  // The step of this definition: equal ones are one.
  std::uint32_t add(Step step) {
    for (std::uint32_t i = 0; i < steps_.size(); ++i)
      if (steps_[i].definition == step.definition && steps_[i].type == step.type) return i;
    const auto n = static_cast<std::uint32_t>(steps_.size());
    step.variable = "s" + std::to_string(n);
    if (step.op == Op::load) {
      step.entry = "e" + std::to_string(n);
      define(step.uniform, "SummaryEntry", step.entry, step.definition);
      const char* as = step.type == Type::integer ? "integers_of("
                       : step.type == Type::real  ? "reals_of("
                                                  : "truth_of(";
      define(step.uniform, type_name(step.type), step.variable, as + step.entry + ")");
    } else {
      define(step.uniform, type_name(step.type), step.variable, step.definition);
    }
    if (step.uniform && step.type == Type::integer && with_sums_) {
      assume(step.variable + ".lo == " + step.variable + ".hi");
      if (step.reach > assumed) assume("within(" + step.variable + ".lo, " + literal(std::int64_t{assumed}).text + ")");
      step.reach = std::min(step.reach, assumed);
    }
    steps_.push_back(std::move(step));
    return n;
  }

  // ---------------------------------------------------------------------------------------------------------- scalars
  Scalar named(const std::string& value, Wide reach) {
    const std::string known = "c" + std::to_string(constants_++);
    define(true, "int64", known, value);
    return {{}, known, reach};
  }
  static std::optional<std::int64_t> narrow(Wide x) {
    if (x > std::numeric_limits<std::int64_t>::max() || x < std::numeric_limits<std::int64_t>::min()) return {};
    return static_cast<std::int64_t>(x);
  }
  Scalar times(const Scalar& a, const Scalar& b) {
    if (is_zero(a) || is_zero(b)) return literal(0);
    if (a.literal == 1) return b;
    if (b.literal == 1) return a;
    if (a.literal && b.literal)
      if (const auto exact = narrow(Wide{*a.literal} * *b.literal)) return literal(*exact);
    return named("mul(" + a.text + ", " + b.text + ")", a.reach * b.reach);
  }
  Scalar plus(const Scalar& a, const Scalar& b) {
    if (is_zero(a)) return b;
    if (is_zero(b)) return a;
    if (a.literal && b.literal)
      if (const auto exact = narrow(Wide{*a.literal} + *b.literal)) return literal(*exact);
    return named("add(" + a.text + ", " + b.text + ")", a.reach + b.reach);
  }
  Scalar opposite(const Scalar& a) { return times(literal(-1), a); }

  // ------------------------------------------------------------------------------------------------------------- sums
  Sum atom(std::uint32_t n) const {
    const Step& step = steps_[n];
    if (step.uniform && with_sums_) return {{{}, step.variable + ".lo", step.reach}, {}};
    return {literal(0), {{n, literal(1), step.reach}}};
  }
  bool is_plain(const Sum& sum) const {
    return is_zero(sum.constant) && sum.terms.size() == 1 && sum.terms[0].factor.literal == 1;
  }
  // a + factor * b; `reach`: of the terms of factor * b where more is known of them.
  std::optional<Sum> combine(const Sum& a, const Sum& b, const Scalar& factor, std::optional<Wide> known = {}) {
    if (!with_sums_ || factor.reach > sum_limit) return {};
    const auto scaled = [&](const Term& term) -> std::optional<Term> {
      if (term.factor.reach > sum_limit || term.reach > anything) return {};
      Term result{term.step, times(factor, term.factor), known ? *known : factor.reach * term.reach};
      if (result.factor.reach > sum_limit) return {};
      return result;
    };
    if (b.constant.reach > anything) return {};
    Sum result;
    if (factor.reach * b.constant.reach > sum_limit && !(factor.literal == 1 || is_zero(b.constant))) return {};
    result.constant = plus(a.constant, times(factor, b.constant));
    std::size_t i = 0, j = 0;
    Wide reach = result.constant.reach;
    while (i < a.terms.size() || j < b.terms.size()) {
      const bool left = j == b.terms.size() || (i < a.terms.size() && a.terms[i].step <= b.terms[j].step);
      const bool right = i == a.terms.size() || (j < b.terms.size() && b.terms[j].step <= a.terms[i].step);
      std::optional<Term> term;
      if (right) {
        term = scaled(b.terms[j++]);
        if (!term) return {};
      }
      if (left && term) {
        const Term& other = a.terms[i++];
        term->factor = plus(other.factor, term->factor), term->reach += other.reach;
        if (term->factor.literal && !known)
          term->reach = (*term->factor.literal < 0 ? -Wide{*term->factor.literal} : Wide{*term->factor.literal}) *
                        steps_[term->step].reach;
      } else if (left) {
        term = a.terms[i++];
      }
      if (is_zero(term->factor)) continue;
      if (term->factor.reach > sum_limit || term->reach > sum_limit * 2) return {};
      reach += term->reach;
      result.terms.push_back(std::move(*term));
    }
    // A constant or an atom alone needs no calculation, so it may be as large as it likes.
    if (reach > sum_limit && !is_plain(result)) return {};
    return result;
  }
  // x % n is x - n * (x // n) where n is not 0: together with other terms that may be the better bound.
  std::optional<Sum> without_remainders(const Sum& sum, std::string& condition) {
    if (sum.terms.size() < 2) return {};
    Sum result = sum;
    bool changed = false;
    for (const Term& term : sum.terms) {
      const Step& step = steps_[term.step];
      if (step.op != Op::mod || !step.divided || step.divided->terms.empty()) continue;
      const Sum divided = *step.divided, by = *step.divisor;
      const Wide of = reach(divided);
      const Sum quotient = integer_step(Op::floor_div, {divided, by});
      std::optional<Sum> next = combine(result, atom(term.step), opposite(term.factor));
      if (next) next = combine(*next, divided, term.factor);
      // n * (x // n) is no further from 0 than |x| + |n|.
      if (next)
        next = combine(*next, quotient, opposite(times(term.factor, by.constant)),
                       term.factor.reach * (of + by.constant.reach));
      if (!next) return {};
      if (!by.constant.literal) condition += (condition.empty() ? "" : " && ") + by.constant.text + " != 0";
      result = std::move(*next), changed = true;
    }
    if (!changed) return {};
    return result;
  }
  Wide reach(const Sum& sum) const {
    Wide far = sum.constant.reach;
    for (const Term& term : sum.terms) far += term.reach;
    return std::min(far, anything);
  }
  bool is_uniform(const Sum& sum) const {
    return std::all_of(sum.terms.begin(), sum.terms.end(), [&](const Term& t) { return steps_[t.step].uniform; });
  }
  // The interval of a sum.
  std::string range(const Sum& sum, bool expand = true) {
    if (is_plain(sum)) return steps_[sum.terms[0].step].variable;
    std::string text = "point(" + sum.constant.text + ")", condition;
    std::optional<Sum> other;
    if (expand) other = without_remainders(sum, condition);
    for (const Term& term : sum.terms)
      text = "with_term(" + text + ", " + term.factor.text + ", " + steps_[term.step].variable + ")";
    if (!other) return text;
    const std::string better = "meet(" + text + ", " + range(*other, false) + ")";
    return condition.empty() ? better : "(" + condition + " ? " + better + " : " + text + ")";
  }

  // ------------------------------------------------------------------------------------------------------------ steps
  Sum integer_step(Op op, const std::vector<Sum>& arg, std::uint8_t slot = 0) {
    Step step;
    step.op = op, step.type = Type::integer;
    step.uniform = std::all_of(arg.begin(), arg.end(), [&](const Sum& sum) { return is_uniform(sum); });
    std::vector<std::string> text;
    for (const Sum& sum : arg) text.push_back(range(sum));
    const auto call = [&](const char* function) {
      return function + ("(" + text[0]) + (text.size() > 1 ? ", " + text[1] + ")" : ")");
    };
    const Wide a = arg.empty() ? 0 : reach(arg[0]), b = arg.size() > 1 ? reach(arg[1]) : 0;
    switch (op) {
      case Op::add:
        step.definition = call("sum"), step.reach = a + b;
        break;
      case Op::sub:
        step.definition = call("difference"), step.reach = a + b;
        break;
      case Op::neg:
        step.definition = call("opposite"), step.reach = a;
        break;
      case Op::mul:
        step.definition = equal(arg[0], arg[1]) ? "square(" + text[0] + ")" : call("product");
        step.reach = a == 0 || b <= anything / a ? a * b : anything;
        break;
      case Op::floor_div:
        step.definition = call("quotient"), step.reach = a;
        break;
      case Op::mod:
        step.definition = call("remainder"), step.reach = b;
        break;
      case Op::min:
        step.definition = call("smaller"), step.reach = std::max(a, b);
        break;
      case Op::max:
        step.definition = call("larger"), step.reach = std::max(a, b);
        break;
      case Op::abs:
        step.definition = call("absolute"), step.reach = a;
        break;
      case Op::sign:
        step.definition = call("sign"), step.reach = 1;
        break;
      case Op::load:
        return atom(load(Type::integer, slot, text, step.uniform));
      default:
        problem::fail(Code::internal, "an operation without bounds: ", mods::info(op).name);
    }
    step.reach = std::min(step.reach, anything);
    if ((op == Op::floor_div || op == Op::mod) && arg[1].terms.empty() && !is_zero(arg[1].constant))
      step.divided = arg[0], step.divisor = arg[1];
    return atom(add(std::move(step)));
  }

  std::uint32_t load(Type type, std::uint8_t slot, const std::vector<std::string>& index, bool uniform) {
    Step step;
    step.op = Op::load, step.type = type, step.uniform = uniform;
    const std::string number = std::to_string(slot);
    step.definition =
        "loaded(" + name_ + "_elements_" + number + "(args, tables[" + number + "].names), tables[" + number + "]";
    for (std::size_t i = index.size(); i < 4; ++i) step.definition += ", point(0)";
    for (const std::string& range : index) step.definition += ", " + range;
    step.definition += ")";
    switch (dtypes_[slot]) {
      case DType::i32:
        step.reach = Wide{1} << 31;
        break;
      case DType::u8:
        step.reach = 255;
        break;
      default:
        if (type == Type::integer && with_sums_) {  // elements of 64 bits
          const std::string entry = "all_elements(tables[" + number + "])", far = literal(std::int64_t{assumed}).text;
          if (!(assumed_slots_ >> slot & 1))
            assume("within(" + entry + ".lo, " + far + ") && within(" + entry + ".hi, " + far + ")");
          assumed_slots_ |= std::uint64_t{1} << slot, step.reach = assumed;
        }
    }
    return add(std::move(step));
  }

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
  std::string name_;
  std::span<const DType> dtypes_;
  bool with_sums_, assumes_ = false;
  std::vector<Step> steps_;
  std::string fields_, prologue_, body_, result_;
  int constants_ = 0;
  std::uint64_t assumed_slots_ = 0;
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
  text += mod_function(name + "_cell", mask, Type::boolean, dtypes, Reals::f64);
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
