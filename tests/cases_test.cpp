// Cases: their line form, generation, data and shrinking; and the suite on plain attention with mistakes planted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>

#include "conformance/check.hpp"
#include "conformance/plain.hpp"
#include "conformance/runner.hpp"
#include "conformance/vary.hpp"

namespace tessera::conformance {
namespace {

TEST(CaseSpec, EveryGeneratedLineReadsBack) {
  for (DType dtype : {f32, bf16, f16})
    for (std::int64_t i = 0; i < 2000; ++i) {
      const CaseSpec spec = generate(7, i, dtype);
      EXPECT_EQ(parse_case(line(spec)), spec) << line(spec);
      EXPECT_EQ(spec.dtype, dtype);
      EXPECT_EQ(spec.heads_q % spec.heads_kv, 0) << line(spec);
    }
}

TEST(CaseSpec, VariantsAskForTheSameKernel) {
  std::set<std::int64_t> batches, queries, keys;
  for (DType dtype : {f32, bf16})
    for (std::int64_t i = 0; i < 200; ++i) {
      const CaseSpec base = generate(11, i, dtype);
      for (std::int64_t number = 1; number < 6; ++number) {
        const CaseSpec c = vary(base, number);
        EXPECT_EQ(parse_case(line(c)), c) << line(c);
        EXPECT_EQ(c.heads_q / c.heads_kv, base.heads_q / base.heads_kv);
        EXPECT_EQ(c.packed.empty(), base.packed.empty());
        EXPECT_EQ(has_lengths(c), has_lengths(base)) << line(base) << "\n" << line(c);
        EXPECT_EQ(c.page > 0, base.page > 0);
        const auto same = [](const CaseSpec& x) {
          return std::tuple(x.dim, x.dim_v, x.dtype, x.out, x.score, x.sinks, x.lse, x.shift, x.offset.has_value(),
                            x.offsets.empty());
        };
        EXPECT_EQ(same(c), same(base)) << line(base) << "\n" << line(c);
        batches.insert(c.batch), queries.insert(c.tokens_q), keys.insert(c.tokens_k);
      }
    }
  EXPECT_GE(batches.size(), 3u);
  EXPECT_GE(queries.size(), 200u);
  EXPECT_GE(keys.size(), 200u);
}

TEST(CaseSpec, RefusesNonsense) {
  for (const char* text : {"b",           "b=x",           "b=-1",
                           "hq=3 hkv=2",  "mask=\"causal", "mask=nonsense",
                           "dtype=f64",   "dtype=i32",     "dtype=f32 out=bf16",
                           "layout=odd",  "family=odd",    "packed=3",
                           "packed=1/-1", "packed=1/2,",   "d=0",
                           "scale=1x",    "what=1",        "workspace=2",
                           "index=i8",    "seed=-",        "hkv=0",
                           "threads=-1",  "page=-1",       "used=3,-1",
                           "used=",       "room=x",        "b=1 sq=1000000 sk=1000000 d=64"})
    EXPECT_THROW(parse_case(text), Error) << text;
}

TEST(Generate, CoversTheEdges) {
  std::set<std::string> seen;
  const auto note = [&](const std::string& what, bool holds) {
    if (holds) seen.insert(what);
  };
  double total_work = 0;
  constexpr std::int64_t count = 1500;
  for (std::int64_t i = 0; i < count; ++i) {
    const CaseSpec c = generate(1, i, bf16);
    total_work += work(c);
    const std::int64_t group = c.heads_q / c.heads_kv;
    for (std::int64_t g : {1, 2, 3, 5, 7, 8, 14, 16}) note("group " + std::to_string(g), group == g);
    note("no keys", c.packed.empty() && c.tokens_k == 0);
    note("no queries", c.packed.empty() && c.tokens_q == 0);
    note("empty sequence", std::any_of(c.packed.begin(), c.packed.end(), [](Lengths l) { return l.q == 0; }));
    note("slack", c.slack.q > 0 && c.slack.k > 0);
    note("more queries than keys", c.tokens_q > c.tokens_k && c.tokens_k > 0);
    note("many keys", c.tokens_k > 3100);
    note("packed many keys", std::any_of(c.packed.begin(), c.packed.end(), [](Lengths l) { return l.k > 3072; }));
    note("dim 1", c.dim == 1);
    note("dim over 256", c.dim > 256);
    note("dv != d", c.dim != c.dim_v);
    note("f32 out", c.out == f32);
    note("offset", c.offset.has_value());
    note("offsets", !c.offsets.empty());
    note("scale", c.scale.has_value());
    note("invariant", c.invariant);
    note("exact workspace", c.workspace == Scratch::exact);
    note("shift", c.shift > 0);
    note("no lse", !c.lse);
    for (int t = 1; t <= 4; ++t) note("threads " + std::to_string(t), c.threads == t);
    const bool edge = std::any_of(c.used.begin(), c.used.end(),
                                  [&](std::int64_t n) { return c.page > 1 && n > 0 && n % c.page == 0; });
    note("lengths", has_lengths(c) && c.page == 0);
    note("packed lengths", c.room > 0 && c.page == 0);
    note("page of 1", c.page == 1), note("page of 256", c.page == 256), note("odd page", c.page == 3);
    note("packed pages", c.room > 0 && c.page > 0), note("last page full", edge);
    note("shared pages", c.prefix >= c.page && c.page > 0 && c.batch > 1);
    note("no keys in use", std::count(c.used.begin(), c.used.end(), 0) > 0);
    note("layout " + std::to_string(static_cast<int>(c.layout)), true);
    note("family " + std::to_string(static_cast<int>(c.family)), true);
  }
  EXPECT_EQ(seen.size(), 8u + 18u + 9u + 4u + 5u + 12u) << [&] {
    std::string all;
    for (const std::string& s : seen) all += s + "; ";
    return all;
  }();
  EXPECT_LT(total_work / count, 3e6);  // a few milliseconds
}

TEST(Data, IsTheSameForTheSameLine) {
  const CaseSpec spec = parse_case("b=2 sq=5 sk=9 hq=2 hkv=1 d=8 layout=sliced family=outlier seed=9");
  const CaseData a = make_data(spec), b = make_data(spec);
  for (std::size_t i = 0; i < a.buffers.size(); ++i)
    EXPECT_EQ(std::memcmp(a.buffers[i]->data(), b.buffers[i]->data(),
                          static_cast<std::size_t>(a.buffers[i]->elements() * size_bytes(a.buffers[i]->dtype()))),
              0);
}

TEST(Data, NoticesStrayWrites) {
  const CaseSpec spec = parse_case("packed=2/3,1/1 slack=2/2 hq=2 hkv=1 d=4 layout=sliced");
  const CaseData data = make_data(spec);
  OutputSet set = data.make_outputs(spec);
  const Sequence& last = data.sequences.back();
  EXPECT_EQ(set.stray_write(), "");
  set_element(set.outputs.o, q_row_offset(set.outputs.o, last, last.q_count - 1, 0), 1);
  EXPECT_EQ(set.stray_write(), "");
  set_element(set.outputs.o, q_row_offset(set.outputs.o, last, last.q_count, 0), 1);
  EXPECT_NE(set.stray_write(), "");
  OutputSet other = data.make_outputs(spec);
  set_element(other.outputs.lse, lse_offset(other.outputs.lse, last, last.q_count, 1), 1);
  EXPECT_NE(other.stray_write(), "");
  OutputSet third = data.make_outputs(spec);
  static_cast<char*>(third.o_buffer->data())[-1] = 0;
  EXPECT_NE(third.stray_write(), "");
  set_element(data.inputs.k, 0, 3);
  EXPECT_FALSE(data.inputs_intact());
}

TEST(Shrink, KeepsWhatTheFailureNeeds) {
  const CaseSpec start = parse_case(
      "b=3 sq=77 sk=300 hq=8 hkv=2 d=72 dtype=bf16 mask=\"causal & window(30, 0)\" layout=bhsd family=growing "
      "threads=3 shift=5");
  const CaseSpec small = shrink(start, [](const CaseSpec& c) { return c.tokens_k > 128 && c.heads_q > c.heads_kv; });
  EXPECT_EQ(small.tokens_k, 129);
  EXPECT_GT(small.heads_q, small.heads_kv);
  EXPECT_EQ(small.batch, 1);
  EXPECT_EQ(small.tokens_q, 0);
  EXPECT_EQ(small.dim, 1);
  EXPECT_EQ(small.mask, "full");
  EXPECT_EQ(small.layout, Layout::bshd);
  EXPECT_EQ(small.threads, 1);
}

// ------------------------------------------------------------------------------------------- the suite tests the suite
TEST(Suite, AcceptsPlainAttention) {
  const Subject subject[] = {plain()};
  Report report = run(subject, {.cases = 60, .seed = 21, .named = false});
  for (const Failure& failure : report.failures) ADD_FAILURE() << failure;
  EXPECT_EQ(report.cases, 180);
  for (const char* name : {"rows.lengths_0_and_1", "rows.constant_1000", "rows.neg_inf_scores", "rows.one_nan_key",
                           "masks.far_positions", "sizes.views", "pages.shared_prefix", "pages.equal_contiguous",
                           "lengths.cache_with_nan_past_the_lengths", "merge.split_sum", "merge.associative"}) {
    report = run(subject, {.case_line = name});
    for (const Failure& failure : report.failures) ADD_FAILURE() << failure;
    EXPECT_EQ(report.cases, 3);
  }
}

class PlainMistake : public testing::TestWithParam<Mistake> {};
TEST_P(PlainMistake, IsFoundByGeneratedCasesAlone) {
  const Subject subject[] = {plain(GetParam())};
  const Report report = run(subject, {.cases = 150, .seed = 22, .named = false, .shrink = false, .max_failures = 1});
  EXPECT_FALSE(report.failures.empty());
}
INSTANTIATE_TEST_SUITE_P(All, PlainMistake, testing::ValuesIn(mistakes().begin(), mistakes().end()),
                         [](const auto& one) { return std::string(name(one.param)); });

TEST(Suite, AFailureReplaysFromItsLine) {
  const Subject subject[] = {plain(Mistake::last_key_dropped)};
  const Report report = run(subject, {.cases = 60, .seed = 3, .dtypes = {f32}, .named = false, .max_failures = 1});
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_FALSE(report.passed());
  const Report again = run(subject, {.case_line = report.failures[0].line, .shrink = false});
  ASSERT_EQ(again.failures.size(), 1u);
  EXPECT_EQ(again.failures[0].text, report.failures[0].text);
  EXPECT_LE(parse_case(report.failures[0].line).tokens_k, 140);  // shrunk: the mistake needs more than 100 keys
  const Subject right[] = {plain()};
  EXPECT_TRUE(run(right, {.case_line = report.failures[0].line}).passed());
  EXPECT_TRUE(run(right, {.case_line = "rows.constant_1000 dtype=bf16"}).passed());
  EXPECT_THROW(run(right, {.case_line = "no.such_case"}), Error);
}

TEST(Suite, StopsInTime) {
  const Subject subject[] = {plain()};
  const Report report = run(subject, {.cases = 1000000, .seconds = 0.3});
  EXPECT_TRUE(report.out_of_time);
  EXPECT_LT(report.seconds, 5);
}

}  // namespace
}  // namespace tessera::conformance
