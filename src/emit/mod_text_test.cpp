// Mods as text: compiled for the host and compared with the interpreter, and compiled with NVRTC where it is installed.
#include "emit/mod_text.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>
#include <vector>

#include "emit/testing/compiled_mods.hpp"
#include "emit/testing/float_interpreter.hpp"
#include "mods/testing/random_program.hpp"

namespace tessera {
namespace {

using mods::Builder;
using mods::Point;
using mods::Table;
using tests::Compiled;
using tests::dtypes;
using tests::evaluate_f32;
using tests::Mod;
using tests::mod_of;
using tests::same;
using tests::text_of;

constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

struct RandomMods {
  std::vector<Mod> mods;
  std::vector<std::vector<DType>> types;
  std::array<int, mods::op_count> seen{};
};
RandomMods random_mods(std::size_t count, std::size_t most_steps) {
  RandomMods made;
  std::mt19937 random(7);
  while (made.mods.size() < count) {
    std::vector<std::uint32_t> numbers(300);
    for (std::uint32_t& n : numbers) n = static_cast<std::uint32_t>(random());
    tests::Choices choices(numbers);
    Builder builder;
    const std::vector<std::uint16_t> nodes = tests::build(builder, tests::random_program(choices, most_steps));
    Mod mod = mod_of(builder, nodes.back());
    if (mod.graph.nodes.size() < 10) continue;  // little is left of many
    for (const Node& node : mod.graph.nodes) ++made.seen[static_cast<std::size_t>(node.op)];
    made.types.push_back(dtypes(tests::tables(mod.graph)));
    made.mods.push_back(std::move(mod));
  }
  return made;
}

TEST(ModText, RandomGraphsAgreeWithTheInterpreter) {
  const RandomMods random = random_mods(240, 40);
  for (std::size_t i = 0; i < mods::op_count; ++i) EXPECT_GE(random.seen[i], 5) << mods::info(static_cast<Op>(i)).name;
  const Compiled compiled(random.mods, random.types);
  static constexpr std::int64_t positions[] = {0, 1, 2, 3, 5, -3, 17, 1000, 123457, mods::farthest, -mods::farthest};
  static constexpr double scores[] = {0,
                                      -0.0,
                                      1.5,
                                      -2.25,
                                      0.3,
                                      80,
                                      -700,
                                      std::numeric_limits<double>::infinity(),
                                      std::numeric_limits<double>::quiet_NaN()};
  std::mt19937 pick(11);
  const auto position = [&] { return positions[pick() % std::size(positions)]; };
  int whole = 0;
  for (std::size_t i = 0; i < random.mods.size(); ++i) {
    const Graph& graph = random.mods[i].graph;
    const std::vector<Table> tables = tests::tables(graph);
    bool reals = false;
    for (const Node& node : graph.nodes) reals = reals || node.type == Type::real;
    for (int n = 0; n < 60; ++n) {
      Point at{position(), position(), position(), position(), scores[pick() % std::size(scores)]};
      at.s = static_cast<float>(at.s);
      const mods::Value got = compiled(i, graph, at, tables), expected = evaluate_f32(graph, at, tables);
      ASSERT_TRUE(same(random.mods[i].type, got, expected))
          << graph << "\nat b " << at.b << " h " << at.h << " q " << at.q << " k " << at.k << " s " << at.s << ": "
          << got.i << " " << got.r << ", expected " << expected.i << " " << expected.r;
      if (reals) continue;
      ASSERT_EQ(got.i, mods::evaluate(graph, at, tables).i) << graph;
      ++whole;
    }
  }
  EXPECT_GT(whole, 500);
}

TEST(ModText, CornersOfArithmetic) {
  static constexpr std::int64_t integers[] = {0,
                                              1,
                                              -1,
                                              2,
                                              -2,
                                              3,
                                              -7,
                                              10,
                                              1 << 31,
                                              -5000,
                                              least + 1,
                                              least,
                                              most - 1,
                                              most,
                                              std::int64_t{1} << 32,
                                              -(std::int64_t{1} << 32),
                                              std::int64_t{3037000500}};
  static constexpr double reals[] = {0,
                                     -0.0,
                                     1,
                                     -1,
                                     2.5,
                                     -1e30,
                                     1e-42,
                                     3e38,
                                     std::numeric_limits<double>::infinity(),
                                     -std::numeric_limits<double>::infinity(),
                                     std::numeric_limits<double>::quiet_NaN()};
  const auto run = [](const auto& values, std::span<const Op> ops, std::span<const Op> unary) {
    const auto graph_of = [](Op op, bool one, auto x, auto y) {
      Builder builder;
      const std::uint16_t a = builder.param(x), b = builder.param(y);
      return mod_of(builder, one ? builder.apply(op, a) : builder.apply(op, a, b));
    };
    std::vector<Mod> all;
    for (const Op op : ops) all.push_back(graph_of(op, false, values[0], values[0]));
    for (const Op op : unary) all.push_back(graph_of(op, true, values[0], values[0]));
    const Compiled compiled(all, std::vector<std::vector<DType>>(all.size()));
    for (std::size_t i = 0; i < all.size(); ++i)
      for (const auto x : values)
        for (const auto y : values) {
          const bool one = i >= ops.size();
          const Op op = one ? unary[i - ops.size()] : ops[i];
          const Graph graph = graph_of(op, one, x, y).graph;
          EXPECT_TRUE(same(all[i].type, compiled(i, graph, {}, {}), evaluate_f32(graph, {}, {}))) << graph;
        }
  };
  static constexpr Op whole[] = {Op::add, Op::sub, Op::mul, Op::floor_div, Op::mod, Op::min, Op::max,
                                 Op::lt,  Op::le,  Op::gt,  Op::ge,        Op::eq,  Op::ne};
  static constexpr Op real[] = {Op::add, Op::sub, Op::mul, Op::div, Op::min, Op::max, Op::pow,
                                Op::lt,  Op::le,  Op::gt,  Op::ge,  Op::eq,  Op::ne};
  static constexpr Op one[] = {Op::neg, Op::abs, Op::sign},
                      functions[] = {Op::neg, Op::abs, Op::sign, Op::sigmoid, Op::sqrt, Op::rsqrt, Op::erf};
  run(integers, whole, one);
  run(reals, real, functions);
}

TEST(ModText, PlainArithmeticStandsOnlyWhereNothingSaturates) {
  const auto text = [](const char* expression) {
    const Graph graph = mods::parse(expression);
    const std::vector<DType> types(graph.captures.size(), i32);
    return emit::mod_function("f", graph, graph.nodes[graph.nodes.size() - 1].type, types);
  };
  for (const char* plain : {"q - k <= 5", "3 * q + k >= 7", "16383 * (q - h) < k", "ids:int[k] * ids:int[q] == 4"})
    EXPECT_EQ(text(plain).find("mod_math::add"), text(plain).find("mod_math::mul")) << text(plain);
  EXPECT_NE(text("16384 * (q - h) < k").find("mod_math::mul("), std::string::npos);
  EXPECT_NE(text("q * k < 3").find("mod_math::mul("), std::string::npos);
  EXPECT_NE(text("q - param(1) < 3").find("mod_math::sub("), std::string::npos);
  EXPECT_NE(text("9223090561878065152 + q < k").find("mod_math::add("), std::string::npos);  // 2^63 - 2^48
  EXPECT_EQ(text("9223090561878065151 + q < k").find("mod_math::add("), std::string::npos);
}

TEST(ModText, EveryHalfIsWidenedExactly) {
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  const Graph graph = mods::parse("t[k]");
  const Compiled compiled({{graph, Type::real}, {graph, Type::real}}, {{f16}, {bf16}});
  for (std::size_t i = 0; i < 2; ++i) {
    const Table table{bits.data(), i == 0 ? f16 : bf16, {65536}, {1}};
    for (std::int64_t k = 0; k < 65536; ++k)
      ASSERT_TRUE(same(Type::real, compiled(i, graph, {.k = k}, {&table, 1}), mods::element(table, 1, &k)))
          << table.dtype << " " << k;
  }
}

TEST(ModText, TablesWithoutElementsAreZero) {
  const Graph graph = mods::parse("t[h][k]");
  const Compiled compiled({{graph, Type::real}}, {{f32}});
  const float five = 5;
  const Table tables[] = {{&five, f32, {1, 1}, {1, 1}}, {&five, f32, {1, 0}, {1, 1}}, {nullptr, f32, {1, 1}, {1, 1}}};
  EXPECT_EQ(compiled(0, graph, {.h = 3, .k = -9}, {&tables[0], 1}).r, 5);
  EXPECT_EQ(compiled(0, graph, {}, {&tables[1], 1}).r, 0);
  EXPECT_EQ(compiled(0, graph, {}, {&tables[2], 1}).r, 0);
}

TEST(ModText, ReadyMadeModsAreWithinTheAccuracyOfFloats) {
  const std::vector<Mod> all = {mod_of(softcap(30)), mod_of(alibi("slope")),          mod_of(relative_bias("table")),
                                mod_of(ScoreMod{}),  mod_of(causal() & window(7, 0)), mod_of(full())};
  const Compiled compiled(all, {{}, {f32}, {bf16}, {}, {}, {}});
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Graph& graph = all[i].graph;
    const std::vector<Table> tables = tests::tables(graph);
    for (std::int64_t k = 0; k < 300; ++k) {
      const Point at{0, k % 4, 150, k, 0.37 * static_cast<double>(k) - 50};
      const mods::Value got = compiled(i, graph, at, tables);
      if (all[i].type == Type::boolean) EXPECT_EQ(got.i != 0, mods::evaluate_mask(graph, at, tables)) << graph;
      else EXPECT_NEAR(got.r, mods::evaluate_score(graph, at, tables), 2e-5) << graph;
    }
  }
}

TEST(ModText, RefusesWhatDoesNotFit) {
  const Graph graph = mods::parse("ids:int[q] == ids:int[k]");
  const auto refused = [&](std::string_view name, Type type, std::vector<DType> types) -> std::string {
    try {
      emit::mod_function(name, graph, type, types);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused("f", Type::boolean, {i64}), "");
  EXPECT_NE(refused("f", Type::boolean, {f32}).find("'ids'"), std::string::npos);
  EXPECT_NE(refused("f", Type::boolean, {f32}).find("f32: it can be i32, i64, u8"), std::string::npos);
  EXPECT_NE(refused("f", Type::real, {i64}).find("a boolean, not a real"), std::string::npos);
  EXPECT_NE(refused("f()", Type::boolean, {i64}).find("'f()'"), std::string::npos);
  EXPECT_NE(refused("f", Type::boolean, {}).find("1 captured tensors, given are 0"), std::string::npos);
}

TEST(ModText, CompilesForTheDevice) {
  const tests::Nvrtc nvrtc;
  if (!nvrtc) GTEST_SKIP() << "libnvrtc is not here";
  const RandomMods random = random_mods(60, 40);
  const std::string text = text_of(random.mods, random.types);
  for (const char* architecture : {"compute_80", "compute_90"})
    EXPECT_NE(nvrtc.compile(text, architecture).find("run_59"), std::string::npos) << architecture;
}

}  // namespace
}  // namespace tessera
