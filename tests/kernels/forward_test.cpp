// The forward kernel on the emulated GPU, judged by the oracle: one case or more for each thing that a spec can ask
// for, alone and in company, in shapes that no plan would choose for so little work.
#include <gtest/gtest.h>

#include "conformance/cases.hpp"
#include "kernel_subject.hpp"

namespace tessera::tests {
namespace {

void expect_case(const KernelShape& shape, const std::string& text) {
  const conformance::Outcome outcome = conformance::run_case(kernel_subject(shape), conformance::parse_case(text));
  EXPECT_TRUE(outcome.passed()) << text << "\n" << outcome.failure;
}

constexpr KernelShape one_warp{.q_tile = 16, .k_tile = 32, .warps = 1};
constexpr KernelShape wide{.q_tile = 64, .k_tile = 32, .warps = 2};  // 32 rows a warp

TEST(Forward, Plain) {
  expect_case({}, "sq=64 sk=64 d=64 dtype=bf16");
  expect_case({}, "b=2 sq=100 sk=201 hq=2 hkv=2 d=64 dtype=bf16 seed=2");
  expect_case({}, "sq=3 sk=1 d=64 dtype=bf16 seed=3");
}
TEST(Forward, HalfPrecisionAndFloatOutput) {
  expect_case(wide, "sq=70 sk=90 hq=2 hkv=1 d=40 dtype=f16 out=f32 scale=0.3");
  expect_case(wide, "sq=70 sk=90 d=40 dtype=f16 out=f32 family=growing seed=5");
  expect_case(wide, "sq=70 sk=90 d=40 dtype=f16 out=f32 family=huge seed=6");
}
TEST(Forward, Scales) {
  for (const char* scale : {"-0.2", "0", "1e-30", "3"})
    expect_case(one_warp, std::string("sq=20 sk=70 d=16 dtype=bf16 scale=") + scale);
}
TEST(Forward, OneStage) {
  KernelShape shape = wide;
  shape.stages = 1;
  expect_case(shape, "sq=70 sk=130 d=24 dv=72 dtype=bf16 mask=\"(k <= q)\"");
  shape.q_registers = true;
  expect_case(shape, "sq=70 sk=130 hq=3 hkv=1 d=72 dv=24 dtype=bf16 mask=\"(k <= q)\" seed=2");
}
TEST(Forward, ThreeStagesAndQueriesInRegisters) {
  KernelShape shape = one_warp;
  shape.stages = 3, shape.q_registers = true;
  expect_case(shape, "sq=40 sk=300 d=32 dtype=f16 mask=\"causal & window(100, 0)\"");
  expect_case(shape, "sq=40 sk=31 d=32 dtype=f16 mask=\"causal & window(100, 0)\" seed=3");
}
TEST(Forward, LargestDims) {
  expect_case({.q_tile = 32, .k_tile = 16, .warps = 2}, "sq=33 sk=40 d=256 dv=255 dtype=bf16");
  expect_case({.q_tile = 16, .k_tile = 16, .warps = 1}, "sq=17 sk=40 d=1 dv=1 dtype=bf16");
}
TEST(Forward, TwoWarpsHaveTheSameRows) {
  constexpr KernelShape shared{.q_tile = 64, .k_tile = 64, .warps = 4, .warps_n = 2, .checked = true};
  for (const char* family : {"normal", "growing", "huge", "nan_masked", "nan_attended", "neg_inf"})
    expect_case(shared, std::string("sq=70 sk=150 d=72 dv=200 dtype=bf16 mask=\"(k <= q)\" lse=1 family=") + family);
  KernelShape shape = shared;
  shape.q_tile = 32, shape.k_tile = 32, shape.fixed = false, shape.stages = 1;  // 16 rows a warp
  expect_case(shape, "sq=40 sk=70 d=24 dv=130 dtype=f16 sinks=1 lse=1 family=outlier");
  shape.splits = 3, shape.q_tile = 64;
  expect_case(shape, "sq=40 sk=200 hq=2 hkv=1 d=200 dv=66 dtype=bf16 lse=1 mask=\"window(50, 3)\"");
}
TEST(Forward, Alignment) {
  for (const int bytes : {2, 4, 8}) {
    KernelShape shape = one_warp;
    shape.copy = bytes;
    expect_case(shape, "sq=20 sk=70 hq=2 hkv=1 d=20 dtype=bf16 layout=sliced mask=\"(k <= q)\" shift=" +
                           std::to_string(bytes / 2));
  }
}
TEST(Forward, OneKeyWhoseStrideSaysNothing) {
  // A stride that no element needs may be anything: here it is no multiple of the copies.
  expect_case(one_warp, "packed=8/6,38/1 hq=1 hkv=1 d=17 dv=80 dtype=f16 out=f32 mask=\"causal\" invariant=1");
}
TEST(Forward, Bands) {
  expect_case(one_warp, "sq=50 sk=300 hq=2 hkv=1 d=16 dtype=bf16 mask=\"((k <= q) & ((q - k) % 64 < 20))\"");
  expect_case(one_warp, "sq=50 sk=30 d=16 dtype=bf16 mask=\"(k <= q)\" offset=-20");  // rows that attend to nothing
  expect_case(one_warp, "sq=50 sk=230 d=16 dtype=bf16 mask=\"window(13, 40)\" offset=100000000000");
}
TEST(Forward, RunsAndMods) {
  for (const bool runs : {true, false}) {
    KernelShape shape = one_warp;
    shape.runs = runs;
    expect_case(shape, "b=2 sq=90 sk=90 hq=4 hkv=2 d=16 dtype=bf16 mask=\"documents(ids) & causal\"");
    expect_case(shape,
                "sq=90 sk=90 hq=4 hkv=2 d=16 dtype=bf16 mask=\"(k <= q) & (q // 20 == k // 20)\" score=\"softcap(5)\"");
  }
}
TEST(Forward, HeadsOfAGroupShareATile) {
  KernelShape shape = one_warp;
  shape.heads = 3;
  expect_case(shape, "b=2 sq=9 sk=65 hq=6 hkv=2 d=16 dtype=bf16 mask=\"(k <= q)\" sinks=1");
  shape.heads = 16;
  expect_case(shape, "sq=1 sk=65 hq=16 hkv=1 d=16 dtype=bf16 mask=\"(k <= q)\" score=\"alibi(slopes)\"");
}
TEST(Forward, Packed) {
  expect_case(one_warp, "packed=9/9,0/5,33/70,20/0,1/40 hq=2 hkv=1 d=16 dtype=bf16 mask=\"(k <= q)\" slack=3/5");
  std::string many;
  for (int i = 0; i < 70; ++i) many += (i ? "," : "") + std::to_string(i * 7 % 5) + "/" + std::to_string(i % 9);
  expect_case(one_warp, "packed=" + many + " d=16 dtype=bf16 index=i64");
}
TEST(Forward, Splits) {
  KernelShape shape = one_warp;
  shape.splits = 4;
  expect_case(shape, "b=2 sq=20 sk=300 hq=2 hkv=1 d=20 dv=17 dtype=bf16 mask=\"window(100, 0)\" sinks=1");
  expect_case(shape, "sq=20 sk=30 d=20 dv=17 dtype=f16 mask=\"(k <= q)\" offset=-9");
}
TEST(Forward, Pages) {
  for (const int size : {1, 8, 48, 256}) {
    KernelShape shape = one_warp;
    shape.page = size;
    expect_case(shape, "b=2 sq=20 sk=150 hq=2 hkv=1 d=24 dtype=bf16 mask=\"(k <= q)\" seed=" + std::to_string(size));
  }
  KernelShape shape = one_warp;
  shape.page = 5, shape.stages = 1, shape.splits = 2;
  expect_case(shape, "packed=9/9,0/5,33/70,20/0,1/100 hq=2 hkv=1 d=16 dtype=bf16");
}
TEST(Forward, NotFinite) {
  for (const char* family : {"nan_masked", "nan_attended", "neg_inf"}) {
    for (const int stages : {1, 2}) {
      KernelShape shape = one_warp;
      shape.stages = stages;
      expect_case(shape, std::string("sq=40 sk=90 hq=2 hkv=1 d=16 dtype=bf16 mask=\"(k <= q)\" family=") + family);
    }
    expect_case(wide, std::string("sq=70 sk=90 d=40 dtype=f16 mask=\"window(30, 2)\" family=") + family);
  }
}
TEST(Forward, Families) {
  for (const char* family : {"outlier", "growing", "falling", "huge", "tiny", "constant", "zeros", "denormal"})
    for (const char* type : {"bf16", "f16"})
      expect_case(one_warp,
                  std::string("sq=40 sk=130 hq=2 hkv=1 d=16 dtype=") + type + " mask=\"(k <= q)\" family=" + family);
}
TEST(Forward, CheckedInManySchedules) {
  KernelShape shape = one_warp;
  shape.warps = 2, shape.q_tile = 32, shape.checked = true;
  for (const int stages : {1, 2, 3})
    for (std::uint64_t schedule = 0; schedule < 4; ++schedule) {
      shape.stages = stages, shape.schedule = schedule;
      shape.page = stages == 2 ? 12 : 0;
      expect_case(shape, "sq=40 sk=130 hq=2 hkv=1 d=16 dtype=bf16 mask=\"(k <= q)\" family=nan_masked seed=4");
    }
  shape.stages = 2, shape.splits = 3, shape.page = 0;
  expect_case(shape, "sq=40 sk=130 hq=2 hkv=1 d=16 dtype=bf16 sinks=1");
}

}  // namespace
}  // namespace tessera::tests
