// The accuracy rule accepts what is right and refuses what is known to be wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "conformance/cases.hpp"
#include "conformance/data.hpp"
#include "conformance/plain.hpp"
#include "conformance/standard.hpp"

namespace tessera::conformance {
namespace {

TEST(OneRounding, IsHalfTheDistanceOfNeighbours) {
  EXPECT_EQ(one_rounding(1, f32), 0x1p-24);
  EXPECT_EQ(one_rounding(1.999, f32), 0x1p-24);
  EXPECT_EQ(one_rounding(-2, f32), 0x1p-23);
  EXPECT_EQ(one_rounding(1, bf16), 0x1p-8);
  EXPECT_EQ(one_rounding(1, f16), 0x1p-11);
  EXPECT_EQ(one_rounding(0, f16), 0x1p-25);
  EXPECT_EQ(one_rounding(1e-40, f32), 0x1p-150);
  EXPECT_EQ(one_rounding(0, bf16), 0x1p-134);
  Random r(1);
  for (int i = 0; i < 10000; ++i) {
    const float x = r.normal() * 10;
    EXPECT_LE(std::abs(static_cast<double>(round_to(bf16, x)) - static_cast<double>(x)),
              one_rounding(static_cast<double>(x), bf16));
    EXPECT_LE(std::abs(static_cast<double>(round_to(f16, x)) - static_cast<double>(x)),
              one_rounding(static_cast<double>(x), f16));
  }
}

// Judges what `change` makes of a correct result.
struct Judged {
  CaseSpec spec;
  CaseData data;
  Expectation expectation;
  explicit Judged(const std::string& text)
      : spec(parse_case(text)),
        data(make_data(spec)),
        expectation(expect(data.inputs, data.options, spec.out, all_rows(data.inputs, data.options))) {}
  template <class Change>
  Verdict after(Mistake mistake, Change change) {
    const OutputSet set = data.make_outputs(spec);
    plain(mistake).run(data.inputs, set.outputs, data.options, {});
    change(set.outputs);
    return judge(expectation, set.outputs);
  }
  Verdict of(Mistake mistake) {
    return after(mistake, [](const Outputs&) {});
  }
};

TEST(Accuracy, AcceptsPlainAttention) {
  for (const char* dtype : {"f32", "bf16", "f16"})
    for (const char* out : {"", " out=f32"}) {
      Judged judged("b=2 sq=70 sk=130 hq=4 hkv=2 d=40 mask=causal dtype=" + std::string(dtype) + out);
      const Verdict verdict = judged.of(Mistake::none);
      EXPECT_TRUE(static_cast<bool>(verdict)) << verdict.first;
      EXPECT_GT(verdict.worst, 0.01);
    }
}

TEST(Accuracy, RefusesAScaleFoldedIntoRoundedQueries) {
  // Queries scaled by 16 through the outlier family's factor: the error is 8 times standard attention's.
  bool refused = false;
  for (int seed = 1; seed <= 6; ++seed)
    refused |= !Judged("b=1 sq=120 sk=600 hq=1 hkv=1 d=72 dtype=bf16 out=f32 scale=1.3 seed=" + std::to_string(seed))
                    .of(Mistake::scale_in_rounded_q);
  EXPECT_TRUE(refused);
}

TEST(Accuracy, RefusesLseOfRoundedSums) {
  Judged judged("b=1 sq=60 sk=300 hq=1 hkv=1 d=64 dtype=bf16");
  EXPECT_FALSE(judged.of(Mistake::lse_of_rounded_sum));
  EXPECT_NE(judged.of(Mistake::lse_of_rounded_sum).first.find("LSE"), std::string::npos);
}

TEST(Accuracy, RefusesLseInBase2) { EXPECT_FALSE(Judged("b=1 sq=9 sk=30 hq=1 hkv=1 d=8").of(Mistake::lse_base_2)); }

TEST(Accuracy, RefusesACoarseExponential) {
  EXPECT_FALSE(Judged("b=1 sq=60 sk=90 hq=1 hkv=1 d=32").of(Mistake::coarse_exp));
}

TEST(Accuracy, RefusesOneWrongElementAndNamesIt) {
  Judged judged("b=2 sq=5 sk=9 hq=2 hkv=1 d=8 dv=4");
  const Verdict verdict = judged.after(Mistake::none, [&](const Outputs& out) {
    const std::int64_t at = q_row_offset(out.o, judged.data.sequences[1], 3, 1) + 2;
    set_element(out.o, at, element(out.o, at) + 1e-4);
  });
  EXPECT_EQ(verdict.violations, 1);
  EXPECT_NE(verdict.first.find("O[2] of sequence 1, head 1, query 3"), std::string::npos) << verdict.first;
}

TEST(Accuracy, RefusesSixUnitsInTheLastPlaceInF32) {
  Judged judged("b=1 sq=64 sk=64 hq=1 hkv=1 d=16");
  const Verdict verdict = judged.after(Mistake::none, [&](const Outputs& out) {
    for (std::int64_t i = 0; i < out.o.elements(); ++i) set_element(out.o, i, element(out.o, i) * (1 + 0x1p-16));
  });
  EXPECT_FALSE(verdict);
}

TEST(Accuracy, RefusesWhatWasNeverWritten) {
  Judged judged("b=1 sq=4 sk=4 hq=1 hkv=1 d=8 family=nan_attended");
  const OutputSet set = judged.data.make_outputs(judged.spec);
  const Verdict verdict = judge(judged.expectation, set.outputs);
  EXPECT_EQ(verdict.violations, 4 * 8 + 4);
  EXPECT_NE(verdict.first.find("never written"), std::string::npos);
}

TEST(Accuracy, NonFiniteRowsMatchInKind) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  Judged judged("b=1 sq=3 sk=2 hq=1 hkv=1 d=4 mask=causal");  // the first query attends to nothing
  const Tensor& k = judged.data.inputs.k;
  set_element(k, k_row_offset(k, judged.data.sequences[0], 1, 0), static_cast<double>(nan));  // the last one to a NaN
  judged.expectation =
      expect(judged.data.inputs, judged.data.options, f32, all_rows(judged.data.inputs, judged.data.options));
  EXPECT_TRUE(static_cast<bool>(judged.of(Mistake::none)));
  const auto with = [&](std::int64_t query, float o, float lse) {
    return judged.after(Mistake::none, [&](const Outputs& out) {
      for (std::int64_t j = 0; j < 4; ++j) set_element(out.o, query * 4 + j, static_cast<double>(o));
      set_element(out.lse, query, static_cast<double>(lse));
    });
  };
  EXPECT_TRUE(static_cast<bool>(with(0, 0, -inf)));
  EXPECT_TRUE(static_cast<bool>(with(0, -0.0f, -inf)));
  EXPECT_FALSE(with(0, 1e-30f, -inf));
  EXPECT_FALSE(with(0, nan, -inf));
  EXPECT_FALSE(with(0, 0, -1e38f));
  EXPECT_FALSE(with(0, 0, nan));
  EXPECT_FALSE(with(1, nan, nan));
  EXPECT_FALSE(with(1, inf, 0));
  EXPECT_TRUE(static_cast<bool>(with(2, nan, nan)));
  EXPECT_FALSE(with(2, 0, -inf));
  EXPECT_FALSE(with(2, inf, nan));
}

}  // namespace
}  // namespace tessera::conformance
