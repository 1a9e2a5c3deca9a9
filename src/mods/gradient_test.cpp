// Derivatives against finite differences on random graphs, against what they are on paper, and at their jumps.
#include "mods/gradient.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "mods/arithmetic.hpp"
#include "mods/graph.hpp"
#include "mods/testing/random_program.hpp"

namespace tessera {
namespace {

using mods::Builder;
using mods::Point;

std::string text(const Graph& graph) {
  std::ostringstream out;
  out << graph;
  return out.str();
}
std::string slope(const char* score) { return text(mods::derivative(parse_score(score).graph())); }
double slope_at(const char* score, double s) {
  return mods::evaluate(mods::derivative(parse_score(score).graph()), {.s = s}).r;
}

TEST(Gradient, AgreesWithFiniteDifferences) {
  std::size_t compared = 0;
  std::array<std::size_t, mods::op_count> seen{};
  tests::check_property("derivative", 30000, [&](tests::Choices& choices) {
    static constexpr double scores[] = {0.3, -0.7, 1.9, -3.1, 12.25};
    const Point at{.b = 1, .h = 2, .q = 5, .k = 3, .s = choices.of(scores)};
    tests::Program program = tests::random_program(choices, 20);
    while (!program.empty() && program.back().type != Type::real) program.pop_back();
    if (program.empty()) return;
    Builder builder;
    Graph graph, derivative;
    try {
      graph = builder.finish(tests::build(builder, program).back());
      derivative = mods::derivative(graph);
    } catch (const Error& error) {  // too long a text
      PROPERTY_HOLDS(std::string(error.what()).find("more than") != std::string::npos);
      return;
    }
    mods::verify_score(derivative);
    const auto tables = tests::tables(graph);
    // Two steps; they agree where there is no jump nearby. Not where an intermediate value is so large that its
    // rounding hides the step.
    constexpr double step = 1e-4;
    double largest = 0, difference[2];
    for (int i = 0; i < 2; ++i) {
      double end[2];
      for (int side = 0; side < 2; ++side) {
        Point moved = at;
        moved.s += (side ? 1 : -1) * step / (1 + i);
        end[side] = mods::evaluate(graph, moved, tables).r;
        const auto values = tests::meanings(program, moved);
        for (std::size_t n = 0; n < program.size(); ++n) {
          const Op op = program[n].op;
          if (op == Op::sqrt || op == Op::rsqrt || op == Op::log ||
              op == Op::pow)  // singular at 0, and a power below it
            if (values[static_cast<std::size_t>(program[n].arg[0])].r <= 0) return;
          if (!std::isfinite(values[n].r)) return;
          largest = std::max(largest, std::abs(values[n].r));
        }
      }
      difference[i] = (end[1] - end[0]) / (2 * step / (1 + i));
    }
    const double scale = 1 + std::abs(difference[1]);
    if (largest > 1e6 || std::abs(difference[0] - difference[1]) > 1e-6 * scale) return;
    const double got = mods::evaluate(derivative, at, tests::tables(derivative)).r;
    if (!(std::abs(got - difference[1]) <= 1e-4 * scale))
      PROPERTY_FAILS(text(graph) + "\n has by differences " + std::to_string(difference[1]) + ", not " +
                     std::to_string(got) + " = " + text(derivative));
    if (difference[1] == 0) return;
    ++compared;
    for (const Node& node : graph.nodes) ++seen[static_cast<std::size_t>(node.op)];
  });
  EXPECT_GT(compared, 300u);
  for (const Op op : {Op::add, Op::sub, Op::mul, Op::div, Op::min, Op::max, Op::neg, Op::abs, Op::select, Op::exp,
                      Op::exp2, Op::log, Op::tanh, Op::sigmoid, Op::sqrt, Op::rsqrt, Op::erf, Op::pow, Op::load})
    EXPECT_GT(seen[static_cast<std::size_t>(op)], 10u) << mods::info(op).name;
}

TEST(Gradient, OfEachOperationAloneAgreesWithFiniteDifferences) {
  const char* scores[] = {"s + 2 * s",
                          "3 - s",
                          "s * s * s",
                          "s / 7",
                          "7 / s",
                          "s / (s + 1)",
                          "min(s, 1)",
                          "max(1, s)",
                          "min(2, s * s)",
                          "-s",
                          "abs(s)",
                          "abs(-s * s)",
                          "exp(s)",
                          "exp2(s)",
                          "log(abs(s))",
                          "tanh(s)",
                          "erf(s)",
                          "sigmoid(2 * s)",
                          "sqrt(abs(s))",
                          "rsqrt(s*s)",
                          "pow(abs(s), 2.5)",
                          "pow(2, s)",
                          "pow(s, 3)",
                          "pow(s, -2)",
                          "pow(abs(s), s)",
                          "where(s < 1, s * s, 3 * s)",
                          "where(s < 1, 2, s)",
                          "sign(s) * s",
                          "softcap(30)",
                          "real(k) * tanh(s / 5)"};
  constexpr double step = 1e-6;
  for (const char* score : scores)
    for (const double s : {0.37, 1.7, -2.2, 9.0}) {
      const Graph graph = parse_score(score).graph(), derivative = mods::derivative(graph);
      const auto at = [&](double x) { return mods::evaluate(graph, {.k = 3, .s = x}).r; };
      const double expected = (at(s + step) - at(s - step)) / (2 * step);
      if (std::isnan(expected)) continue;
      EXPECT_NEAR(mods::evaluate(derivative, {.k = 3, .s = s}).r, expected, 1e-7 * (1 + 100 * std::abs(expected)))
          << score << " at " << s << ": " << text(derivative);
    }
}

TEST(Gradient, KeepsOnlyWhatDependsOnTheScore) {
  EXPECT_EQ(text(mods::derivative(ScoreMod().graph())), "1.0");
  EXPECT_EQ(slope("3.0"), "0.0");
  EXPECT_EQ(slope("k"), "0.0");
  EXPECT_EQ(slope("slope[h]"), "0.0");
  EXPECT_EQ(slope("where(s < 0, 1, 2)"), "0.0");
  EXPECT_EQ(slope("sign(s)"), "0.0");
  EXPECT_EQ(slope("alibi(slope)"), "1.0");
  EXPECT_EQ(slope("bias_tensor(bias, 4)"), "1.0");
  EXPECT_EQ(slope("relative_bias(table)"), "1.0");
  EXPECT_EQ(slope("2.0 * s + exp(slope[h])"), "2.0");
  EXPECT_EQ(slope("where(causal, s, -inf)"), "where((k <= q), 1.0, 0.0)");
  EXPECT_EQ(slope("tanh(s)"), "(1.0 - (tanh(s) * tanh(s)))");
  EXPECT_EQ(slope("s * slope[h]"), "slope[h]");
  // A run-time value stays one: another needs no other nodes.
  EXPECT_EQ(mods::derivative(softcap(30).graph()).nodes, mods::derivative(softcap(50).graph()).nodes);
}

TEST(Gradient, AtAJumpIsOneOfTheSides) {
  EXPECT_EQ(slope_at("min(s, 2 * s)", 0), 1);
  EXPECT_EQ(slope_at("max(s, 2 * s)", 0), 1);
  EXPECT_EQ(slope_at("min(2 * s, s)", 0), 2);
  EXPECT_EQ(slope_at("abs(s)", 0), 0);
  EXPECT_EQ(slope_at("pow(0.0, s)", 2), 0);
  EXPECT_EQ(slope_at("pow(s, 0.0)", 0), 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(slope_at("max(s, 3)", nan), 0) << "the number is taken";
  EXPECT_EQ(slope_at("where(s < 0, sqrt(s), s)", 4), 1) << "what is not chosen does not matter";
  EXPECT_EQ(slope_at("where(s < 0, s, sqrt(-s))", -4), 1);
}

TEST(Gradient, OfACapturedTensorIsItsContribution) {
  const auto by = [](const Graph& graph, const char* tensor) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i)
      if (graph.nodes[i].op == Op::load && mods::name(graph.captures[graph.nodes[i].slot]) == tensor)
        return text(mods::derivative(graph, i));
    return std::string("none");
  };
  EXPECT_EQ(by(alibi("slope").graph(), "slope"), "real((k - q))");
  EXPECT_EQ(by(bias_tensor("bias").graph(), "bias"), "1.0");
  EXPECT_EQ(by(parse_score("s * a[h] * b_[q]").graph(), "b_"), "(s * a[h])");
  EXPECT_EQ(by(parse_score("tanh(a[h])").graph(), "a"), "(1.0 - (tanh(a[h]) * tanh(a[h])))");
  const Graph graph = parse_score("s + k").graph();
  for (const std::size_t node : {std::size_t{1}, std::size_t{99}}) try {  // 1: the integer k
      mods::derivative(graph, node);
      ADD_FAILURE() << node;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_mod);
    }
}

// With the element in the score's place, its derivative is that by the score.
TEST(Gradient, ByAnElementIsTheSameAsByTheScore) {
  std::size_t compared = 0;
  tests::check_property("contribution", 1500, [&](tests::Choices& choices) {
    const tests::Program program = tests::random_program(choices, 12);
    if (program.back().type != Type::real) return;
    Builder builder;
    Graph of_score, of_element, expected;
    try {
      of_score = builder.finish(tests::build(builder, program).back());
      Builder b;
      const std::uint16_t head[] = {b.leaf(Op::head)};
      const auto element = b.load(b.capture("element", Type::real, 1), head);
      of_element = b.finish(b.import(of_score, element));
      expected = b.finish(b.import(mods::derivative(of_score), element));
    } catch (const Error&) {
      return;
    }
    for (std::size_t i = 0; i < of_element.nodes.size(); ++i) {
      const Node& node = of_element.nodes[i];
      if (node.op != Op::load || mods::name(of_element.captures[node.slot]) != "element") continue;
      const Graph derivative = mods::derivative(of_element, i);
      if (!(derivative == expected)) PROPERTY_FAILS(text(derivative) + "\n is not\n" + text(expected));
      ++compared;
    }
  });
  EXPECT_GT(compared, 200u);
}

}  // namespace
}  // namespace tessera
