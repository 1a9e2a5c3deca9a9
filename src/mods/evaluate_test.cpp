// The interpreter against an independent evaluation, and the corners of integer arithmetic.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "mods/arithmetic.hpp"
#include "mods/graph.hpp"
#include "mods/testing/random_program.hpp"

namespace tessera {
namespace {

using mods::Builder;
using mods::Point;
using tests::Choices;

constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

// -0 and 0 differ, any NaN is any NaN.
bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

TEST(Evaluate, AgreesWithAnIndependentEvaluation) {
  std::size_t steps = 0;
  std::array<std::size_t, mods::op_count> seen{};
  tests::check_property("interpreter", 6000, [&](Choices& choices) {
    static constexpr std::int64_t positions[] = {0, 1, 5, -3, 1000, most, least, mods::farthest};
    static constexpr double scores[] = {0, 1.5, -2.25, 700, -700, 1e300, std::numeric_limits<double>::quiet_NaN()};
    const Point at{.b = choices.of(positions),
                   .h = choices.of(positions),
                   .q = choices.of(positions),
                   .k = choices.of(positions),
                   .s = choices.of(scores)};
    const tests::Program program = tests::random_program(choices, 30);
    Builder builder;
    const auto node = tests::build(builder, program);
    const auto expected = tests::meanings(program, at);
    for (std::size_t i = 0; i < program.size(); ++i) {
      Graph graph;
      try {
        graph = builder.finish(node[i]);
      } catch (const Error&) {
        continue;  // beyond the limits of a text: graph_test.cpp
      }
      const mods::Value got = graph.nodes.empty() ? mods::Value{1, 0} : mods::evaluate(graph, at, tests::tables(graph));
      if (program[i].type == Type::real) PROPERTY_HOLDS(same(got.r, expected[i].r));
      else PROPERTY_HOLDS(got.i == expected[i].i);
      ++steps, ++seen[static_cast<std::size_t>(program[i].op)];
    }
  });
  EXPECT_GT(steps, 30000u);
  for (std::size_t i = 0; i < mods::op_count; ++i) EXPECT_GT(seen[i], 100u) << mods::info(static_cast<Op>(i)).name;
}

TEST(Evaluate, IntegersSaturateAndDivisionRoundsDown) {
  struct Case {
    Op op;
    std::int64_t a, b, result;
  };
  const Case cases[] = {
      {Op::add, most, 1, most},
      {Op::add, least, -1, least},
      {Op::add, most, least, -1},
      {Op::sub, least, 1, least},
      {Op::sub, most, -1, most},
      {Op::sub, 0, least, most},
      {Op::mul, most, 2, most},
      {Op::mul, most, -2, least},
      {Op::mul, least, -1, most},
      {Op::mul, least, least, most},
      {Op::mul, least, 0, 0},
      {Op::floor_div, 7, 2, 3},
      {Op::floor_div, -7, 2, -4},
      {Op::floor_div, 7, -2, -4},
      {Op::floor_div, -7, -2, 3},
      {Op::floor_div, -6, 2, -3},
      {Op::floor_div, least, -1, most},
      {Op::floor_div, least, 1, least},
      {Op::floor_div, 5, 0, 0},
      {Op::floor_div, least, 0, 0},
      {Op::mod, 7, 2, 1},
      {Op::mod, -7, 2, 1},
      {Op::mod, 7, -2, -1},
      {Op::mod, -7, -2, -1},
      {Op::mod, -6, 2, 0},
      {Op::mod, least, -1, 0},
      {Op::mod, least, most, most - 1},
      {Op::mod, most, least, -1},
      {Op::mod, 5, 0, 0},
      {Op::mod, -1, most, most - 1},
  };
  for (const Case& c : cases) {
    Builder b;
    const Graph folded = b.finish(b.apply(c.op, b.constant(c.a), b.constant(c.b)));
    const Graph run = b.finish(b.apply(c.op, b.leaf(Op::query), b.leaf(Op::key)));
    EXPECT_EQ(folded.nodes[0].value, c.result) << c.a << " " << mods::info(c.op).name << " " << c.b;
    EXPECT_EQ(mods::evaluate(run, {.q = c.a, .k = c.b}).i, c.result)
        << c.a << " " << mods::info(c.op).name << " " << c.b;
  }
  Builder b;
  EXPECT_EQ(b.apply(Op::neg, b.constant(least)), b.constant(most));
  EXPECT_EQ(b.apply(Op::abs, b.constant(least)), b.constant(most));
}

TEST(Evaluate, RealsOfSpecialValues) {
  Builder b;
  const auto s = b.leaf(Op::score);
  const auto at = [&](std::uint16_t node, double score) { return mods::evaluate(b.finish(node), {.s = score}).r; };
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(at(b.apply(Op::min, s, b.constant(2.0)), nan), 2);
  EXPECT_EQ(at(b.apply(Op::max, b.constant(2.0), s), nan), 2);
  EXPECT_TRUE(std::isnan(at(b.apply(Op::sign, s), nan)));
  EXPECT_EQ(at(b.apply(Op::sign, s), -infinity), -1);
  EXPECT_EQ(at(b.apply(Op::sigmoid, s), -infinity), 0);
  EXPECT_EQ(at(b.apply(Op::sigmoid, s), -800), 0);
  EXPECT_EQ(at(b.apply(Op::rsqrt, s), 0), infinity);
  EXPECT_EQ(at(b.apply(Op::div, s, b.constant(0.0)), 1), infinity);
}

// The value at (q, k) of tensor[q][k], or of tensor[q].
mods::Value read(const mods::Table& table, Type type, int rank, std::int64_t q, std::int64_t k = 0) {
  Builder b;
  const std::uint16_t index[] = {b.leaf(Op::query), b.leaf(Op::key)};
  const Graph graph =
      b.finish(b.load(b.capture("tensor", type, rank), std::span(index).first(static_cast<std::size_t>(rank))));
  return mods::evaluate(graph, {.q = q, .k = k}, {&table, 1});
}

TEST(Evaluate, ReadsCapturedTensorsOfEveryType) {
  const float reals[] = {1.5f, -0.25f, std::numeric_limits<float>::infinity()};
  const BFloat16 brains[] = {BFloat16(3.0f), BFloat16(-2.5f)};
  const Float16 halves[] = {Float16(0.5f), Float16(-7.0f)};
  const std::int32_t ints[] = {-5, std::numeric_limits<std::int32_t>::max()};
  const std::int64_t longs[] = {least, most};
  const std::uint8_t bytes[] = {0, 255, 1};
  EXPECT_EQ(read({reals, f32, {3}, {1}}, Type::real, 1, 0).r, 1.5);
  EXPECT_EQ(read({reals, f32, {3}, {1}}, Type::real, 1, 2).r, std::numeric_limits<double>::infinity());
  EXPECT_EQ(read({brains, bf16, {2}, {1}}, Type::real, 1, 1).r, -2.5);
  EXPECT_EQ(read({halves, f16, {2}, {1}}, Type::real, 1, 1).r, -7);
  EXPECT_EQ(read({ints, i32, {2}, {1}}, Type::integer, 1, 0).i, -5);
  EXPECT_EQ(read({ints, i32, {2}, {1}}, Type::integer, 1, 1).i, std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(read({longs, i64, {2}, {1}}, Type::integer, 1, 0).i, least);
  EXPECT_EQ(read({bytes, u8, {3}, {1}}, Type::integer, 1, 1).i, 255);
  EXPECT_EQ(read({bytes, b8, {3}, {1}}, Type::boolean, 1, 0).i, 0);
  EXPECT_EQ(read({bytes, b8, {3}, {1}}, Type::boolean, 1, 1).i, 1) << "any byte but 0 is true";
}

TEST(Evaluate, ClampsAnIndexOutsideOfATensor) {
  const std::int32_t grid[] = {0, 1, 2, 10, 11, 12};
  const mods::Table rows{grid, i32, {2, 3}, {3, 1}}, columns{grid, i32, {3, 2}, {1, 3}};
  EXPECT_EQ(read(rows, Type::integer, 2, 1, 2).i, 12);
  EXPECT_EQ(read(columns, Type::integer, 2, 1, 1).i, 11);
  EXPECT_EQ(read(rows, Type::integer, 2, 2, 1).i, 11);
  EXPECT_EQ(read(rows, Type::integer, 2, most, most).i, 12);
  EXPECT_EQ(read(rows, Type::integer, 2, -1, 3).i, 2);
  EXPECT_EQ(read(rows, Type::integer, 2, least, least).i, 0);
  // Nothing there: zeros.
  EXPECT_EQ(read({grid, i32, {2, 0}, {3, 1}}, Type::integer, 2, 1, 1).i, 0);
  EXPECT_EQ(read({nullptr, i32, {2, 3}, {3, 1}}, Type::integer, 2, 1, 1).i, 0);
  Builder b;
  const std::uint16_t index[] = {b.leaf(Op::query)};
  EXPECT_FALSE(mods::evaluate_mask(b.finish(b.load(b.capture("seen", Type::boolean, 1), index)), {.q = 5}));
}

TEST(Evaluate, ManyNodesNeedNoMoreThanFew) {
  // 100 nodes pass the array that the interpreter keeps on its stack.
  Builder b;
  auto sum = b.leaf(Op::key);
  for (std::int64_t i = 1; i <= 100; ++i) sum = b.apply(Op::add, sum, b.constant(i));
  const Graph graph = b.finish(sum);
  ASSERT_GT(graph.nodes.size(), 64u);
  EXPECT_EQ(mods::evaluate(graph, {.k = 7}).i, 7 + 100 * 101 / 2);
}

}  // namespace
}  // namespace tessera
