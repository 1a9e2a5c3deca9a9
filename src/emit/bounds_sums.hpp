// Integers of the bounds' text: sums of positions and of what is no sum, and the variables that hold their intervals.
// Must not know: masks, devices.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mods/graph.hpp"
#include "problem/fail.hpp"

namespace tessera::emit {

using Wide = __int128;
inline constexpr Wide anything = Wide{1} << 63;  // the largest absolute value of an integer
// Values of q and k, and what is assumed of other integers: sums of a few of them times one another stay small. What is
// not known to be that small is checked where the mask is made.
inline constexpr Wide position = Wide{1} << 49, assumed = Wide{1} << 48;
inline constexpr Wide sum_limit = Wide{1} << 62;

// An integer that depends on neither q nor k, as an expression.
struct Scalar {
  std::optional<std::int64_t> literal{};
  std::string text{};
  Wide reach = 0;  // of its absolute value
};
inline Scalar literal(std::int64_t value) {
  const std::string digits =
      value == std::numeric_limits<std::int64_t>::min() ? "least_integer()" : "int64(" + std::to_string(value) + "LL)";
  return {value, digits, value < 0 ? -Wide{value} : Wide{value}};
}
inline bool is_zero(const Scalar& s) { return s.literal == 0; }

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
inline bool equal(const Scalar& a, const Scalar& b) { return a.text == b.text; }
inline bool equal(const Sum& a, const Sum& b) {
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

// Writes definitions of steps, each once: into fields and a prologue where they are uniform, else into a body.
class SumWriter {
 public:
  const std::string& fields() const { return fields_; }      // of what is uniform
  const std::string& prologue() const { return prologue_; }  // statements that compute them
  bool assumes() const { return assumes_; }

 protected:
  // with_sums: sums are kept as sums, and uniform integers are numbers; else plain intervals of every operation.
  SumWriter(std::string_view name, std::span<const DType> dtypes, bool with_sums)
      : name_(name), dtypes_(dtypes), with_sums_(with_sums) {
    for (const Op op : {Op::query, Op::key}) {
      const std::string axis = op == Op::query ? "q" : "k";
      Step step;
      step.op = op, step.type = Type::integer, step.reach = position;
      step.definition = "IntegerRange{box." + axis + "_begin, box." + axis + "_end - 1}";
      add(std::move(step));
    }
  }

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
      case Op::upper_bound: {
        step.definition = "searched(" + of_table(slot, text), step.reach = anything;
        if (!with_sums_) break;
        assume("within(tables[" + std::to_string(slot) + "].layout.columns, " + literal(std::int64_t{assumed}).text +
               ")");
        step.reach = assumed;
        break;
      }
      default:
        problem::fail(Code::internal, "an operation without bounds: ", mods::info(op).name);
    }
    step.reach = std::min(step.reach, anything);
    if ((op == Op::floor_div || op == Op::mod) && arg[1].terms.empty() && !is_zero(arg[1].constant))
      step.divided = arg[0], step.divisor = arg[1];
    return atom(add(std::move(step)));
  }

  // Arguments of loaded() and searched(): the table, and a range for each of four axes.
  std::string of_table(std::uint8_t slot, const std::vector<std::string>& range_of) const {
    const std::string number = std::to_string(slot);
    std::string text = name_ + "_elements_" + number + "(args, tables[" + number + "].names), tables[" + number + "]";
    for (std::size_t i = range_of.size(); i < 4; ++i) text += ", point(0)";
    for (const std::string& range : range_of) text += ", " + range;
    return text + ")";
  }
  std::uint32_t load(Type type, std::uint8_t slot, const std::vector<std::string>& index, bool uniform) {
    Step step;
    step.op = Op::load, step.type = type, step.uniform = uniform;
    const std::string number = std::to_string(slot);
    step.definition = "loaded(" + of_table(slot, index);
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

  std::string name_;
  std::span<const DType> dtypes_;
  bool with_sums_, assumes_ = false;
  std::vector<Step> steps_;
  std::string fields_, prologue_, body_;
  int constants_ = 0;
  std::uint64_t assumed_slots_ = 0;
};

}  // namespace tessera::emit
