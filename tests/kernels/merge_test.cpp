// The merge kernel on the emulated GPU, plain and checked, in several schedules.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "gpu/merge.hpp"
#include "kernels/merge_check.hpp"

namespace tessera::tests {
namespace {

class MergeKernel : public testing::TestWithParam<bool> {
 protected:
  sim::Engine engine{{.checked = GetParam(), .folder = TESSERA_SIM_CACHE}};
};

TEST_P(MergeKernel, EveryShapeInEveryWidth) {
  // Rows and blocks at their edges; a row is a lane, some lanes, a warp, more than a warp takes at a time.
  const MergeShape shapes[] = {{1, 1, 1, 1},      {2, 3, 5, 7},         {1, 9, 2, 64},       {3, 2, 7, 128},
                               {1, 5, 3, 72},     {1, 3, 2, 264},       {1, 2, 2, 300},      {2, 5, 3, 33, 3},
                               {1, 17, 3, 40, 8}, {1, 11, 3, 60, 4, 4}, {1, 7, 2, 14, 2, 2}, {1, 129, 1, 8},
                               {1, 17, 4, 64}};
  std::uint64_t seed = 0;
  for (MergeShape s : shapes)
    for (const bool packed : {false, true}) {
      if (packed && s.batch > 1) continue;
      s.packed = packed;
      for (const DType dtype : {bf16, f32}) EXPECT_EQ(merge_fault(engine, s, {dtype, dtype, dtype}, seed++), "");
    }
}

TEST_P(MergeKernel, TypesOfTheirOwn) {
  // Every pair of two of the three; a third of them where it is checked, too.
  constexpr DType types[] = {f32, bf16, f16};
  for (int a = 0; a < 3; ++a)
    for (int b = 0; b < 3; ++b)
      if (!GetParam() || a == b) {
        const auto seed = static_cast<std::uint64_t>(3 * a + b);
        EXPECT_EQ(merge_fault(engine, {2, 3, 3, 20}, {types[a], types[b], types[(a + b) % 3]}, seed, seed % 4 != 1),
                  "");
      }
}

TEST_P(MergeKernel, NoRowsLaunchNothing) {
  const Tensor o = tensor(static_cast<void*>(nullptr), f32, {0, 3, 2, 8}),
               lse = tensor(static_cast<void*>(nullptr), f32, {0, 2, 3});
  EXPECT_EQ(gpu::merge_launch({o, lse}, {o, lse}, {o, lse}).blocks, 0);
  gpu::Merge(engine).run({o, lse}, {o, lse}, {o, lse}, {});
}

// What is compiled ahead for results that can be merged is what merging them asks for.
TEST(MergeSpecs, AreThoseOfDenseResults) {
  for (const std::int64_t dim : {1, 3, 4, 6, 12, 64, 72, 128, 200})
    for (const DType dtype : {bf16, f16})
      for (const DType out_dtype : {dtype, f32}) {
        const Device on{DeviceType::cuda, 0};
        int next = 0;
        const auto made = [&](DType type, std::initializer_list<std::int64_t> shape) {
          return tensor(reinterpret_cast<void*>(std::uintptr_t{1} << 40 | static_cast<std::uintptr_t>(++next) << 30),
                        type, shape, {}, on);
        };
        const Tensor q = made(dtype, {2, 5, 3, 16});
        const Inputs in{q, made(dtype, {2, 7, 3, 16}), made(dtype, {2, 7, 3, dim})};
        const Outputs a{made(out_dtype, {2, 5, 3, dim}), made(f32, {2, 3, 5})},
            b{made(out_dtype, {2, 5, 3, dim}), made(f32, {2, 3, 5})};
        const auto specs = gpu::merge_specs(describe(in, a));
        ASSERT_EQ(specs.size(), out_dtype == f32 ? 2u : 1u);
        EXPECT_EQ(specs[0], gpu::merge_launch(a, b, a).spec);
        const Outputs narrow{made(dtype, {2, 5, 3, dim}), a.lse};
        EXPECT_EQ(specs.back(), gpu::merge_launch(a, b, out_dtype == f32 ? narrow : a).spec);
        EXPECT_TRUE(gpu::merge_specs(describe(in, Outputs{a.o})).empty());
      }
}

// More rows than 32 bits number are counted in 64: the first two blocks of such a launch.
TEST_P(MergeKernel, RowsBeyondThirtyTwoBits) {
  constexpr std::int64_t tokens = 8, heads = 16, dim = 8, rows = 2 * tokens * heads;
  std::vector<float> a(rows * dim, 2.0f), b(rows * dim, 4.0f), o(rows * dim, NAN), lse(rows, 1.0f), lse_out(rows, NAN);
  const auto part = [&](std::vector<float>& values, std::vector<float>& of) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += static_cast<float>(i);
    return Outputs{tensor(values.data(), {2, tokens, heads, dim}), tensor(of.data(), {2, heads, tokens})};
  };
  gpu::MergeLaunch launch = gpu::merge_launch(part(a, lse), part(b, lse), part(o, lse_out));
  ASSERT_EQ(launch.blocks, 2);
  launch.params.rows = std::int64_t{1} << 40;
  engine.launch(0, {}, engine.kernel(0, emit::merge_text(launch.spec)), launch.blocks, &launch.params,
                sizeof launch.params);
  for (std::size_t i = 0; i < o.size(); ++i) ASSERT_EQ(o[i], (a[i] + b[i]) / 2) << i;
  for (const float x : lse_out) ASSERT_FLOAT_EQ(x, 1 + std::log(2.0f));
}

INSTANTIATE_TEST_SUITE_P(, MergeKernel, testing::Bool(),
                         [](const auto& given) { return given.param ? "Checked" : "Plain"; });

}  // namespace
}  // namespace tessera::tests
