// Typing, folding, sharing, the canonical order, the limits, and the verifier.
#include "mods/graph.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "mods/arithmetic.hpp"
#include "mods/testing/random_program.hpp"

namespace tessera {
namespace {

using mods::Builder;
using tests::Choices;

std::string text(const Graph& graph) {
  std::ostringstream out;
  out << graph;
  return out.str();
}
// What an expression of these leaves throws: "" if nothing.
std::string refusal(const std::function<void(Builder&)>& build, Code code = Code::invalid_mod) {
  Builder builder;
  try {
    build(builder);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "";
}
bool contains(const std::string& whole, const std::string& part) { return whole.find(part) != std::string::npos; }

TEST(Table, NamesEveryOperationOnce) {
  for (std::size_t i = 0; i < mods::op_count; ++i) {
    const mods::OpInfo& op = mods::info(static_cast<Op>(i));
    EXPECT_EQ(static_cast<std::size_t>(op.op), i);
    EXPECT_EQ(mods::find_call(op.name) == &op, op.arity > 0 && op.precedence == 0) << op.name;
    EXPECT_EQ(mods::is_reserved(op.name), op.op == Op::param || op.op == Op::upper_bound ||
                                              (op.op >= Op::batch && op.op <= Op::score) ||
                                              mods::find_call(op.name) == &op)
        << op.name;
    for (std::size_t j = 0; j < i; ++j) {
      const mods::OpInfo& other = mods::info(static_cast<Op>(j));
      EXPECT_FALSE(op.name == other.name && op.arity == other.arity) << op.name;
    }
  }
  EXPECT_EQ(mods::find_call("k"), nullptr);
  EXPECT_EQ(mods::find_call("+"), nullptr);
  EXPECT_EQ(mods::find_call(""), nullptr);
}

TEST(Typing, GivesTheTypeOfEveryRandomProgram) {
  tests::check_property("types", 2000, [](Choices& choices) {
    const tests::Program program = tests::random_program(choices);
    Builder builder;
    const auto node = tests::build(builder, program);
    for (std::size_t i = 0; i < program.size(); ++i) PROPERTY_HOLDS(builder.type(node[i]) == program[i].type);
  });
}

TEST(Typing, ConvertsIntegersBesideReals) {
  Builder b;
  const auto k = b.leaf(Op::key), s = b.leaf(Op::score);
  EXPECT_EQ(text(b.finish(b.apply(Op::add, s, k))), "(s + real(k))");
  EXPECT_EQ(text(b.finish(b.apply(Op::add, k, s))), "(real(k) + s)");
  EXPECT_EQ(text(b.finish(b.apply(Op::lt, s, b.constant(std::int64_t{2})))), "(s < 2.0)");
  EXPECT_EQ(text(b.finish(b.apply(Op::exp, k))), "exp(real(k))");
  EXPECT_EQ(text(b.finish(b.apply(Op::pow, k, b.leaf(Op::query)))), "pow(real(k), real(q))");
  const auto chosen = b.apply(Op::select, b.apply(Op::lt, k, b.leaf(Op::query)), k, s);
  EXPECT_EQ(text(b.finish(chosen)), "where((k < q), real(k), s)");
  EXPECT_EQ(text(b.finish(b.apply(Op::sub, s, b.param(std::int64_t{3})))), "(s - real(param(3)))");
}

TEST(Typing, RefusesWhatDoesNotFitAndSaysWhy) {
  struct Case {
    const char* what;
    std::function<void(Builder&)> build;
    std::vector<std::string> says;
  };
  const auto yes = [](Builder& b) { return b.constant(true); };
  const auto k = [](Builder& b) { return b.leaf(Op::key); };
  const auto s = [](Builder& b) { return b.leaf(Op::score); };
  const Case cases[] = {
      {"and of integers",
       [&](Builder& b) { b.apply(Op::logical_and, k(b), k(b)); },
       {"'&'", "a boolean", "an integer"}},
      {"or with a real", [&](Builder& b) { b.apply(Op::logical_or, yes(b), s(b)); }, {"'|'", "a boolean", "a real"}},
      {"not of an integer", [&](Builder& b) { b.apply(Op::logical_not, k(b)); }, {"'!'", "a boolean", "an integer"}},
      {"boolean + integer", [&](Builder& b) { b.apply(Op::add, yes(b), k(b)); }, {"'+'", "numbers", "where("}},
      {"real * boolean", [&](Builder& b) { b.apply(Op::mul, s(b), yes(b)); }, {"'*'", "numbers", "where("}},
      {"-boolean", [&](Builder& b) { b.apply(Op::neg, yes(b)); }, {"'-'", "numbers"}},
      {"boolean == boolean", [&](Builder& b) { b.apply(Op::eq, yes(b), yes(b)); }, {"'=='", "numbers"}},
      {"min of boolean", [&](Builder& b) { b.apply(Op::min, k(b), yes(b)); }, {"'min'", "numbers"}},
      {"integer / integer", [&](Builder& b) { b.apply(Op::div, k(b), k(b)); }, {"'/'", "//", "real(x)"}},
      {"integer / boolean", [&](Builder& b) { b.apply(Op::div, s(b), yes(b)); }, {"'/'", "a real", "a boolean"}},
      {"real // integer", [&](Builder& b) { b.apply(Op::floor_div, s(b), k(b)); }, {"'//'", "an integer", "a real"}},
      {"integer % real", [&](Builder& b) { b.apply(Op::mod, k(b), s(b)); }, {"'%'", "an integer", "a real"}},
      {"exp of boolean", [&](Builder& b) { b.apply(Op::exp, yes(b)); }, {"'exp'", "a real", "a boolean"}},
      {"pow of boolean", [&](Builder& b) { b.apply(Op::pow, s(b), yes(b)); }, {"'pow'", "a real", "a boolean"}},
      {"real of real", [&](Builder& b) { b.apply(Op::to_real, s(b)); }, {"'real'", "an integer", "a real"}},
      {"where by integer",
       [&](Builder& b) { b.apply(Op::select, k(b), k(b), k(b)); },
       {"'where'", "a boolean", "an integer"}},
      {"where of boolean and integer",
       [&](Builder& b) { b.apply(Op::select, yes(b), yes(b), k(b)); },
       {"'where'", "one type", "a boolean and an integer"}},
      {"where of boolean and real",
       [&](Builder& b) { b.apply(Op::select, yes(b), s(b), yes(b)); },
       {"'where'", "one type", "a real and a boolean"}},
  };
  for (const Case& c : cases) {
    const std::string said = refusal(c.build);
    for (const std::string& part : c.says) EXPECT_TRUE(contains(said, part)) << c.what << ": " << said;
  }
}

TEST(Builder, SharesEqualNodesAndFoldsConstants) {
  Builder b;
  const auto k = b.leaf(Op::key), q = b.leaf(Op::query), yes = b.constant(true), no = b.constant(false);
  EXPECT_EQ(b.apply(Op::sub, k, q), b.apply(Op::sub, k, q));
  EXPECT_NE(b.apply(Op::sub, k, q), b.apply(Op::sub, q, k));
  EXPECT_EQ(b.apply(Op::add, b.constant(std::int64_t{2}), b.constant(std::int64_t{3})), b.constant(std::int64_t{5}));
  EXPECT_EQ(b.apply(Op::exp, b.constant(std::int64_t{0})), b.constant(1.0));
  const auto test = b.apply(Op::le, k, q), other = b.apply(Op::lt, q, k);
  EXPECT_EQ(b.apply(Op::logical_and, test, yes), test);
  EXPECT_EQ(b.apply(Op::logical_and, no, test), no);
  EXPECT_EQ(b.apply(Op::logical_or, yes, test), yes);
  EXPECT_EQ(b.apply(Op::logical_or, test, no), test);
  EXPECT_EQ(b.apply(Op::logical_and, test, test), test);
  EXPECT_EQ(b.apply(Op::logical_not, b.apply(Op::logical_not, test)), test);
  EXPECT_EQ(b.apply(Op::select, yes, test, other), test);
  EXPECT_EQ(b.apply(Op::select, no, test, other), other);
  EXPECT_EQ(b.apply(Op::select, test, k, k), k);
  EXPECT_NE(b.constant(0.0), b.constant(-0.0));
  EXPECT_EQ(b.constant(std::numeric_limits<double>::quiet_NaN()),
            b.constant(-std::numeric_limits<double>::quiet_NaN()));
  EXPECT_NE(b.param(std::int64_t{3}), b.param(std::int64_t{3}));
}

TEST(Builder, SharesAmongManyNodes) {
  Builder b;
  std::vector<std::uint16_t> first;
  const auto k = b.leaf(Op::key);
  for (int round = 0; round < 2; ++round)
    for (std::int64_t i = 0; i < 1500; ++i) {
      const auto node = b.apply(Op::add, k, b.constant(i));
      if (round == 0) first.push_back(node);
      else ASSERT_EQ(node, first[static_cast<std::size_t>(i)]);
    }
}

TEST(Builder, FinishesInTheOrderOfTheText) {
  Builder one, other;
  // The same expression built in two orders, with something unused among it.
  const auto q = one.leaf(Op::query), k = one.leaf(Op::key), width = one.param(std::int64_t{5});
  const auto graph = one.finish(one.apply(Op::le, one.apply(Op::sub, k, width), q));
  other.param(std::int64_t{9}), other.leaf(Op::batch);
  const auto k2 = other.leaf(Op::key), width2 = other.param(std::int64_t{5});
  const auto left = other.apply(Op::sub, k2, width2);
  EXPECT_EQ(other.finish(other.apply(Op::le, left, other.leaf(Op::query))), graph);
  EXPECT_EQ(graph.nodes.size(), 5u);
  EXPECT_EQ(graph.params.size(), 1u);
}

TEST(Builder, AConstantTrueIsNoNodes) {
  Builder b;
  EXPECT_TRUE(b.finish(b.constant(true)).nodes.empty());
  EXPECT_TRUE(b.finish(b.apply(Op::lt, b.constant(std::int64_t{1}), b.constant(std::int64_t{2}))).nodes.empty());
  EXPECT_EQ(b.finish(b.constant(false)).nodes.size(), 1u);
  EXPECT_EQ(b.finish(b.constant(std::int64_t{1})).nodes.size(), 1u);
}

TEST(Builder, ImportingAndFinishingChangesNothing) {
  tests::check_property("import", 2000, [](Choices& choices) {
    const tests::Program program = tests::random_program(choices, 25);
    Builder builder;
    const Graph graph = builder.finish(tests::build(builder, program).back());
    mods::verify(graph);
    Builder again;
    const Graph copy = again.finish(again.import(graph));
    PROPERTY_HOLDS(copy == graph);
    PROPERTY_HOLDS(hash(copy) == hash(graph));
  });
}

std::uint16_t load_at(Builder& b, const char* name, Type type, const std::vector<std::uint16_t>& index) {
  return b.load(b.capture(name, type, static_cast<int>(index.size())), index);
}

TEST(Captures, OneNameIsOneTensor) {
  Builder b;
  const auto q = b.leaf(Op::query), k = b.leaf(Op::key), h = b.leaf(Op::head);
  EXPECT_EQ(b.capture("ids", Type::integer, 1), b.capture("ids", Type::integer, 1));
  EXPECT_NE(b.capture("ids", Type::integer, 1), b.capture("other", Type::integer, 1));
  EXPECT_EQ(load_at(b, "ids", Type::integer, {q}), load_at(b, "ids", Type::integer, {q}));
  EXPECT_NE(load_at(b, "ids", Type::integer, {q}), load_at(b, "ids", Type::integer, {k}));
  EXPECT_NE(load_at(b, "ids", Type::integer, {q}), load_at(b, "other", Type::integer, {q}));
  const auto four = [&](std::uint16_t last) { return load_at(b, "four", Type::real, {q, k, h, last}); };
  EXPECT_NE(four(q), four(k)) << "the last index is part of a node";
  EXPECT_NE(hash(b.finish(four(q))), hash(b.finish(four(k))));
  EXPECT_NE(hash(b.finish(load_at(b, "ids", Type::integer, {q}))),
            hash(b.finish(load_at(b, "other", Type::integer, {q}))));
}

TEST(Captures, StandInTheOrderOfTheText) {
  Builder one, other;
  one.capture("unused", Type::real, 2);
  const auto last = load_at(one, "late", Type::integer, {one.leaf(Op::key)});
  const auto first = load_at(one, "early", Type::integer, {one.leaf(Op::query)});
  const Graph graph = one.finish(one.apply(Op::eq, first, last));
  ASSERT_EQ(graph.captures.size(), 2u);
  EXPECT_EQ(mods::name(graph.captures[0]), "early");
  EXPECT_EQ(mods::name(graph.captures[1]), "late");
  EXPECT_EQ(text(graph), "(early:int[q] == late:int[k])");
  // Among captures that are here under other slots, and beside the same graph.
  other.capture("late", Type::integer, 1);
  const auto copy = other.import(graph);
  EXPECT_EQ(other.finish(copy), graph);
  EXPECT_EQ(other.import(graph), copy);
}

TEST(Captures, AnImportPutsAnotherScoreInItsPlace) {
  Builder b;
  const Graph outer = mods::parse("tanh(s) + slope[h] * s");
  const Graph whole = b.finish(b.import(outer, b.import(mods::parse("s * real(k) + slope[b]"))));
  EXPECT_EQ(text(whole), "(tanh(((s * real(k)) + slope[b])) + (slope[h] * ((s * real(k)) + slope[b])))");
  EXPECT_EQ(whole.captures.size(), 1u);
}

TEST(Captures, AreRefusedWithBothSides) {
  struct Case {
    const char* what;
    std::function<void(Builder&)> build;
    std::vector<std::string> says;
  };
  const auto q = [](Builder& b) { return b.leaf(Op::query); };
  const Case cases[] = {
      {"two types",
       [&](Builder& b) { b.capture("ids", Type::integer, 1), b.capture("ids", Type::real, 1); },
       {"'ids'", "ids:int[.] and", "as ids[.]"}},
      {"two ranks",
       [&](Builder& b) { b.capture("seen", Type::boolean, 1), b.capture("seen", Type::boolean, 2); },
       {"'seen'", "seen:bool[.] and", "seen:bool[.][.]"}},
      {"imported with another rank",
       [&](Builder& b) { b.import(mods::parse("slope[h]")), b.import(mods::parse("slope[b][h]")); },
       {"'slope'", "slope[.] and", "slope[.][.]"}},
      {"too few indices",
       [&](Builder& b) { b.load(b.capture("t", Type::real, 2), std::vector{q(b)}); },
       {"t[.][.]", "2 indices, not 1"}},
      {"a real index",
       [&](Builder& b) {
         load_at(b, "t", Type::real, {q(b), b.leaf(Op::score)});
       },
       {"index 1", "t[.][.]", "a real"}},
      {"a boolean index",
       [&](Builder& b) { load_at(b, "t", Type::real, {b.constant(true)}); },
       {"index 0", "a boolean"}},
      {"no axes", [&](Builder& b) { b.capture("t", Type::real, 0); }, {"'t'", "0 axes", "1 to 4"}},
      {"five axes", [&](Builder& b) { b.capture("t", Type::real, 5); }, {"5 axes", "1 to 4"}},
      {"no name", [&](Builder& b) { b.capture("", Type::real, 1); }, {"''", "1 to 23"}},
      {"a long name", [&](Builder& b) { b.capture("abcdefghijklmnopqrstuvwx", Type::real, 1); }, {"1 to 23"}},
      {"a digit first", [&](Builder& b) { b.capture("1st", Type::real, 1); }, {"'1st'", "begins with no digit"}},
      {"a dash", [&](Builder& b) { b.capture("a-b", Type::real, 1); }, {"'a-b'"}},
      {"a coordinate", [&](Builder& b) { b.capture("kv_idx", Type::real, 1); }, {"'kv_idx'", "meaning of its own"}},
      {"a function", [&](Builder& b) { b.capture("where", Type::real, 1); }, {"'where'", "meaning of its own"}},
  };
  for (const Case& c : cases) {
    const std::string said = refusal(c.build);
    for (const std::string& part : c.says) EXPECT_TRUE(contains(said, part)) << c.what << ": " << said;
  }
  EXPECT_EQ(refusal([](Builder& b) { b.capture("abcdefghijklmnopqrstuvw", Type::real, 4); }), "");
  const std::string many = refusal([](Builder& b) {
    for (std::size_t i = 0; i <= Builder::max_captures; ++i) b.capture("t" + std::to_string(i), Type::real, 1);
  });
  EXPECT_TRUE(contains(many, "more than 32")) << many;
}

TEST(Builder, HasLimits) {
  const auto nested = [](Builder& b, int depth) {
    auto node = b.leaf(Op::key);
    for (int i = 0; i < depth; ++i) node = b.apply(Op::neg, b.apply(Op::add, node, b.constant(std::int64_t{i})));
    return node;
  };
  EXPECT_EQ(refusal([&](Builder& b) { b.finish(nested(b, mods::max_depth / 2)); }), "");
  EXPECT_TRUE(
      contains(refusal([&](Builder& b) { b.finish(nested(b, mods::max_depth / 2 + 1)); }), "nests more than 500"));

  const auto doubled = [](Builder& b,
                          int times) {  // shared in the graph, repeated in the text: 2^(times + 1) - 1 places
    auto node = b.leaf(Op::key);
    for (int i = 0; i < times; ++i) node = b.apply(Op::add, node, node);
    return node;
  };
  EXPECT_EQ(refusal([&](Builder& b) { b.finish(doubled(b, 14)); }), "");
  EXPECT_TRUE(contains(refusal([&](Builder& b) { b.finish(doubled(b, 15)); }), "more than 32768 operations"));
  EXPECT_TRUE(contains(refusal([&](Builder& b) { b.finish(doubled(b, 200)); }), "more than 32768 operations"));

  const std::string nodes = refusal([](Builder& b) {
    for (std::size_t i = 0; i <= Builder::max_nodes; ++i) b.constant(static_cast<std::int64_t>(i));
  });
  EXPECT_TRUE(contains(nodes, "more than 4096")) << nodes;
  const std::string params = refusal([](Builder& b) {
    for (std::size_t i = 0; i <= Builder::max_params; ++i) b.param(std::int64_t{1});
  });
  EXPECT_TRUE(contains(params, "more than 255")) << params;
}

// (k <= (q + param(3))) by hand; the tests break it.
struct Raw {
  std::vector<Node> nodes = {{Op::key, Type::integer, 0, 0, {}, 0},
                             {Op::query, Type::integer, 0, 0, {}, 0},
                             {Op::param, Type::integer, 0, 0, {}, 0},
                             {Op::add, Type::integer, 0, 2, {1, 2}, 0},
                             {Op::le, Type::boolean, 0, 2, {0, 3}, 0}};
  std::vector<Param> params = {{Type::integer, 3}};
  std::vector<Capture> captures;
  Graph graph() const {
    Graph g;
    g.nodes = decltype(g.nodes)(nodes), g.params = decltype(g.params)(params);
    g.captures = decltype(g.captures)(captures);
    return g;
  }
  // ... & seen:bool[k][q]
  void read() {
    captures = {mods::make_capture("seen", Type::boolean, 2)};
    nodes.push_back({Op::load, Type::boolean, 0, 2, {0, 1}, 0});
    nodes.push_back({Op::logical_and, Type::boolean, 0, 2, {4, 5}, 0});
  }
};

TEST(Verify, AcceptsAGoodGraphAndNamesWhatIsWrongInABadOne) {
  EXPECT_EQ(text(Mask(Raw().graph()).graph()), "(k <= (q + param(3)))");
  struct Case {
    const char* what;
    std::function<void(Raw&)> damage;
    std::string says;
  };
  const Case cases[] = {
      {"unknown operation", [](Raw& r) { r.nodes[3].op = static_cast<Op>(200); },
       "node 3 of the graph has the operation 200"},
      {"argument after", [](Raw& r) { r.nodes[3].arg[1] = 4; }, "node 3 of the graph uses node 4"},
      {"argument itself", [](Raw& r) { r.nodes[3].arg[0] = 3; }, "uses node 3"},
      {"argument far away", [](Raw& r) { r.nodes[3].arg[0] = 0xffff; }, "uses node 65535"},
      {"too few arguments", [](Raw& r) { r.nodes[3].arg_count = 1; }, "has 1 arguments, '+' takes 2"},
      {"too many arguments", [](Raw& r) { r.nodes[0].arg_count = 3; }, "has 3 arguments, 'k' takes 0"},
      {"no such parameter", [](Raw& r) { r.nodes[2].slot = 1; }, "names parameter 1, the graph has 1"},
      {"parameter of another type", [](Raw& r) { r.params[0].type = Type::real; }, "claims to be an integer"},
      {"boolean parameter", [](Raw& r) { r.params[0].type = Type::boolean; }, "parameter 0"},
      {"wrong type inside", [](Raw& r) { r.nodes[3].type = Type::real; },
       "claims to be a real, but '+' gives an integer"},
      {"wrong type of the result", [](Raw& r) { r.nodes[4].type = Type::integer; }, "claims to be an integer"},
      {"types that do not fit", [](Raw& r) { r.nodes[4].op = Op::logical_and; }, "'&' takes a boolean"},
      {"a boolean of value 2",
       [](Raw& r) {
         r.nodes.push_back({Op::constant, Type::boolean, 0, 0, {}, 2});
       },
       "a boolean of value 2"},
      {"a mask that is a number", [](Raw& r) { r.nodes.pop_back(); }, "this expression is an integer"},
      {"a mask of the score",
       [](Raw& r) {
         r.nodes.push_back({Op::score, Type::real, 0, 0, {}, 0});
         r.nodes.push_back({Op::lt, Type::boolean, 0, 2, {5, 5}, 0});
       },
       "not the score s"},
      {"no such capture", [](Raw& r) { r.read(), r.nodes[5].slot = 1; }, "captured tensor 1, the graph has 1"},
      {"too few indices", [](Raw& r) { r.read(), r.nodes[5].arg_count = 1; }, "1 arguments, seen:bool[.][.] takes 2"},
      {"a boolean index", [](Raw& r) { r.read(), r.nodes[5].arg[1] = 4; }, "index 1 of the captured tensor seen"},
      {"a load of another type", [](Raw& r) { r.read(), r.nodes[5].type = Type::integer; }, "'load' gives a boolean"},
      {"a name with a tail", [](Raw& r) { r.read(), r.captures[0].name[20] = 'x'; }, "filled up with zeros"},
      {"a name without an end", [](Raw& r) { r.read(), r.captures[0].name.fill('x'); }, "1 to 23 letters"},
      {"a rank of 9", [](Raw& r) { r.read(), r.captures[0].rank = 9; }, "9 axes"},
      {"a type of 9", [](Raw& r) { r.read(), r.captures[0].type = static_cast<Type>(9); }, "neither booleans"},
      {"a name twice", [](Raw& r) { r.read(), r.captures.push_back(r.captures[0]); },
       "0 and 1 of the graph have one name"},
      {"too many captures", [](Raw& r) { r.read(), r.captures.resize(33, r.captures[0]); }, "at most 32"},
      {"too many nodes", [](Raw& r) { r.nodes.insert(r.nodes.begin(), 5000, r.nodes[0]); }, "at most 4096 and 255"},
      {"too many parameters", [](Raw& r) { r.params.resize(300); }, "at most 4096 and 255"},
  };
  for (const Case& c : cases) {
    Raw raw;
    c.damage(raw);
    try {
      Mask mask(raw.graph());
      ADD_FAILURE() << c.what << " was accepted: " << mask;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_mod);
      EXPECT_TRUE(contains(error.what(), c.says)) << c.what << ": " << error.what();
    }
  }
}

TEST(Verify, RandomDamageIsRefusedOrHarmless) {
  tests::check_property("damage", 5000, [](Choices& choices) {
    Raw raw;
    if (choices.pick(2)) raw.read();
    const std::uint32_t rounds = 1 + choices.pick(4);
    for (std::uint32_t i = 0; i < rounds; ++i) {
      Node& node = raw.nodes[choices.pick(raw.nodes.size())];
      switch (choices.pick(8)) {
        case 6:
          if (raw.captures.empty()) break;
          if (choices.pick(2)) raw.captures[0].rank = static_cast<std::uint8_t>(choices.pick(6));
          else raw.captures[0].name[choices.pick(24)] = "\0b$x"[choices.pick(4)];
          break;
        case 0:
          node.op = static_cast<Op>(choices.pick(mods::op_count + 3));
          break;
        case 1:
          node.type = static_cast<Type>(choices.pick(5));
          break;
        case 2:
          node.slot = static_cast<std::uint8_t>(choices.pick(3));
          break;
        case 3:
          node.arg_count = static_cast<std::uint8_t>(choices.pick(5));
          break;
        case 4:
          node.arg[choices.pick(4)] = static_cast<std::uint16_t>(choices.pick(7));
          break;
        case 5:
          node.value = choices.pick(3);
          break;
        default:
          raw.params[0].type = static_cast<Type>(choices.pick(5));
          break;
      }
    }
    text(raw.graph()), hash(raw.graph());  // defined for anything
    try {
      const Mask mask(raw.graph());
      mods::evaluate_mask(mask.graph(), {});
      PROPERTY_HOLDS(mods::parse(text(mask.graph())) == mask.graph());
    } catch (const Error& error) {
      PROPERTY_HOLDS(error.code() == Code::invalid_mod);
    }
  });
}

TEST(Verify, PutsAHandMadeGraphInOrder) {
  Raw raw;
  std::swap(raw.nodes[0], raw.nodes[1]);
  raw.nodes[3].arg = {0, 2, 77}, raw.nodes[4].arg = {1, 3, 5000};  // what is no argument does not matter
  EXPECT_EQ(Mask(raw.graph()), Mask(Raw().graph()));
  EXPECT_FALSE(raw.graph() == Raw().graph());
  EXPECT_EQ(text((raw = Raw(), raw.read(), Mask(raw.graph()).graph())), "((k <= (q + param(3))) & seen:bool[k][q])");
}

}  // namespace
}  // namespace tessera
