// The oracle against closed forms, and standard attention and the plain subject against the oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "conformance/cases.hpp"
#include "conformance/data.hpp"
#include "conformance/standard.hpp"

namespace tessera::conformance {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// One head, fp32, contiguous.
struct Small {
  std::vector<float> q, k, v;
  std::int64_t queries, keys, dim, dim_v;
  Inputs inputs() {
    return {.q = tensor(q.data(), {1, queries, 1, dim}),
            .k = tensor(k.data(), {1, keys, 1, dim}),
            .v = tensor(v.data(), {1, keys, 1, dim_v})};
  }
};

Exact solve(const Inputs& inputs, const Options& options) {
  return attend_exactly(inputs, options, all_rows(inputs, options));
}

TEST(Oracle, TheFourNumberExample) {
  Small s{{1}, {2, 1, 3, 0}, {1, 2, 3, 4}, 1, 4, 1, 1};
  const Exact exact = solve(s.inputs(), {.scale = 1.0f});
  const double weights[] = {std::exp(2.0), std::exp(1.0), std::exp(3.0), 1};
  const double sum = weights[0] + weights[1] + weights[2] + weights[3];
  EXPECT_DOUBLE_EQ(exact.o[0], (weights[0] + 2 * weights[1] + 3 * weights[2] + 4 * weights[3]) / sum);
  EXPECT_NEAR(exact.o[0], 2.47115, 1e-5);
  EXPECT_DOUBLE_EQ(exact.lse_ln[0], std::log(sum));
}

TEST(Oracle, EqualScoresGiveTheMean) {
  Small s{{0, 0}, {5, 6, 7, 8, -1, 2}, {1, 10, 2, 20, 6, 60}, 1, 3, 2, 2};
  const Exact exact = solve(s.inputs(), {});
  EXPECT_DOUBLE_EQ(exact.o[0], 3);
  EXPECT_DOUBLE_EQ(exact.o[1], 30);
  EXPECT_DOUBLE_EQ(exact.lse_ln[0], std::log(3.0));
}

// Keys 0 1 2 in pages 2 and 0 of two tokens; what the lengths leave out is not read, nor are pages that do not exist.
TEST(Oracle, ReadsThroughTheTable) {
  Small dense{{1}, {2, 1, 3}, {1, 2, 3}, 1, 3, 1, 1};
  Small pool{{1}, {3, NAN, NAN, NAN, 2, 1}, {3, NAN, NAN, NAN, 1, 2}, 1, 6, 1, 1};
  Inputs in = pool.inputs();
  in.k.shape = in.v.shape = {3, 2, 1, 1}, in.k.stride = in.v.stride = {2, 1, 1, 1};
  const std::int32_t table[] = {2, 0, 2147480000}, lengths[] = {3};
  in.pages = {tensor(table, {1, 3}), tensor(lengths, {1})};
  const Exact exact = solve(dense.inputs(), {}), paged = solve(in, {});
  EXPECT_DOUBLE_EQ(paged.o[0], exact.o[0]);
  EXPECT_DOUBLE_EQ(paged.lse_ln[0], exact.lse_ln[0]);
  Inputs cut = dense.inputs();
  const std::int32_t two[] = {2};
  cut.pages.lengths = tensor(two, {1});
  EXPECT_DOUBLE_EQ(solve(cut, {}).o[0], (std::exp(2.0) + 2 * std::exp(1.0)) / (std::exp(2.0) + std::exp(1.0)));
}

TEST(Oracle, OneKeyGivesItsValue) {
  Small s{{3, -4}, {10, 20}, {7, -8, 9}, 1, 1, 2, 3};
  const Exact exact = solve(s.inputs(), {});
  EXPECT_DOUBLE_EQ(exact.o[0], 7);
  EXPECT_DOUBLE_EQ(exact.o[1], -8);
  EXPECT_DOUBLE_EQ(exact.o[2], 9);
  EXPECT_NEAR(exact.lse_ln[0], (3 * 10 - 4 * 20) / std::sqrt(2.0), 1e-5);  // the scale itself is fp32
}

TEST(Oracle, TheScaleDefaultsToOneOverTheRootOfDim) {
  Small s{std::vector<float>(16, 1), std::vector<float>(32, 1), {1, 3}, 1, 2, 16, 1};
  for (int i = 0; i < 16; ++i) s.k[i] = 0;
  const Exact exact = solve(s.inputs(), {});  // scores 0 and 16 / 4
  EXPECT_NEAR(exact.o[0], (1 + 3 * std::exp(4.0)) / (1 + std::exp(4.0)), 1e-12);
}

TEST(Oracle, CausalCountsFromTheLastKey) {
  // 2 queries, 3 keys, equal scores: the first sees 2 keys, the last all 3.
  Small s{{0, 0}, {1, 2, 3}, {3, 6, 12}, 2, 3, 1, 1};
  const Exact exact = solve(s.inputs(), {.mask = causal()});
  EXPECT_DOUBLE_EQ(exact.o[0], 4.5);
  EXPECT_DOUBLE_EQ(exact.o[1], 7);
  const Exact from_zero = solve(s.inputs(), {.mask = causal(), .q_offset = 0});
  EXPECT_DOUBLE_EQ(from_zero.o[0], 3);
  EXPECT_DOUBLE_EQ(from_zero.o[1], 4.5);
}

TEST(Oracle, AWindowIsInclusive) {
  Small s{{0, 0, 0, 0}, {1, 2, 3, 4}, {1, 10, 100, 1000}, 4, 4, 1, 1};
  const Exact exact = solve(s.inputs(), {.mask = window(1, 0)});
  EXPECT_DOUBLE_EQ(exact.o[0], 1);
  EXPECT_DOUBLE_EQ(exact.o[1], 5.5);
  EXPECT_DOUBLE_EQ(exact.o[3], 550);
}

TEST(Oracle, ARowThatAttendsToNothingIsZero) {
  Small s{{1, 1, 1}, {1}, {5}, 3, 1, 1, 1};
  const Exact exact = solve(s.inputs(), {.mask = causal()});
  EXPECT_EQ(exact.o[0], 0);
  EXPECT_EQ(exact.lse_ln[0], -infinity);
  EXPECT_EQ(exact.o[1], 0);
  EXPECT_DOUBLE_EQ(exact.o[2], 5);
}

TEST(Oracle, MaskedNanIsSelectedAwayAndAttendedNanIsSeen) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Small s{{1, 1}, {1, nan}, {5, nan}, 2, 2, 1, 1};
  const Exact exact = solve(s.inputs(), {.mask = causal()});
  EXPECT_DOUBLE_EQ(exact.o[0], 5);
  EXPECT_DOUBLE_EQ(exact.lse_ln[0], 1);
  EXPECT_TRUE(std::isnan(exact.o[1]));
  EXPECT_TRUE(std::isnan(exact.lse_ln[1]));
}

TEST(Oracle, AScoreOfMinusInfinityIsMasked) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  Small s{{1}, {-inf, 2}, {nan, 7}, 1, 2, 1, 1};
  const Exact exact = solve(s.inputs(), {});
  EXPECT_DOUBLE_EQ(exact.o[0], 7);
  EXPECT_DOUBLE_EQ(exact.lse_ln[0], 2);
}

TEST(Oracle, GroupsShareKeyHeadsInOrder) {
  // 4 query heads, 2 key heads: heads 0, 1 read key head 0.
  std::vector<float> q(4, 0), k(2, 0), v{1, 2};
  const Inputs inputs{
      .q = tensor(q.data(), {1, 1, 4, 1}), .k = tensor(k.data(), {1, 1, 2, 1}), .v = tensor(v.data(), {1, 1, 2, 1})};
  const Exact exact = solve(inputs, {});
  EXPECT_EQ(exact.o, (std::vector<double>{1, 1, 2, 2}));
}

TEST(Oracle, PackedIsEachSequenceAlone) {
  const CaseSpec spec = parse_case("packed=5/7,0/3,4/0,9/9 hq=4 hkv=2 d=8 dv=3 mask=causal slack=2/1");
  const CaseData data = make_data(spec);
  const Exact together = attend_exactly(data.inputs, data.options, all_rows(data.inputs, data.options));
  std::vector<double> apart;
  for (const Sequence& s : data.sequences) {
    const Inputs one{.q = rows_of(data.inputs.q, s, true, 0, s.q_count),
                     .k = rows_of(data.inputs.k, s, false, 0, s.k_count),
                     .v = rows_of(data.inputs.v, s, false, 0, s.k_count)};
    const Exact alone = solve(one, data.options);
    apart.insert(apart.end(), alone.o.begin(), alone.o.end());
  }
  EXPECT_EQ(together.o, apart);
  EXPECT_EQ(together.o.size(), static_cast<std::size_t>((5 + 4 + 9) * 4 * 3));
}

TEST(Oracle, SampledRowsAreRowsOfTheWhole) {
  const CaseSpec spec = parse_case("b=3 sq=300 sk=40 hq=4 hkv=2 d=4 mask=causal");
  const CaseData data = make_data(spec);
  const std::vector<Row> all = all_rows(data.inputs, data.options),
                         some = sample_rows(data.inputs, data.options, 64, 5);
  const Exact whole = attend_exactly(data.inputs, data.options, all),
              part = attend_exactly(data.inputs, data.options, some);
  ASSERT_GE(some.size(), 32u);
  EXPECT_EQ(some.front(), (Row{0, 0, 0}));
  EXPECT_EQ(some.back(), (Row{2, 3, 299}));
  for (std::size_t i = 0; i < some.size(); ++i) {
    const auto at = static_cast<std::size_t>(std::find(all.begin(), all.end(), some[i]) - all.begin());
    ASSERT_LT(at, all.size());
    EXPECT_EQ(part.lse_ln[i], whole.lse_ln[at]);
    for (std::size_t j = 0; j < 4; ++j) EXPECT_EQ(part.o[i * 4 + j], whole.o[at * 4 + j]);
  }
}

TEST(Standard, IsCloseToTheOracleInEveryOrderAndNotTheSame) {
  for (const char* text : {"b=1 sq=40 sk=90 hq=2 hkv=1 d=64 mask=causal", "b=1 sq=40 sk=90 hq=2 hkv=1 d=64 dtype=bf16",
                           "b=1 sq=40 sk=90 hq=2 hkv=1 d=64 dtype=f16 out=f32"}) {
    const CaseSpec spec = parse_case(text);
    const CaseData data = make_data(spec);
    const std::vector<Row> rows = all_rows(data.inputs, data.options);
    const Exact exact = attend_exactly(data.inputs, data.options, rows);
    for (int order = 0; order < 4; ++order) {
      const Standard standard = attend_standard(data.inputs, data.options, spec.out, rows, order, 4);
      double error = 0;
      for (std::size_t i = 0; i < exact.o.size(); ++i)
        error = std::max(error, std::abs(static_cast<double>(standard.o[i]) - exact.o[i]));
      EXPECT_GT(error, spec.dtype == f32 ? 1e-8 : 1e-5) << text;
      EXPECT_LT(error, spec.dtype == f32 ? 1e-6 : spec.dtype == bf16 ? 2e-2 : 3e-3) << text;
    }
  }
}

}  // namespace
}  // namespace tessera::conformance
