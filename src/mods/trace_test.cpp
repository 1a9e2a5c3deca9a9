// Lambdas become graphs; what cannot be traced is refused, and leaves nothing behind.
#include "tessera/trace.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>

#include "mods/graph.hpp"
#include "mods/testing/random_program.hpp"

namespace tessera {
namespace {

template <class T>
std::string text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}
// What tracing it throws; "" if nothing.
template <class F>
std::string refusal(F trace) {
  try {
    trace();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_mod);
    return error.what();
  }
  return "";
}
template <class F>
std::string of_score(F function) {
  return text(score_mod(function));
}
bool contains(const std::string& whole, const std::string& part) { return whole.find(part) != std::string::npos; }

TEST(Trace, WritesDownWhatALambdaDoes) {
  EXPECT_EQ(mask_mod([](Expr, Expr, Expr q, Expr k) { return k <= q; }), causal());
  EXPECT_EQ(mask_mod([](Expr, Expr, Expr q, Expr k) { return (k <= q) & !((q - k >= 4) | (k == 2)) & (b8 == b8); }),
            parse_mask("(k <= q) & !((q - k >= 4) | (k == 2)) & true"));
  const ScoreMod mine = score_mod([](Expr s, Expr b, Expr h, Expr q, Expr k) {
    const auto table = capture("table", f32, 2);
    return 30.0f * tanh(s / 30.0f) + table[h][k - q + 512] * -real(b);
  });
  EXPECT_EQ(text(mine), "((30.0 * tanh((s / 30.0))) + (table[h][((k - q) + 512)] * (-real(b))))");
  EXPECT_EQ(mine, parse_score(text(mine)));
}

TEST(Trace, HasEveryOperation) {
  EXPECT_EQ(of_score([](Expr s, Expr, Expr, Expr, Expr k) { return s + k - 1 * s / 2; }),
            "((s + real(k)) - ((1.0 * s) / 2.0))");
  EXPECT_EQ(of_score([](Expr, Expr b, Expr h, Expr q, Expr k) { return real(floor_div(q, 3) % k + b * h); }),
            "real((((q // 3) % k) + (b * h)))");
  EXPECT_EQ(of_score([](Expr s, Expr, Expr, Expr q, Expr k) { return where(q > k, min(s, 1), max(0, abs(s))); }),
            "where((q > k), min(s, 1.0), max(0.0, abs(s)))");
  EXPECT_EQ(of_score([](Expr s, Expr, Expr, Expr, Expr) { return exp(exp2(log(tanh(sigmoid(sqrt(rsqrt(erf(s)))))))); }),
            "exp(exp2(log(tanh(sigmoid(sqrt(rsqrt(erf(s))))))))");
  EXPECT_EQ(of_score([](Expr s, Expr, Expr, Expr q, Expr) { return pow(sign(s), 2) + sign(q); }),
            "(pow(sign(s), 2.0) + real(sign(q)))");
  EXPECT_EQ(of_score([](Expr s, Expr, Expr, Expr, Expr) { return where((s != 1) & ((s < 2) | (s >= 3)), s, -s); }),
            "where(((s != 1.0) & ((s < 2.0) | (s >= 3.0))), s, (-s))");
  EXPECT_EQ(of_score([](Expr s, Expr, Expr, Expr q, Expr k) {
              Expr sum = 0;
              for (int i = 1; i <= 2; ++i) sum += s * i;
              sum -= 1, sum *= 2, sum /= 3;
              Expr on = true;
              on &= q < k, on |= k == 0;
              return where(on, sum, 0);
            }),
            "where(((q < k) | (k == 0)), (((((0.0 + (s * 1.0)) + (s * 2.0)) - 1.0) * 2.0) / 3.0), 0.0)");
}

TEST(Trace, NumbersBecomeWhatTheyAre) {
  const auto constant = [](auto value) {
    return score_mod([&](Expr s, Expr, Expr, Expr, Expr) { return where(s < 0, value, 1); });
  };
  EXPECT_EQ(text(constant(std::int8_t{-3})), "real(where((s < 0.0), -3, 1))");
  EXPECT_EQ(text(constant(std::uint32_t{4000000000u})), "real(where((s < 0.0), 4000000000, 1))");
  EXPECT_EQ(text(constant(std::numeric_limits<std::int64_t>::min())),
            "real(where((s < 0.0), -9223372036854775808, 1))");
  EXPECT_EQ(text(constant(0.1f)), "where((s < 0.0), 0.10000000149011612, 1.0)");
  EXPECT_EQ(text(constant(0.1)), "where((s < 0.0), 0.1, 1.0)");
  EXPECT_TRUE(contains(refusal([&] { constant(std::numeric_limits<std::uint64_t>::max()); }), "18446744073709551615"));
  EXPECT_TRUE(mask_mod([](Expr, Expr, Expr, Expr) { return true; }).is_full());
  EXPECT_EQ(text(mask_mod([](Expr, Expr, Expr, Expr) { return false; })), "false");
  static_assert(!std::is_convertible_v<Expr, bool> && !std::is_constructible_v<bool, Expr>);
  static_assert(!std::is_convertible_v<const char*, Expr> && !std::is_convertible_v<DType, Expr>);
}

TEST(Trace, ParametersAreRunTimeValues) {
  const auto near = [](std::int64_t width) {
    return mask_mod([&](Expr, Expr, Expr q, Expr k) { return q - k < param(width); });
  };
  EXPECT_EQ(near(3).graph().nodes, near(9).graph().nodes);
  EXPECT_FALSE(near(3) == near(9));
  EXPECT_EQ(text(score_mod([](Expr s, Expr, Expr, Expr, Expr) { return s * param(0.5f) + param(2); })),
            "((s * param(0.5)) + real(param(2)))");
}

TEST(Trace, AnIntegerBecomesTheRealThatAScoreIs) {
  EXPECT_EQ(of_score([](Expr, Expr, Expr, Expr q, Expr k) { return k - q; }), "real((k - q))");
  EXPECT_EQ(of_score([](Expr, Expr, Expr, Expr, Expr) { return 3; }), "3.0");
  EXPECT_TRUE(score_mod([](Expr s, Expr, Expr, Expr, Expr) { return s; }).is_identity());
}

TEST(Trace, CapturedTensorsAreExpressionsOnceTheyHaveTheirIndices) {
  const Mask mask = mask_mod([](Expr b, Expr, Expr q, Expr k) {
    const Captured ids = capture("ids", i64, 2), row = ids[b];
    return (row[q] == row[k]) & capture("seen", b8, 1)[k] & !capture("seen", b8, 1)[row[q] + 1];
  });
  EXPECT_EQ(text(mask), "(((ids:int[b][q] == ids:int[b][k]) & seen:bool[k]) & (!seen:bool[(ids:int[b][q] + 1)]))");
  EXPECT_EQ(mask.graph().captures.size(), 2u);
  EXPECT_EQ(of_score([](Expr, Expr, Expr h, Expr, Expr) {
              const auto t = capture("t", bf16, 1);
              return exp(t[h]) + 2 * t[0] - -t[1];
            }),
            "((exp(t[h]) + (2.0 * t[0])) - (-t[1]))");
}

TEST(Trace, SearchesCapturedTensors) {
  EXPECT_EQ(text(mask_mod([](Expr b, Expr, Expr q, Expr k) {
              const Captured offsets = capture("offsets", i64, 2);
              return (upper_bound(offsets[b], q) == upper_bound(offsets[b], k - 3)) & (upper_bound(offsets[0], 5) < k);
            })),
            "((upper_bound(offsets[b], q) == upper_bound(offsets[b], (k - 3))) & (upper_bound(offsets[0], 5) < k))");
  EXPECT_EQ(of_score([](Expr s, Expr, Expr, Expr q, Expr) { return s * upper_bound(capture("cu", i32, 1), q); }),
            "(s * real(upper_bound(cu, q)))");
}

TEST(Trace, RefusesWithTheExpressionAndItsPart) {
  struct Case {
    const char* what;
    std::function<void()> trace;
    std::string says;
  };
  using E = Expr;
  const Case cases[] = {
      {"a mask that is a number", [] { mask_mod([](E, E, E q, E k) { return q + k; }); },
       "this is an integer: compare it with something, as in k <= q\n  (q + k)\n  ^~~~~~~"},
      {"a score that is a boolean", [] { score_mod([](E s, E, E, E, E k) { return k < s; }); },
       "this is a boolean: where(condition, s, -inf) makes one\n  (real(k) < s)\n  ^~~~~~~~~~~~~"},
      {"a boolean in a sum", [] { mask_mod([](E, E, E q, E k) { return (q < k) + 1 < 2; }); },
       "'+' takes numbers, not a boolean: where(condition, 1, 0) makes one\n  ((q < k) + 1)\n           ^"},
      {"two integers divided", [] { mask_mod([](E, E, E q, E k) { return q / 2 < k; }); },
       "floor_div) for the floor, or make one of them a real, as in real(x) / y\n  (q / 2)\n     ^"},
      {"not of a number", [] { mask_mod([](E, E, E, E k) { return !k; }); }, "\n  (!k)\n   ^"},
      {"where by a number", [] { mask_mod([](E, E, E q, E k) { return where(k, q, q) < 3; }); },
       "not by an integer\n  where(k, q, q)\n  ^~~~~"},
      {"a real index", [] { score_mod([](E s, E, E h, E, E) { return capture("t", f32, 2)[h][s * 2]; }); },
       "index 1 of the captured tensor t[.][.] is a real: an index is an integer\n  t[.][(s * 2.0)]\n       ^~~~~~~~~"},
      {"one index too many", [] { score_mod([](E, E, E h, E, E) { return capture("t", f32, 1)[h][h]; }); },
       "t[.] takes 1 indices, this is one more"},
      {"one too few", [] { score_mod([](E s, E, E h, E, E) { return s + capture("t", f32, 2)[h]; }); },
       "t[.][.] takes 2 indices, not 1"},
      {"one name for two tensors",
       [] {
         score_mod([](E s, E, E, E, E) {
           s += capture("t", f32, 1)[0];
           return s * capture("t", i32, 1)[0];
         });
       },
       "'t' is used both as t[.] and as t:int[.]"},
      {"a search for a real",
       [] { mask_mod([](E b, E, E q, E) { return upper_bound(capture("t", i32, 2)[b], real(q)) > 1; }); },
       "upper_bound looks for a real in t:int[.][.]: it takes an integer\n  upper_bound(t[.], real(q))\n               "
       "     ^~~~~~~"},
      {"a search in reals", [] { mask_mod([](E, E, E q, E) { return upper_bound(capture("t", f32, 1), q) > 1; }); },
       "upper_bound searches t[.], whose elements are reals: it takes a tensor of integers"},
      {"a search with all indices",
       [] { mask_mod([](E, E, E q, E) { return upper_bound(capture("t", i32, 1)[q], q) > 1; }); },
       "along the last axis of t:int[.]: it takes the tensor with 0 indices, not 1"},
      {"a search with too few", [] { mask_mod([](E, E, E q, E) { return upper_bound(capture("t", i32, 2), q) > 1; }); },
       "it takes the tensor with 1 indices, not 0"},
      {"no type", [] { score_mod([](E, E, E, E, E) { return capture("t", DType::none, 1)[0]; }); }, "'t' has no type"},
      {"no name", [] { score_mod([](E, E, E, E, E) { return capture("a b", f32, 1)[0]; }); }, "'a b' does not fit"},
  };
  for (const Case& c : cases) {
    const std::string said = refusal(c.trace);
    EXPECT_TRUE(contains(said, c.says)) << c.what << ":\n" << said;
  }
  const std::string deep = refusal([] {
    mask_mod([](Expr, Expr, Expr, Expr k) {
      for (int i = 0; i < 600; ++i) k = -k * 2;
      return k;
    });
  });
  EXPECT_TRUE(contains(deep, "...")) << deep;
  EXPECT_LT(deep.size(), 2000u);
}

// What cannot be traced does not compile, and the compiler shows the line that says what to write instead.
TEST(Trace, ABranchOnAnExpressionDoesNotCompile) {
  namespace fs = std::filesystem;
  std::string pattern = (fs::temp_directory_path() / "tessera-branch-XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const fs::path folder = pattern, include = fs::path(__FILE__).parent_path() / "../../include";
  const auto said = [&](const std::string& result) -> std::string {
    std::ofstream(folder / "branch.cpp") << "#include <tessera/trace.hpp>\nusing namespace tessera;\n"
                                         << "Mask mask() { return mask_mod([](Expr, Expr, Expr q, Expr k) -> Expr { "
                                         << result << " }); }\n";
    const std::string command = "c++ -std=c++20 -fsyntax-only -I'" + include.string() + "' '" +
                                (folder / "branch.cpp").string() + "' > '" + (folder / "said").string() + "' 2>&1";
    const bool compiles = std::system(command.c_str()) == 0;
    std::ostringstream out;
    out << std::ifstream(folder / "said").rdbuf();
    return compiles ? "" : out.str();
  };
  EXPECT_EQ(said("return (k <= q) & (q != 3);"), "");
  for (const char* branch :
       {"if (k < 3) return true; return k <= q;", "return k < 3 ? Expr(true) : k <= q;", "return (k < 3) && (k <= q);",
        "return (k < 3) || (k <= q);", "while (k < 3) k += 1; return k < q;"}) {
    const std::string text = said(branch);
    EXPECT_TRUE(contains(text, "error")) << branch << "\n" << text;
    EXPECT_TRUE(contains(text, "instead of if and ?: where(), instead of && and || & and |")) << branch << "\n" << text;
  }
  fs::remove_all(folder);
}

TEST(Trace, AnExpressionBelongsToItsTrace) {
  std::optional<Expr> kept;
  const Mask mask = mask_mod([&](Expr, Expr, Expr q, Expr k) {
    kept = k;
    return k <= q;
  });
  EXPECT_TRUE(contains(refusal([&] { *kept + 1; }), "outside of a trace"));
  EXPECT_TRUE(
      contains(refusal([&] { mask_mod([&](Expr, Expr, Expr q, Expr) { return *kept <= q; }); }), "of another trace"));
  EXPECT_TRUE(contains(refusal([&] { mask_mod([&](Expr, Expr, Expr, Expr) { return *kept; }); }), "of another trace"));
  EXPECT_TRUE(contains(refusal([] { capture("t", f32, 1); }), "outside of a trace"));
  EXPECT_TRUE(contains(refusal([] { param(1); }), "outside of a trace"));
  EXPECT_TRUE(contains(refusal([] { Expr(1) + Expr(2); }), "outside of a trace"));
  // On another thread, while its own goes on.
  mask_mod([&](Expr, Expr, Expr q, Expr k) {
    std::thread([&] {
      EXPECT_TRUE(contains(refusal([&] { q + k; }), "outside of a trace"));
      EXPECT_TRUE(contains(refusal([&] { mask_mod([&](Expr, Expr, Expr, Expr) { return q < k; }); }), "another trace"));
      EXPECT_EQ(mask_mod([](Expr, Expr, Expr a, Expr b) { return b <= a; }), causal());
    }).join();
    return k <= q;
  });
}

TEST(Trace, TracesNest) {
  Mask inner;
  const Mask outer = mask_mod([&](Expr, Expr, Expr q, Expr k) {
    const Expr before = k - q;
    inner = mask_mod([&](Expr, Expr, Expr q2, Expr k2) {
      EXPECT_TRUE(contains(refusal([&] { q2 + k; }), "of another trace"));
      return k2 < q2 + param(5);
    });
    EXPECT_TRUE(window(3, 0) == window(3, 0));
    return before <= 0;
  });
  EXPECT_EQ(text(inner), "(k < (q + param(5)))");
  EXPECT_EQ(text(outer), "((k - q) <= 0)");
}

TEST(Trace, AMaskIsAnExpression) {
  const auto infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(of_score([&](Expr s, Expr, Expr, Expr, Expr) { return where(causal() & sinks(4), s, -infinity); }),
            "where(((k <= q) & (k < param(4))), s, -inf)");
  EXPECT_EQ(mask_mod([](Expr, Expr, Expr q, Expr k) { return (causal() & documents("ids")) | (k == q) | full(); }),
            full());
  EXPECT_EQ(mask_mod([](Expr, Expr, Expr q, Expr k) { return documents("ids") | (capture("ids", i32, 1)[q] > k); }),
            parse_mask("documents(ids) | (ids[q] > k)"));
  EXPECT_EQ(mask_mod([](Expr, Expr, Expr, Expr) { return causal(); }), causal());
  EXPECT_TRUE(contains(refusal([] { Expr{causal()}; }), "outside of a trace"));
}

TEST(Trace, AnExceptionLeavesNothingBehind) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_THROW(mask_mod([](Expr, Expr, Expr q, Expr k) -> Expr {
                   param(7), capture("left", f32, 2), q + k;
                   mask_mod([](Expr, Expr, Expr, Expr) -> Expr { throw std::runtime_error("of the user"); });
                   return q;
                 }),
                 std::runtime_error);
    EXPECT_TRUE(contains(refusal([] { param(1); }), "outside of a trace"));
    const Mask after = mask_mod([](Expr, Expr, Expr q, Expr k) { return capture("left", i32, 1)[q] == k; });
    EXPECT_EQ(after, parse_mask("left:int[q] == k"));
  }
}

TEST(Trace, AnExpressionPrints) {
  std::string shown;
  mask_mod([&](Expr, Expr, Expr q, Expr k) {
    shown = text(q + k) + " " + text(Expr(2.5)) + " " + text(Expr(true));
    return k <= q;
  });
  EXPECT_EQ(shown, "(q + k) 2.5 true");
}

// Random programs written with the operators are the graphs that the builder makes of them.
TEST(Trace, IsTheSameAsBuilding) {
  std::size_t traced = 0;
  tests::check_property("trace", 3000, [&](tests::Choices& choices) {
    const tests::Program program = tests::random_program(choices, 25);
    mods::Builder builder;
    const auto built = tests::build(builder, program);
    const auto write = [&](Expr s, Expr b, Expr h, Expr q, Expr k) -> Expr {
      std::vector<Expr> all;
      for (const tests::Step& step : program) {
        const auto x = [&](std::size_t i) -> const Expr& { return all[static_cast<std::size_t>(step.arg[i])]; };
        const auto next = [&]() -> Expr {
          switch (step.op) {
            case Op::constant:
              return step.type == Type::boolean ? Expr(step.i != 0) : step.type == Type::real ? step.r : Expr(step.i);
            case Op::param:
              return step.type == Type::real ? param(step.r) : param(step.i);
            case Op::batch:
              return b;
            case Op::head:
              return h;
            case Op::query:
              return q;
            case Op::key:
              return k;
            case Op::score:
              return s;
            case Op::add:
              return x(0) + x(1);
            case Op::sub:
              return x(0) - x(1);
            case Op::mul:
              return x(0) * x(1);
            case Op::div:
              return x(0) / x(1);
            case Op::mod:
              return x(0) % x(1);
            case Op::floor_div:
              return floor_div(x(0), x(1));
            case Op::min:
              return min(x(0), x(1));
            case Op::max:
              return max(x(0), x(1));
            case Op::neg:
              return -x(0);
            case Op::abs:
              return abs(x(0));
            case Op::sign:
              return sign(x(0));
            case Op::lt:
              return x(0) < x(1);
            case Op::le:
              return x(0) <= x(1);
            case Op::gt:
              return x(0) > x(1);
            case Op::ge:
              return x(0) >= x(1);
            case Op::eq:
              return x(0) == x(1);
            case Op::ne:
              return x(0) != x(1);
            case Op::logical_and:
              return x(0) & x(1);
            case Op::logical_or:
              return x(0) | x(1);
            case Op::logical_not:
              return !x(0);
            case Op::select:
              return where(x(0), x(1), x(2));
            case Op::exp:
              return exp(x(0));
            case Op::exp2:
              return exp2(x(0));
            case Op::log:
              return log(x(0));
            case Op::tanh:
              return tanh(x(0));
            case Op::sigmoid:
              return sigmoid(x(0));
            case Op::sqrt:
              return sqrt(x(0));
            case Op::rsqrt:
              return rsqrt(x(0));
            case Op::erf:
              return erf(x(0));
            case Op::pow:
              return pow(x(0), x(1));
            case Op::to_real:
              return real(x(0));
            case Op::load:
            case Op::upper_bound:
              break;
          }
          const tests::Captured& tensor = tests::tensors()[step.tensor];
          Captured element = capture(tensor.name, tensor.dtype, static_cast<int>(tensor.rank()));
          for (std::size_t i = 0; i + 1 < step.arg.size(); ++i) element = element[x(i)];
          const Expr& last = x(step.arg.size() - 1);
          return step.op == Op::load ? Expr(element[last]) : upper_bound(element, last);
        };
        all.push_back(next());
      }
      return all.back();
    };
    if (program.back().type == Type::boolean) {
      const auto graph = builder.finish(built.back());
      const ScoreMod chosen =
          score_mod([&](Expr s, Expr b, Expr h, Expr q, Expr k) { return where(write(s, b, h, q, k), s, 0); });
      mods::Builder again;
      const auto condition = again.import(graph);
      const auto s = again.leaf(Op::score);
      PROPERTY_HOLDS(chosen == again.finish_score(again.apply(Op::select, condition, s, again.constant(0.0))));
    } else {
      PROPERTY_HOLDS(score_mod(write) == builder.finish_score(built.back()));
    }
    ++traced;
  });
  EXPECT_GT(traced, 2500u);
}

}  // namespace
}  // namespace tessera
