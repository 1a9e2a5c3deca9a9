// Mods in 32 bits and with a device's functions: the same integers as the interpreter's, and the errors that are
// stated.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "emit/mod_errors.hpp"
#include "emit/mod_ranges.hpp"
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

constexpr emit::ModOptions narrow{.narrow = true};
constexpr emit::ModOptions device{.functions = emit::Functions::device, .narrow = true};

std::string text_of(const char* expression, const emit::ModOptions& options, DType dtype = i32) {
  const Graph graph = mods::parse(expression);
  std::vector<DType> types;
  for (const Capture& capture : graph.captures)
    types.push_back(capture.type == Type::integer ? dtype : capture.type == Type::real ? f32 : b8);
  return emit::mod_function("f", graph, graph.nodes[graph.nodes.size() - 1].type, types, options);
}
std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

struct RandomMods {
  std::vector<Mod> mods;
  std::vector<std::vector<DType>> types;
};
// Graphs whose parameters and literals lie around the ends of 32 bits, among others.
RandomMods random_mods(std::size_t wanted, unsigned seed) {
  RandomMods made;
  std::mt19937 random(seed);
  static constexpr std::int64_t far = std::int64_t{1} << 29;
  static constexpr std::int64_t sizes[] = {
      0,        1,           -1,          2,       7,        64,
      1000,     -5,          far,         -far,    far - 1,  4 * far,
      -4 * far, 4 * far - 1, 2 * far + 1, 2 * far, -2 * far, std::numeric_limits<std::int64_t>::max()};
  while (made.mods.size() < wanted) {
    std::vector<std::uint32_t> numbers(300);
    for (std::uint32_t& n : numbers) n = static_cast<std::uint32_t>(random());
    tests::Choices choices(numbers);
    tests::Program program = tests::random_program(choices, 40);
    for (tests::Step& step : program)
      if (step.type == Type::integer && (step.op == Op::param || step.op == Op::constant))
        step.i = sizes[random() % std::size(sizes)];
    Builder builder;
    const std::vector<std::uint16_t> nodes = tests::build(builder, program);
    Mod mod = mod_of(builder, nodes.back());
    if (mod.graph.nodes.size() < 8 || !emit::fits_narrow(mod.graph)) continue;
    made.types.push_back(dtypes(tests::tables(mod.graph)));
    made.mods.push_back(std::move(mod));
  }
  return made;
}

TEST(NarrowText, RandomGraphsAgreeWithTheInterpreter) {
  const RandomMods random = random_mods(240, 23);
  const Compiled compiled(random.mods, random.types, narrow);
  static constexpr std::int64_t far = emit::nearby;
  static constexpr std::int64_t queries[] = {0, 1, 2, 3, 5, -3, 17, 1000, 123457, far, -far, far - 1, 1 - far};
  static constexpr std::int64_t keys[] = {0, 1, 2, 3, 4, 17, 1000, 123457, far, far - 1};
  static constexpr double scores[] = {0, -0.0, 1.5, -2.25, 80, -700, std::numeric_limits<double>::quiet_NaN()};
  std::mt19937 pick(11);
  const auto of = [&](const auto& some) { return some[pick() % std::size(some)]; };
  std::size_t narrowed = 0, wide = 0, params = 0;
  for (std::size_t i = 0; i < random.mods.size(); ++i) {
    const Graph& graph = random.mods[i].graph;
    const std::vector<Table> tables = tests::tables(graph);
    const std::string text = emit::mod_function("f", graph, random.mods[i].type, random.types[i], narrow);
    narrowed += count(text, "const int n"), wide += count(text, "const long long n");
    for (const Param& param : graph.params) params += param.type == Type::integer;
    for (int n = 0; n < 60; ++n) {
      Point at{of(keys), of(keys), of(queries), of(keys), of(scores)};
      const mods::Value got = compiled(i, graph, at, tables), expected = evaluate_f32(graph, at, tables);
      ASSERT_TRUE(same(random.mods[i].type, got, expected))
          << graph << "\n"
          << text << "\nat b " << at.b << " h " << at.h << " q " << at.q << " k " << at.k << " s " << at.s << ": "
          << got.i << " " << got.r << ", expected " << expected.i << " " << expected.r;
    }
  }
  EXPECT_GT(narrowed, 300u);
  EXPECT_GT(wide, 50u);
  EXPECT_GT(params, 30u);
}

// Comparisons of positions and widths, in all their forms: the widths have any value and are cut when they are packed.
TEST(NarrowText, WidthsOfAnySizeAreCutWithoutADifference) {
  static constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max(), far = emit::nearby;
  static constexpr std::int64_t widths[] = {0,           1,       -1,          5,           far - 1, far,
                                            2 * far - 1, 2 * far, 2 * far + 1, 2 * far + 2, 4 * far, -2 * far - 1,
                                            -2 * far,    most,    most - far,  -most - 1,   -most};
  static constexpr std::int64_t queries[] = {0, 5, far, -far, far - 1, 1 - far}, keys[] = {0, 4, far, far - 1};
  static constexpr const char* forms[] = {"q - param(1) <= k",       "k <= q + param(1)",       "k < param(1)",
                                          "-param(1) + q > k",       "param(1) == k - q",       "q - k != -param(1)",
                                          "k - (q - param(1)) >= 3", "(q - k) + param(1) > 255"};
  std::vector<Mod> all;
  for (const char* form : forms) all.push_back({mods::parse(form), Type::boolean});
  const Compiled compiled(all, std::vector<std::vector<DType>>(all.size()), narrow);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(emit::narrow_parameters(all[i].graph)[0].hi, emit::cut_parameters) << forms[i];
    for (const std::int64_t width : widths) {
      Builder builder;
      const Graph& form = all[i].graph;
      std::vector<std::uint16_t> node;  // the same graph with this width
      for (const Node& n : form.nodes) {
        if (n.op == Op::param) node.push_back(builder.param(width));
        else if (n.op == Op::constant) node.push_back(builder.constant(n.value));
        else if (n.arg_count == 0) node.push_back(builder.leaf(n.op));
        else if (n.arg_count == 1) node.push_back(builder.apply(n.op, node[n.arg[0]]));
        else node.push_back(builder.apply(n.op, node[n.arg[0]], node[n.arg[1]]));
      }
      const Graph graph = builder.finish(node.back());
      EXPECT_TRUE(emit::fits_narrow(graph));
      for (const std::int64_t q : queries)
        for (const std::int64_t k : keys) {
          const Point at{.q = q, .k = k};
          ASSERT_EQ(compiled(i, graph, at, {}).i, mods::evaluate(graph, at, {}).i) << graph << " q " << q << " k " << k;
        }
    }
  }
}

TEST(NarrowText, OtherParametersHaveToBeNear) {
  const auto fits = [](const std::string& text) { return emit::fits_narrow(mods::parse(text)); };
  for (const char* form : {"k // param(N) == q // param(3)", "min(k, param(N)) < 4", "(q - k) * param(N) < 7",
                           "k + param(N) < q + param(1)", "t[param(N)] < 2.0", "k < len:int[b] + param(N)"}) {
    const auto with = [&](const std::string& value) {
      std::string text(form);
      return text.replace(text.find('N'), 1, value);
    };
    EXPECT_TRUE(fits(with(std::to_string(emit::nearby)))) << form;
    EXPECT_FALSE(fits(with(std::to_string(emit::nearby + 1)))) << form;
    EXPECT_FALSE(fits(with(std::to_string(-emit::nearby - 1)))) << form;
  }
  EXPECT_TRUE(
      emit::fits_narrow((causal() & (sinks(std::int64_t{1} << 40) | window(std::int64_t{1} << 50, 3))).graph()));
  EXPECT_TRUE(emit::fits_narrow(chunked(1000).graph()));
  EXPECT_FALSE(emit::fits_narrow(chunked(std::int64_t{1} << 30).graph()));
}

TEST(NarrowText, DistancesAreCalculatedInFloats) {
  constexpr emit::ModOptions with_key{.functions = emit::Functions::device, .narrow = true, .real_key = true};
  const auto result = [&](const char* text) {
    const std::string all = text_of(text, with_key);
    return all.substr(all.find(") {"));
  };
  EXPECT_NE(result("s - 0.5 * real(q - k)").find("((float)q - real_k)"), std::string::npos);
  EXPECT_NE(result("s - real(abs(k - q))").find("fabsf((real_k - (float)q))"), std::string::npos);
  // Where not every step is exact, integers stay.
  EXPECT_EQ(result("s - real(k * q)").find("real_k"), std::string::npos);
  EXPECT_EQ(result("s - real(k // 3)").find("real_k"), std::string::npos);
}

TEST(ModErrors, ATanhMayBeAbsoluteWhereItIsScaledLittle) {
  const auto takes = [](const char* text) { return emit::takes_absolute_tanh(mods::parse(text)); };
  EXPECT_TRUE(takes("param(30.0) * tanh(s / param(30.0))"));
  EXPECT_TRUE(takes("128.0 * tanh(s) + real(q)"));
  EXPECT_TRUE(takes("8.0 * tanh(4.0 * tanh(s))"));
  EXPECT_FALSE(takes("129.0 * tanh(s)"));
  EXPECT_FALSE(takes("param(1000.0) * tanh(s / param(1000.0))"));
  EXPECT_FALSE(takes("100.0 * tanh(s) + 100.0 * tanh(s)"));
  EXPECT_FALSE(takes("s * tanh(s)"));
  EXPECT_FALSE(takes("exp(tanh(s))"));
  EXPECT_FALSE(takes("tanh(s) / 0.001"));
  EXPECT_FALSE(takes("s + 1.0"));
}

TEST(NarrowText, WhatIsProvedHas32Bits) {
  for (const char* inside :
       {"q - k <= 5", "(q - param(1023)) <= k & k <= (q + param(5))", "ids:int[q] == ids:int[k]", "k // 128 == q % 64",
        "abs(q - k) < 1000", "seen:bool[q // 16][k // 16]", "min(max(q - param(3), 0), k) < h * 3"})
    EXPECT_EQ(text_of(inside, narrow).substr(text_of(inside, narrow).find(") {")).find("long long"), std::string::npos)
        << text_of(inside, narrow);
  EXPECT_NE(text_of("q * k < 7", narrow).find("(long long)q * (long long)k"), std::string::npos);
  EXPECT_NE(text_of("ids:int[q] - ids:int[k] < 1", narrow).find("(long long)"), std::string::npos);
  EXPECT_NE(text_of("ids:int[q] == ids:int[k]", narrow, i64).find("const long long n"), std::string::npos);
  EXPECT_EQ(text_of("k % 7 == 2", narrow).find("floor_mod"), std::string::npos);  // keys are not negative
  EXPECT_NE(text_of("q % 7 == 2", narrow).find("floor_mod"), std::string::npos);
  EXPECT_EQ(text_of("q % 8 == q // 16", narrow).find("floor_"),
            std::string::npos);  // nor need powers of two a division
}

TEST(NarrowText, FarIndicesAndLongAxesAreClamped) {
  const std::array<std::int32_t, 6> numbers{3, 5, 8, 8, 13, 40};
  const char* forms[] = {"t:int[q] + 0", "t:int[t:int[q]]", "upper_bound(t, q) + t:int[k]", "t:int[q * k]"};
  std::vector<Mod> all;
  for (const char* form : forms) all.push_back({mods::parse(form), Type::integer});
  const Compiled compiled(all, std::vector<std::vector<DType>>(all.size(), {i32}), narrow);
  const Table tables[] = {{numbers.data(), i32, {6}, {1}},
                          {numbers.data() + 5, i32, {6}, {-1}},
                          {numbers.data(), i32, {std::int64_t{1} << 40}, {0}},  // longer than an index of 32 bits
                          {numbers.data(), i32, {0}, {1}}};
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const Table& table : tables)
      for (const std::int64_t q : {std::int64_t{-4}, std::int64_t{0}, std::int64_t{3}, std::int64_t{9}, emit::nearby})
        for (const std::int64_t k : {std::int64_t{0}, std::int64_t{2}, std::int64_t{5}, emit::nearby}) {
          const Point at{.q = q, .k = k};
          ASSERT_EQ(compiled(i, all[i].graph, at, {&table, 1}).i, mods::evaluate(all[i].graph, at, {&table, 1}).i)
              << forms[i] << " q " << q << " k " << k << " extent " << table.extent[0];
        }
}

// The functions of a device, with correctly rounded instructions below them: their own part of the errors.
struct Function {
  const char* text;
  double (*exact)(double);
  double from, to, relative, absolute;
};
void expect_errors(std::span<const Function> functions, const emit::ModOptions& options) {
  std::vector<Mod> all;
  for (const Function& f : functions) all.push_back({mods::parse(f.text), Type::real});
  const Compiled compiled(all, std::vector<std::vector<DType>>(all.size()), options);
  std::mt19937 random(5);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Function& f = functions[i];
    for (int n = 0; n < 20000; ++n) {
      const double part = static_cast<double>(random()) / 4294967296.0;
      const bool spread = f.from > 0 && n % 2 == 0;  // over the magnitudes
      const auto x =
          static_cast<float>(spread ? f.from * std::pow(f.to / f.from, part) : f.from + part * (f.to - f.from));
      const double got = compiled(i, all[i].graph, {.s = x}, {}).r, exact = f.exact(x);
      ASSERT_LE(std::fabs(got - exact), f.relative * std::fabs(exact) + f.absolute)
          << f.text << " of " << x << ": " << got << ", exact " << exact;
    }
  }
}

TEST(DeviceText, FunctionsKeepTheirErrors) {
  static const Function functions[] = {
      {"exp(s)", [](double x) { return std::exp(x); }, -80, 80, 1.1e-5, 1e-37},
      {"exp(s)", [](double x) { return std::exp(x); }, -1, 1, 6e-7, 0},
      {"exp2(s)", [](double x) { return std::exp2(x); }, -120, 120, 3e-7, 0},
      {"log(s)", [](double x) { return std::log(x); }, 1e-30, 1e30, 5e-7, 2.4e-7},
      {"sigmoid(s)", [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80, 1.2e-5, 1e-37},
      {"sqrt(s)", [](double x) { return std::sqrt(x); }, 0, 1e30, 3e-7, 0},
      {"rsqrt(s)", [](double x) { return 1 / std::sqrt(x); }, 1e-30, 1e30, 3e-7, 0},
      {"tanh(s)", [](double x) { return std::tanh(x); }, -12, 12, 2e-6, 0},
      {"tanh(s)", [](double x) { return std::tanh(x); }, -12, 12, 0, 4.8e-7},
      {"tanh(s)", [](double x) { return std::tanh(x); }, -1e-3, 1e-3, 3e-7, 0},
      {"param(30.0) * tanh(s / param(30.0))", [](double x) { return 30 * std::tanh(x / 30); }, -1e-20, 1e-20, 5e-7, 0},
      {"param(30.0) * tanh(s / param(30.0))", [](double x) { return 30 * std::tanh(x / 30); }, -90, 90, 2e-6, 0},
      {"s / 3.0", [](double x) { return x / 3; }, -1e6, 1e6, 1.8e-7, 0},
      {"s / 8.0", [](double x) { return x / 8; }, -1e6, 1e6, 0, 0},
      {"7.0 / s", [](double x) { return 7 / x; }, 1e-6, 1e6, 2.4e-7, 0},
  };
  expect_errors(functions, device);
}
TEST(DeviceText, ATanhWithAnAbsoluteError) {
  static const Function functions[] = {
      {"param(30.0) * tanh(s / param(30.0))", [](double x) { return 30 * std::tanh(x / 30); }, -400, 400, 0, 1.5e-5},
      {"50.0 * tanh(s)", [](double x) { return 50 * std::tanh(x); }, -60, 60, 0, 2.4e-5},
      {"1.0 - tanh(s)", [](double x) { return 1 - std::tanh(x); }, -12, 12, 0, 4.8e-7},
  };
  emit::ModOptions options = device;
  options.absolute_tanh = true;
  expect_errors(functions, options);
}

TEST(DeviceText, FunctionsOfWhatIsNoCommonNumber) {
  static constexpr double infinite = std::numeric_limits<double>::infinity(),
                          nan = std::numeric_limits<double>::quiet_NaN();
  static constexpr const char* forms[] = {"exp(s)",
                                          "exp2(s)",
                                          "log(s)",
                                          "tanh(s)",
                                          "sigmoid(s)",
                                          "sqrt(s)",
                                          "rsqrt(s)",
                                          "s / 30.0",
                                          "s / param(30.0)",
                                          "min(s, 3.0)",
                                          "max(s, 3.0)",
                                          "1.0 / s",
                                          "30.0 * tanh(s / 30.0)"};
  std::vector<Mod> all;
  for (const char* form : forms) all.push_back({mods::parse(form), Type::real});
  const Compiled compiled(all, std::vector<std::vector<DType>>(all.size()), device);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const double s : {0.0, infinite, -infinite, nan, 1e38, -1e38}) {
      const double got = compiled(i, all[i].graph, {.s = s}, {}).r;
      const double expected = evaluate_f32(all[i].graph, {.s = s}, {}).r;
      if (std::isfinite(expected)) EXPECT_NEAR(got, expected, 3e-7 * std::fabs(expected)) << forms[i] << " of " << s;
      else EXPECT_TRUE(same(got, expected)) << forms[i] << " of " << s << ": " << got << ", expected " << expected;
    }
}

TEST(DeviceText, CompilesForTheDevice) {
  const tests::Nvrtc nvrtc;
  if (!nvrtc) GTEST_SKIP() << "libnvrtc is not here";
  const RandomMods random = random_mods(60, 29);
  const std::string text = tests::text_of(random.mods, random.types, device);
  for (const char* architecture : {"compute_80", "compute_90a"})
    EXPECT_NE(nvrtc.compile(text, architecture).find("run_59"), std::string::npos) << architecture;
}

}  // namespace
}  // namespace tessera
