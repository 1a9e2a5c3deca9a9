// The ready-made masks and score changes that read tensors or divide positions, each against its definition written
// out; their names in the text form; score changes as values.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "mods/graph.hpp"
#include "mods/testing/random_program.hpp"
#include "tessera/trace.hpp"
#include "unit/count_allocations.hpp"

namespace tessera {
namespace {

using mods::Point;
using mods::Table;

template <class T>
std::string text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}
bool contains(const std::string& whole, const std::string& part) { return whole.find(part) != std::string::npos; }

template <class T>
Table table(const std::vector<T>& data, std::vector<std::int64_t> extent) {
  Table t{data.data(), dtype_of<T>(), {}, {}};
  std::int64_t stride = 1;
  for (std::size_t i = extent.size(); i-- > 0; stride *= extent[i]) t.extent[i] = extent[i], t.stride[i] = stride;
  return t;
}
// The definition holds for every point of a box.
void expect_mask(const Mask& mask, const std::vector<Table>& tables, const std::function<bool(const Point&)>& defined,
                 std::int64_t positions = 40) {
  std::size_t on = 0, off = 0;
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t q = 0; q < positions; ++q)
        for (std::int64_t k = 0; k < positions; ++k) {
          const Point at{b, h, q, k, 0};
          const bool attends = mods::evaluate_mask(mask.graph(), at, tables);
          ASSERT_EQ(attends, defined(at)) << mask << " at " << b << " " << h << " " << q << " " << k;
          ++(attends ? on : off);
        }
  EXPECT_GT(on, 0u) << mask;
  EXPECT_GT(off, 0u) << mask;
}

TEST(ReadyMade, MasksAreWhatTheyAreDefinedAs) {
  const std::vector<std::int32_t> length = {5, 17};
  expect_mask(prefix_lm("len"), {table(length, {2})},
              [&](const Point& p) { return p.k <= p.q || p.k < length[static_cast<std::size_t>(p.b)]; });
  expect_mask(key_lengths("len"), {table(length, {2})},
              [&](const Point& p) { return p.k < length[static_cast<std::size_t>(p.b)]; });
  std::vector<std::int64_t> ids(80);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * i / 90);
  const auto id = [&](std::int64_t i) { return ids[static_cast<std::size_t>(i)]; };
  expect_mask(documents("ids"), {table(ids, {80})}, [&](const Point& p) { return id(p.q) == id(p.k); });
  expect_mask(documents("ids", 2), {table(ids, {2, 40})},
              [&](const Point& p) { return id(40 * p.b + p.q) == id(40 * p.b + p.k); });
  // With the ends or without them; a document of no token; tokens past the last offset.
  for (const std::vector<std::int32_t>& offsets : {std::vector<std::int32_t>{0, 5, 5, 17, 33}, {5, 17, 33}, {9}}) {
    const auto document = [&](std::int64_t i) {
      return std::count_if(offsets.begin(), offsets.end(), [&](std::int32_t first) { return first <= i; });
    };
    expect_mask(documents_from_offsets("offsets"), {table(offsets, {static_cast<std::int64_t>(offsets.size())})},
                [&](const Point& p) { return document(p.q) == document(p.k); });
  }
  const std::vector<std::int64_t> rows = {0, 11, 40, 0, 30, 31};
  expect_mask(documents_from_offsets("offsets", 2), {table(rows, {2, 3})}, [&](const Point& p) {
    const auto document = [&](std::int64_t i) {
      const auto first = rows.begin() + 3 * p.b;
      return std::upper_bound(first, first + 3, i) - first;
    };
    return document(p.q) == document(p.k);
  });
  expect_mask(chunked(7), {}, [](const Point& p) { return p.q / 7 == p.k / 7; });
  expect_mask(sinks(4), {}, [](const Point& p) { return p.k < 4; });
  expect_mask(dilated(3), {}, [](const Point& p) { return std::abs(p.q - p.k) % 3 == 0; });
}

TEST(ReadyMade, ATreeSeesItsAncestors) {
  // A prefix of 10 tokens, then drafts: two chains and a fork.
  const std::vector<std::int32_t> parents = {0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 10, 13, 13, 15, 12};
  const auto follows = [&](std::int64_t q, std::int64_t k, int steps) {
    for (int i = 0; i < steps; ++i) {
      if (q == k) return true;
      q = parents[static_cast<std::size_t>(q)];
    }
    return q == k;
  };
  const auto n = static_cast<std::int64_t>(parents.size());
  for (const int depth : {1, 3, 40})
    expect_mask(
        tree("parents", depth), {table(parents, {n})}, [&](const Point& p) { return follows(p.q, p.k, depth); }, n);
  EXPECT_EQ(text(tree("p", 2)), "(((q == k) | (p:int[q] == k)) | (p:int[p:int[q]] == k))");
}

TEST(ReadyMade, NeighborhoodsKeepTheirSizeAtTheEdges) {
  for (const auto& [rows, columns, tall, wide] :
       {std::array{5, 8, 3, 3}, std::array{6, 6, 5, 1}, std::array{4, 10, 4, 2}, std::array{1, 40, 1, 7}}) {
    const auto near = [](std::int64_t from, std::int64_t to, std::int64_t grid, std::int64_t size) {
      // The window of `size` cells inside the grid whose middle is nearest.
      std::int64_t best = 0;
      for (std::int64_t first = 0; first + size <= grid; ++first)
        if (std::abs(first + size / 2 - from) < std::abs(best + size / 2 - from)) best = first;
      return best <= to && to < best + size;
    };
    const std::int64_t w = columns;
    expect_mask(
        neighborhood_2d(rows, columns, tall, wide), {},
        [&](const Point& p) { return near(p.q / w, p.k / w, rows, tall) && near(p.q % w, p.k % w, columns, wide); },
        rows * columns);
  }
}

TEST(ReadyMade, TensorsStandOnTheLastAxes) {
  std::vector<std::uint8_t> bits(2 * 2 * 40 * 40);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = i * 2654435761u % 7 < 3;
  const auto bit = [&](std::int64_t i) { return bits[static_cast<std::size_t>(i)] != 0; };
  const auto bound = [&](std::vector<std::int64_t> extent) {
    Table t = table(bits, std::move(extent));
    t.dtype = b8;
    return std::vector<Table>{t};
  };
  expect_mask(mask_tensor("m", 1), bound({40}), [&](const Point& p) { return bit(p.k); });
  expect_mask(mask_tensor("m"), bound({40, 40}), [&](const Point& p) { return bit(40 * p.q + p.k); });
  expect_mask(mask_tensor("m", 3), bound({2, 40, 40}),
              [&](const Point& p) { return bit((p.h * 40 + p.q) * 40 + p.k); });
  expect_mask(mask_tensor("m", 4), bound({2, 2, 40, 40}),
              [&](const Point& p) { return bit(((p.b * 2 + p.h) * 40 + p.q) * 40 + p.k); });
  expect_mask(mask_tensor("m", 4), bound({2, 1, 1, 40}), [&](const Point& p) { return bit(p.b * 40 + p.k); });
  expect_mask(block_sparse("m", 8, 5), bound({5, 8}), [&](const Point& p) { return bit(p.q / 8 * 8 + p.k / 5); });
  expect_mask(block_sparse("m", 4, 10, 4), bound({2, 2, 10, 4}),
              [&](const Point& p) { return bit(((p.b * 2 + p.h) * 10 + p.q / 4) * 4 + p.k / 10); });
}

TEST(ReadyMade, ScoresAreWhatTheyAreDefinedAs) {
  std::vector<float> values(2 * 2 * 30 * 30);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.25f * static_cast<float>(i * 37 % 101);
  const auto value = [&](std::int64_t i) { return double{values[static_cast<std::size_t>(i)]}; };
  const auto at = [&](const ScoreMod& score, std::vector<std::int64_t> extent, const Point& p) {
    const Table bound = table(values, std::move(extent));
    return mods::evaluate_score(score.graph(), p, {&bound, 1});
  };
  for (const double s : {-45.0, -1.0, 0.0, 0.5, 300.0})
    for (const std::int64_t q : {0, 3, 29})
      for (const std::int64_t k : {0, 7, 28}) {
        const Point p{1, 1, q, k, s};
        EXPECT_DOUBLE_EQ(at(softcap(30), {}, p), 30 * std::tanh(s / 30));
        EXPECT_DOUBLE_EQ(at(alibi("slope"), {2}, p), s + value(1) * static_cast<double>(k - q));
        EXPECT_DOUBLE_EQ(at(bias_tensor("bias", 1), {30}, p), s + value(k));
        EXPECT_DOUBLE_EQ(at(bias_tensor("bias"), {30, 30}, p), s + value(30 * q + k));
        EXPECT_DOUBLE_EQ(at(bias_tensor("bias", 4), {2, 2, 30, 30}, p), s + value((3 * 30 + q) * 30 + k));
        EXPECT_DOUBLE_EQ(at(bias_tensor("bias", 4), {2, 1, 30, 1}, p), s + value(30 + q));
      }
}

TEST(ReadyMade, BucketsAreThoseOfT5) {
  std::vector<float> index(64);
  for (std::size_t i = 0; i < index.size(); ++i) index[i] = static_cast<float>(i % 32 + 100 * (i / 32));
  const Table bound = table(index, {2, 32});
  const auto bucket = [&](const ScoreMod& score, std::int64_t ahead) {
    return mods::evaluate_score(score.graph(), {.h = 1, .q = 1000, .k = 1000 + ahead, .s = 0.5}, {&bound, 1}) - 100.5;
  };
  // Where each bucket begins, as torch computes it.
  const std::vector<int> both = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
  const std::vector<int> back = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
  const auto expected = [](const std::vector<int>& begins, std::int64_t distance) {
    return std::upper_bound(begins.begin(), begins.end(), distance) - begins.begin() - 1;
  };
  for (std::int64_t distance = 0; distance < 300; ++distance) {
    EXPECT_EQ(bucket(relative_bias("t"), -distance), expected(both, distance)) << distance;
    EXPECT_EQ(bucket(relative_bias("t"), distance), expected(both, distance) + (distance > 0 ? 16 : 0)) << distance;
    EXPECT_EQ(bucket(relative_bias("t", 32, 128, false), -distance), expected(back, distance)) << distance;
    EXPECT_EQ(bucket(relative_bias("t", 32, 128, false), distance), 0) << distance;
  }
  for (const std::int64_t buckets : {4, 8, 256}) {  // every bucket is reached, and none beyond them
    const ScoreMod score = relative_bias("t", buckets, 1 << 20);
    double last = 0;
    const std::vector<float> ramp = [] {
      std::vector<float> r(256);
      for (std::size_t i = 0; i < r.size(); ++i) r[i] = static_cast<float>(i);
      return r;
    }();
    const Table wide = table(ramp, {1, 256});
    for (std::int64_t d = 0; d <= 1 << 20; d += 1 + d / 64) {
      const double here = mods::evaluate_score(score.graph(), {.q = d, .k = 0}, {&wide, 1});
      ASSERT_GE(here, last);
      last = here;
    }
    EXPECT_EQ(last, static_cast<double>(buckets / 2 - 1));
  }
}

TEST(ReadyMade, AreReadByName) {
  const std::pair<const char*, Mask> masks[] = {
      {"prefix_lm(len)", prefix_lm("len")},
      {"key_lengths( len )", key_lengths("len")},
      {"documents(ids)", documents("ids")},
      {"documents(ids, 2)", documents("ids", 2)},
      {"documents_from_offsets(offsets)", documents_from_offsets("offsets")},
      {"documents_from_offsets(offsets, 2)", documents_from_offsets("offsets", 2)},
      {"upper_bound(offsets, q) == upper_bound(offsets, k)", documents_from_offsets("offsets")},
      {"upper_bound( offsets:int [ b ] , q) == upper_bound(offsets[b], k)", documents_from_offsets("offsets", 2)},
      {"chunked(8192)", chunked(8192)},
      {"sinks(4)", sinks(4)},
      {"dilated(2)", dilated(2)},
      {"neighborhood_2d(16, 32, 3, 5)", neighborhood_2d(16, 32, 3, 5)},
      {"tree(parents, 64)", tree("parents", 64)},
      {"mask_tensor(m)", mask_tensor("m")},
      {"mask_tensor(m, 4)", mask_tensor("m", 4)},
      {"block_sparse(layout, 64, 128)", block_sparse("layout", 64, 128)},
      {"block_sparse(layout, 64, 128, 3)", block_sparse("layout", 64, 128, 3)},
      {"causal & documents(documents)", causal() & documents("documents")},
  };
  for (const auto& [given, mask] : masks) {
    EXPECT_EQ(parse_mask(given), mask) << given;
    EXPECT_EQ(parse_mask(text(mask)), mask) << mask;
  }
  const std::pair<const char*, ScoreMod> scores[] = {
      {"s", {}},
      {"softcap(30)", softcap(30)},
      {"softcap(2.5)", softcap(2.5)},
      {"alibi(slope)", alibi("slope")},
      {"s + slope[h] * (k - q)", alibi("slope")},
      {"relative_bias(t)", relative_bias("t")},
      {"relative_bias(t, 16)", relative_bias("t", 16)},
      {"relative_bias(t, 64, 256, false)", relative_bias("t", 64, 256, false)},
      {"bias_tensor(bias)", bias_tensor("bias")},
      {"bias_tensor(bias, 3)", bias_tensor("bias", 3)},
      {"where(causal, softcap(30), -inf)", score_mod([](Expr s, Expr, Expr, Expr q, Expr k) {
         const Expr cap = param(30.0);
         return where(k <= q, cap * tanh(s / cap), -std::numeric_limits<double>::infinity());
       })},
  };
  for (const auto& [given, score] : scores) {
    EXPECT_EQ(parse_score(given), score) << given;
    EXPECT_EQ(parse_score(text(score)), score) << score;
  }
  EXPECT_EQ(text(documents("ids")), "(ids:int[q] == ids:int[k])");
  EXPECT_EQ(text(documents_from_offsets("cu", 2)), "(upper_bound(cu[b], q) == upper_bound(cu[b], k))");
  EXPECT_EQ(text(softcap(30)), "(param(30.0) * tanh((s / $0)))");
  EXPECT_EQ(text(chunked(16)), "((q // param(16)) == (k // $0))");
}

TEST(ReadyMade, AnotherNumberNeedsNoOtherNodes) {
  EXPECT_EQ(chunked(3).graph().nodes, chunked(5).graph().nodes);
  EXPECT_EQ(sinks(3).graph().nodes, sinks(0).graph().nodes);
  EXPECT_EQ(dilated(3).graph().nodes, dilated(1).graph().nodes);
  EXPECT_EQ(neighborhood_2d(9, 9, 3, 5).graph().nodes, neighborhood_2d(64, 32, 7, 1).graph().nodes);
  EXPECT_EQ(block_sparse("m", 3, 4).graph().nodes, block_sparse("m", 64, 64).graph().nodes);
  EXPECT_EQ(softcap(30).graph().nodes, softcap(50).graph().nodes);
  EXPECT_EQ(relative_bias("t", 32, 128).graph().nodes, relative_bias("t", 32, 256).graph().nodes);
}

TEST(ReadyMade, RefuseWhatTheyCannotBe) {
  struct Case {
    std::function<void()> make;
    const char* says;
    Code code = Code::invalid_option;
  };
  const Case cases[] = {
      {[] { chunked(0); }, "chunked: the size is 0: it is 1 or more"},
      {[] { sinks(-1); }, "sinks: the count is -1: it is 0 or more"},
      {[] { dilated(0); }, "dilated: the step is 0"},
      {[] { neighborhood_2d(0, 4, 1, 1); }, "grid_rows is 0"},
      {[] { neighborhood_2d(4, 8, 5, 3); }, "rows is 5: it is from 1 to 4"},
      {[] { neighborhood_2d(4, 8, 3, 9); }, "columns is 9: it is from 1 to 8"},
      {[] { block_sparse("m", 0, 4); }, "q_block is 0"},
      {[] { block_sparse("m", 4, -4); }, "k_block is -4"},
      {[] { block_sparse("m", 4, 4, 1); }, "rank of the layout is 1: it is from 2 to 4"},
      {[] { tree("p", 0); }, "tree: the depth is 0: it is from 1 to 64"},
      {[] { tree("p", 65); }, "the depth is 65"},
      {[] { parse_mask("tree(p, -1)"); }, "the depth is -1", Code::parse},
      {[] { documents("ids", 3); }, "the ids have 3 axes"},
      {[] { documents_from_offsets("cu", 3); }, "the offsets have 3 axes"},
      {[] { parse_mask("documents_from_offsets(cu, 0)"); }, "the offsets have 0 axes", Code::parse},
      {[] { softcap(0); }, "softcap: the cap is 0"},
      {[] { softcap(std::nan("")); }, "softcap: the cap is nan"},
      {[] { softcap(std::numeric_limits<double>::infinity()); }, "softcap: the cap is inf"},
      {[] { relative_bias("t", 6); }, "6 buckets: it is a multiple of 4 up to 256"},
      {[] { relative_bias("t", 3, 128, false); }, "3 buckets: it is a multiple of 2"},
      {[] { relative_bias("t", 512); }, "512 buckets"},
      {[] { relative_bias("t", 32, 8); }, "max_distance is 8: it is from 9"},
      {[] { mask_tensor("m", 5); }, "'m' has 5 axes, allowed are 1 to 4", Code::invalid_mod},
      {[] { bias_tensor("m", 0); }, "'m' has 0 axes", Code::invalid_mod},
      {[] { alibi("k"); }, "cannot be called 'k'", Code::invalid_mod},
      {[] { documents("my ids"); }, "'my ids' does not fit", Code::invalid_mod},
      {[] { parse_mask("chunked(0)"); }, "the size is 0", Code::parse},
      {[] { parse_mask("chunked(2.0)"); },
       "argument 1 of chunked is an integer, not a real\n  chunked(2.0)\n          ^~~", Code::parse},
      {[] { parse_mask("documents(1)"); }, "expected the name of a captured tensor", Code::parse},
      {[] { parse_mask("documents"); }, "expected '('", Code::parse},
      {[] { parse_mask("documents(ids, 7)"); }, "the ids have 7 axes", Code::parse},
      {[] { parse_mask("documents(ids, 4294967297)"); }, "the ids have 2147483647 axes", Code::parse},
      {[] { parse_mask("documents(ids, 1, 2)"); }, "expected ')'", Code::parse},
      {[] { parse_mask("softcap(30) < 1"); }, "not the score: 'softcap' changes it\n  softcap(30) < 1\n  ^~~~~~~",
       Code::parse},
      {[] { parse_score("relative_bias(t, 32, 128, 1)"); }, "expected true or false", Code::parse},
      {[] { parse_score("causal"); }, "a score change is a number, this is a boolean", Code::parse},
      {[] { parse_score("nothing"); }, "softcap, alibi, relative_bias, bias_tensor", Code::parse},
  };
  for (const Case& c : cases) try {
      c.make();
      ADD_FAILURE() << "accepted: " << c.says;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), c.code) << error.what();
      EXPECT_TRUE(contains(error.what(), c.says)) << c.says << " is not said by: " << error.what();
    }
}

TEST(ReadyMade, AllocateNothing) {
  const auto use = [] {
    const Mask mask = causal() & documents("ids") & key_lengths("len");
    const ScoreMod score = alibi("slope") >> softcap(30);
    return hash(mask.graph()) + hash(score.graph()) + hash(prefix_lm("len").graph()) + hash(chunked(64).graph());
  };
  const std::uint64_t first = use();
  const tests::AllocationCount count;
  EXPECT_EQ(use(), first);
  EXPECT_EQ(count.of_this_thread(), 0u);
}

TEST(Scores, TheIdentityIsNoNodes) {
  EXPECT_TRUE(ScoreMod().is_identity());
  EXPECT_TRUE(ScoreMod(Graph()).is_identity());
  EXPECT_EQ(text(ScoreMod()), "s");
  EXPECT_EQ(parse_score("s"), ScoreMod());
  EXPECT_EQ(parse_score("where(true, s, 0)"), ScoreMod());
  EXPECT_EQ(ScoreMod(mods::parse("s")), ScoreMod());
  EXPECT_EQ(mods::evaluate_score(ScoreMod().graph(), {.s = 2.5}), 2.5);
  EXPECT_EQ(text(parse_score("k")), "real(k)");
  EXPECT_EQ(text(ScoreMod(mods::parse("k - 1"))), "real((k - 1))");
  try {
    ScoreMod(causal().graph());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_mod);
    EXPECT_TRUE(contains(error.what(), "is a boolean: where(")) << error.what();
  }
}

TEST(Scores, FollowEachOther) {
  EXPECT_EQ(softcap(30) >> ScoreMod(), softcap(30));
  EXPECT_EQ(ScoreMod() >> softcap(30), softcap(30));
  EXPECT_EQ(text(alibi("slope") >> softcap(30)), "(param(30.0) * tanh(((s + (slope[h] * real((k - q)))) / $0)))");
  EXPECT_EQ(text(softcap(30) >> alibi("slope")), "((param(30.0) * tanh((s / $0))) + (slope[h] * real((k - q))))");
  EXPECT_EQ(text(parse_score("2.0") >> softcap(30)), "(param(30.0) * tanh((2.0 / $0)))");
  // On random ones: the second of what the first makes.
  std::size_t composed = 0;
  tests::check_property("composition", 2000, [&](tests::Choices& choices) {
    const auto random = [&] {
      const tests::Program program = tests::random_program(choices, 12);
      mods::Builder builder;
      const auto node = tests::build(builder, program);
      return program.back().type == Type::boolean ? ScoreMod() : builder.finish_score(node.back());
    };
    const ScoreMod first = random(), second = random();
    ScoreMod both;
    try {
      both = first >> second;
    } catch (const Error& error) {  // too long a text
      PROPERTY_HOLDS(contains(error.what(), "written out"));
      return;
    }
    PROPERTY_HOLDS(ScoreMod(both.graph()) == both);
    PROPERTY_HOLDS(parse_score(text(both)) == both);
    Point at{1, 2, 7, 5, 0.75};
    const auto value = [&](const ScoreMod& score) {
      const std::vector<Table> bound = tests::tables(score.graph());
      return mods::evaluate_score(score.graph(), at, bound);
    };
    const double whole = value(both);
    at.s = value(first), at.s = value(second);
    PROPERTY_HOLDS(whole == at.s || (std::isnan(whole) && std::isnan(at.s)));
    composed += !first.is_identity() && !second.is_identity();
  });
  EXPECT_GT(composed, 200u);
}

}  // namespace
}  // namespace tessera
