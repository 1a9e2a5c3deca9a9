// Indices that no position brings into their tensor, and axes that are too short or too long: what is refused, in which
// words, and what is not.
#include "problem/indices.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mods/arithmetic.hpp"
#include "mods/graph.hpp"
#include "mods/testing/random_program.hpp"
#include "tessera/attention.hpp"
#include "unit/failure_of.hpp"

namespace tessera::problem {
namespace {

// 2 sequences, 4 query heads, 10 queries on 30 keys: q is 20 to 29.
Problem problem() {
  Problem p;
  p.batch = 2, p.heads_q = 4, p.heads_kv = 2, p.tokens_q = 10, p.tokens_kv = 30, p.dim = 8;
  return p;
}
Tensor shaped(DType dtype, std::vector<std::int64_t> shape) {
  static char memory[8];
  Tensor t;
  t.data = memory, t.dtype = dtype, t.rank = static_cast<int>(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) t.shape[i] = shape[i];
  return t;
}
Failure refused(const std::string& score, const std::vector<std::int64_t>& shape, const Problem& p = problem(),
                DType dtype = f32) {
  const Bindings bind{{"t", shaped(dtype, shape)}};
  return failure_of([&] { check_indices("score", parse_score(score).graph(), bind, p); });
}
std::string said(const std::string& score, const std::vector<std::int64_t>& shape, const Problem& p = problem(),
                 DType dtype = f32) {
  const Failure failure = refused(score, shape, p, dtype);
  EXPECT_TRUE(failure.code == Code::ok || failure.code == Code::invalid_shape) << failure.text;
  return failure.text;
}
void expect_says(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

TEST(Indices, AnAxisIndexedByACoordinateIsAsLongAsItReaches) {
  EXPECT_EQ(said("s + t[b]", {2}), "");
  EXPECT_EQ(said("s + t[h]", {4}), "");
  EXPECT_EQ(said("s + t[k]", {30}), "");
  EXPECT_EQ(said("s + t[b][h][q][k]", {2, 4, 30, 30}), "");
  EXPECT_EQ(said("s + t[b][h][q][k]", {1, 1, 1, 1}), "");  // one serves all
  expect_says(said("s + t[b]", {3}), "'t' is bound to f32[3]");
  expect_says(
      said("s + t[b]", {3}),
      ", and the score reads its axis 0 at b: it has 3 entries, there are 2 sequences; it has exactly as many, or 1 "
      "that serves all\n  (s + t[b])\n         ^");
  expect_says(said("s + t[h]", {2}), "at h: it has 2 entries, there are 4 query heads; it has exactly as many");
  expect_says(said("s + t[q][k]", {30, 29}),
              "reads its axis 1 at k: it has 29 entries, there are 30 keys; it has exactly as many, or 1 that serves "
              "all\n  (s + t[q][k])\n            ^");
  expect_says(said("s + t[q][k]", {30, 31}), "axis 1 at k: it has 31 entries");
}

TEST(Indices, AnAxisIndexedByQueriesMayBeLonger) {
  EXPECT_EQ(said("s + t[q]", {30}), "");
  EXPECT_EQ(said("s + t[q]", {300}), "");
  expect_says(said("s + t[q]", {29}),
              "axis 0 at q: it has 29 entries, there are 30 positions up to the last query's; it has at least as many");
  Problem p = problem();
  p.q_offset = 5;  // q is 5 to 14
  EXPECT_EQ(said("s + t[q]", {15}, p), "");
  expect_says(said("s + t[q]", {14}, p), "it has 14 entries, there are 15 positions");
  p.q_offset = -3;
  EXPECT_EQ(said("s + t[q]", {7}, p), "");
  expect_says(said("s + t[q]", {6}, p), "it has 6 entries, there are 7 positions");
}

TEST(Indices, IdsAreAsManyAsTheLongerOfQueriesAndKeys) {
  const std::string ids = "where(t:int[q] == t:int[k], s, 0)";
  EXPECT_EQ(said(ids, {30}, problem(), i32), "");
  expect_says(said(ids, {29}, problem(), i32), "it has 29 entries, there are 30");
  expect_says(said(ids, {31}, problem(), i32), "it has 31 entries, there are 30");
  Problem p = problem();
  p.q_offset = 25;  // q is 25 to 34
  EXPECT_EQ(said(ids, {35}, p, i32), "");
  expect_says(
      said(ids, {30}, p, i32),
      "axis 0 at q: it has 30 entries, there are 35 positions up to the last query's; it has exactly as many, or 1 "
      "that serves all\n  where((t:int[q] == t:int[k]), s, 0.0)\n               ^");
  p.q_offset = 0;
  EXPECT_EQ(said(ids, {30}, p, i32), "");
  expect_says(said(ids, {10}, p, i32), "\n  where((t:int[q] == t:int[k]), s, 0.0)\n                           ^");
}

TEST(Indices, OneThatNoPositionBringsIntoTheTensor) {
  expect_says(said("s + t[h][k - q + 600]", {4, 512}),
              ", and the score reads its axis 1 from 571 to 609 and nowhere else: its entries are 0 to 511\n"
              "  (s + t[h][((k - q) + 600)])\n"
              "            ^~~~~~~~~~~~~~~");
  expect_says(said("s + t[h][k - q - 30]", {4, 512}), "reads its axis 1 from -59 to -21 and");  // k - q from -29 to 9
  EXPECT_EQ(said("s + t[h][k - q - 9]", {4, 512}), "");
  EXPECT_EQ(said("s + t[h][k - q + 511]", {4, 512}), "");
  EXPECT_EQ(said("s + t[k // 2]", {3}), "");  // some of it is there, the rest is clamped
  expect_says(said("s + t[7]", {7}), "from 7 to 7 and nowhere else: its entries are 0 to 6");
  expect_says(said("s + t[param(-1)]", {7}), "from -1 to -1");
  expect_says(said("s + t[max(q, k) // 2 + 10]", {20}), "from 20 to 24");
  expect_says(said("s + real(t:int[40 + t:int[k] % 2])", {30}, problem(), i32), "from 40 to 41");
  expect_says(said("s + real(t:int[t:int[k] + 256])", {30}, problem(), u8), "from 256 to 511");
  EXPECT_EQ(said("s + real(t:int[t:int[k] + 256])", {30}, problem(), i32), "");
  Problem p = problem();
  p.q_offset = -50;  // every query before position 0
  EXPECT_EQ(said("s + t[q]", {30}, p), "");
  expect_says(said("s + t[q + 1]", {30}, p), "from -49 to -40 and nowhere else");
}

TEST(Indices, OfASearchOnlyThoseBeforeTheNumber) {
  EXPECT_EQ(said("real(upper_bound(t, q + 1000))", {5}, problem(), i32), "");
  EXPECT_EQ(said("real(upper_bound(t[b], k))", {2, 5}, problem(), i32), "");
  expect_says(said("real(upper_bound(t[b], k))", {3, 5}, problem(), i32),
              "axis 0 at b: it has 3 entries, there are 2 sequences; it has exactly as many, or 1 that serves all\n"
              "  real(upper_bound(t[b], k))\n"
              "                     ^");
  expect_says(said("real(upper_bound(t[h + 4], k))", {4, 5}, problem(), i32), "from 4 to 7");
  expect_says(said("s + real(t:int[upper_bound(t, q) + 9])", {9}, problem(), i32), "from 9 to 18");
}

TEST(Indices, WhatNoPositionAsksForMayLieWhereItLikes) {
  EXPECT_EQ(said("where(k >= 512, t[k - 512], s)", {100}), "");
  EXPECT_EQ(said("where(k < 512, s, t[k - 512])", {100}), "");
  EXPECT_NE(said("where(k >= 5, t[k - 512], s)", {100}), "");
  EXPECT_EQ(said("where(k >= 512 & t:bool[k - 512], 0.0, s)", {100}, problem(), b8), "");
  EXPECT_EQ(said("where(k < 512 | t:bool[k - 512], 0.0, s)", {100}, problem(), b8), "");
  EXPECT_NE(said("where(k >= 5 & t:bool[k - 512], 0.0, s)", {100}, problem(), b8), "");
  EXPECT_NE(said("where(t:bool[k - 512] & k < 512, 0.0, s)", {100}, problem(), b8), "");
}

TEST(Indices, OfPackedSequencesAndTheirOwnPositionsOnlyWhatIsSure) {
  Problem p = problem();
  p.packed = true;
  EXPECT_EQ(said("s + t[q][k]", {3, 3}, p), "");
  expect_says(said("s + t[b]", {3}, p), "there are 2 sequences");
  expect_says(said("s + t[k + 30]", {30}, p), "from 30 to 59");
  EXPECT_EQ(said("s + t[q + 1000]", {30}, p), "");
  p.q_offset = 4;
  expect_says(said("s + t[q + 1000]", {30}, p), "from 1004 to 1013");
  EXPECT_EQ(said("s + t[q]", {5}, p), "");
  p = problem(), p.offset_per_sequence = true;
  EXPECT_EQ(said("s + t[q]", {3}, p), "");
  EXPECT_EQ(said("s + t[q + 1000]", {3}, p), "");
  expect_says(said("s + t[k]", {31}, p), "there are 30 keys");
  // Of an axis that q may take further: at least the keys.
  const std::string ids = "where(t:int[q] == t:int[k], s, 0)";
  EXPECT_EQ(said(ids, {500}, p, i32), "");
  expect_says(said(ids, {29}, p, i32), "it has 29 entries, there are 30 keys; it has at least as many");
}

TEST(Indices, NothingIsReadWhereThereAreNoPairs) {
  for (std::int64_t Problem::*extent : {&Problem::batch, &Problem::tokens_q, &Problem::tokens_kv}) {
    Problem p = problem();
    p.*extent = 0;
    EXPECT_EQ(said("s + t[k] + t[900]", {7}, p), "");
  }
}

// On random expressions: what is refused is nowhere inside.
TEST(Indices, NothingIsRefusedThatSomePositionReads) {
  std::size_t refusals = 0, passed = 0;
  tests::check_property("indices", 4000, [&](tests::Choices& choices) {
    const tests::Program program = tests::random_program(choices, 25);
    mods::Builder builder;
    const auto node = tests::build(builder, program);
    std::size_t last = program.size();
    while (last > 0 && program[last - 1].type != Type::integer) --last;
    if (last == 0) return;
    Graph graph;
    try {
      graph = builder.finish_score(builder.load(builder.capture("slope", Type::real, 1), {&node[last - 1], 1})).graph();
    } catch (const Error&) {
      return;  // beyond the limits of a text
    }
    Problem p = problem();
    p.tokens_q = 3, p.tokens_kv = 5, p.q_offset = static_cast<std::int64_t>(choices.pick(9)) - 3;
    Bindings bind;
    const std::vector<mods::Table> tables = tests::tables(graph);
    if (graph.captures.size() > Bindings::most) return;
    for (std::size_t i = 0; i < tables.size(); ++i) {
      Tensor t;
      t.data = const_cast<void*>(tables[i].data), t.dtype = tables[i].dtype, t.rank = graph.captures[i].rank;
      for (int a = 0; a < t.rank; ++a) t.shape[a] = tables[i].extent[static_cast<std::size_t>(a)];
      bind.add({mods::name(graph.captures[i]), t});
    }
    const Failure failure = failure_of([&] { check_indices("score", graph, bind, p); });
    if (failure.text.find("nowhere else") == std::string::npos) {
      passed += failure.text.empty();
      return;
    }
    ++refusals;
    // The index that it points at: outside at every position.
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& n = graph.nodes[i];
      if (!mods::reads_capture(n.op)) continue;
      for (std::size_t a = 0; a < n.arg_count - std::size_t{n.op == Op::upper_bound}; ++a) {
        if (failure.text.find(mods::pointing(graph, i, a)) == std::string::npos) continue;
        mods::Builder part;
        part.import(graph);
        const std::uint16_t index = part.imported()[n.arg[a]];
        const Graph alone = part.finish(index);
        const std::vector<mods::Table> bound = tests::tables(alone);
        for (std::int64_t b = 0; b < p.batch; ++b)
          for (std::int64_t h = 0; h < p.heads_q; ++h)
            for (std::int64_t q = *p.q_offset; q < *p.q_offset + p.tokens_q; ++q)
              for (std::int64_t k = 0; k < p.tokens_kv; ++k) {
                const std::int64_t at = mods::evaluate(alone, {.b = b, .h = h, .q = q, .k = k, .s = 0.5}, bound).i;
                PROPERTY_HOLDS(at < 0 || at >= tables[n.slot].extent[a]);
              }
        return;
      }
    }
    PROPERTY_FAILS("it points at no index");
  });
  EXPECT_GT(refusals, 100u);
  EXPECT_GT(passed, 1000u);
}

TEST(Indices, ACallRefusesThem) {
  static float q[2 * 8], k[3 * 8], o[2 * 8];
  static std::int32_t ids[4] = {};
  Inputs in{.q = tensor(q, {1, 2, 1, 8}), .k = tensor(k, {1, 3, 1, 8}), .v = tensor(k, {1, 3, 1, 8})};
  const Outputs out{.o = tensor(o, {1, 2, 1, 8})};
  const Options options{.mask = documents("ids")};
  in.bind = {{"ids", tensor(ids, {4})}};
  for (const Failure& failure :
       {failure_of([&] { describe(in, out, options); }), failure_of([&] { attention(in, out, options); })}) {
    EXPECT_EQ(failure.code, Code::invalid_shape);
    expect_says(failure.text, "'ids' is bound to i32[4]");
    expect_says(failure.text, "the mask reads its axis 0 at q: it has 4 entries, there are 3");
  }
  in.bind = {{"ids", tensor(ids, {3})}};
  EXPECT_EQ(failure_of([&] { attention(in, out, options); }).code, Code::ok);
}

}  // namespace
}  // namespace tessera::problem
