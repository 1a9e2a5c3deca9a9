// Splits of the keys lie where a query tile attends to something, however long the cache around it is: every part has
// work, and together they are the whole. On the emulated GPU, by the plans that a device would get.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "conformance/oracle.hpp"
#include "gpu/decision.hpp"
#include "gpu/gpu_backend.hpp"
#include "sim/engine.hpp"

namespace tessera::tests {
namespace {

using sim::Content;
using sim::Memory;

class Splits : public testing::Test {
 protected:
  sim::Engine engine{{.checked = true, .folder = TESSERA_SIM_CACHE}};
  const gpu::GpuBackend backend{"sim", engine, 80};
  std::vector<std::unique_ptr<Memory>> memory;

  Tensor made(DType dtype, std::initializer_list<std::int64_t> shape, Content content) {
    Tensor t = tensor(static_cast<void*>(nullptr), dtype, shape, {}, {DeviceType::cuda, 0});
    memory.push_back(
        std::make_unique<Memory>("a tensor", static_cast<std::size_t>(t.elements() * size_bytes(dtype)), content));
    t.data = memory.back()->as<void>();
    return t;
  }
  Tensor values(std::initializer_list<std::int64_t> shape) {
    const Tensor t = made(bf16, shape, Content::constant);
    std::mt19937 random(static_cast<unsigned>(memory.size()));
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < t.elements(); ++i) conformance::set_element(t, i, normal(random));
    return t;
  }
  Inputs cache(std::int64_t batch, std::int64_t queries, std::int64_t keys) {
    return {values({batch, queries, 2, 16}), values({batch, keys, 1, 16}), values({batch, keys, 1, 16})};
  }

  // Of each query tile and unit, how many of the splits have found keys for its first row. The result is that of keys
  // that are not split.
  std::vector<std::int64_t> busy(const Inputs& in, Options options) {
    const std::int64_t batch = in.q.shape[0], queries = in.q.shape[1];
    const Outputs out{made(f32, {batch, queries, 2, 16}, Content::nothing),
                      made(f32, {batch, 2, queries}, Content::nothing)};
    const Outputs whole{made(f32, {batch, queries, 2, 16}, Content::nothing),
                        made(f32, {batch, 2, queries}, Content::nothing)};
    PlanData plan = planned(in, out, options);
    const gpu::Decision d =
        gpu::decide(plan.problem, plan.tiles, engine.caps(0), 80);  // as the plan's own, which keeps it to itself
    const Memory workspace("the workspace", std::max<std::size_t>(1, d.layout.bytes), Content::nothing, 256);
    backend.run(plan, in, out, {.workspace = {workspace.as<void>(), d.layout.bytes}});
    options.batch_invariant = true;
    backend.run(planned(in, whole, options), in, whole, {});
    for (const auto& [a, b] : {std::pair{&out.o, &whole.o}, {&out.lse, &whole.lse}})
      for (std::int64_t i = 0; i < a->elements(); ++i) {
        const float x = a->as<float>()[i], y = b->as<float>()[i];
        EXPECT_TRUE(x == y || std::abs(x - y) < 0.02f) << i << ": " << x << " instead of " << y;
      }
    splits = d.splits, k_tile = d.spec.k_tile;
    const float* const lse = reinterpret_cast<const float*>(workspace.as<char>() + d.layout.partial_lse.at);
    std::vector<std::int64_t> all;
    for (std::int64_t item = 0; d.splits > 1 && item < d.items(); item += d.splits) {
      all.push_back(0);
      for (std::int64_t split = 0; split < d.splits; ++split)
        all.back() += lse[(item + split) * d.spec.q_tile] > -INFINITY;
    }
    return all;
  }
  PlanData planned(const Inputs& in, const Outputs& out, const Options& options) {
    PlanData plan;
    plan.problem = describe(in, out, options), plan.tiles = TileMap(options.mask), plan.runner = &backend;
    backend.decide(plan);
    return plan;
  }
  // How many equal parts of whole tiles the keys [begin, end) make: the last splits may be left over.
  std::int64_t parts(std::int64_t begin, std::int64_t end) const {
    const std::int64_t tiles = (end + k_tile - 1) / k_tile - begin / k_tile, each = (tiles + splits - 1) / splits;
    return (tiles + each - 1) / each;
  }
  std::int64_t splits = 0, k_tile = 0;  // of the call before
};

TEST_F(Splits, AWindowFarIntoALongCache) {
  const Inputs in = cache(2, 1, 6000);
  // Wherever the query stands: at the end, at the first keys, in the middle, off a tile's edge.
  for (const std::int64_t at : {5999, 1000, 3001, 5937}) {
    const auto all = busy(in, {.mask = causal() & window(1000, 0), .q_offset = at});
    EXPECT_GE(splits, 3);
    ASSERT_FALSE(all.empty());
    for (const std::int64_t count : all)
      EXPECT_EQ(count, parts(at - 1000, at + 1)) << at << ", " << splits << " splits";
  }
  // What is seen lies partly or wholly outside: nothing is lost, nobody sees what is not there.
  for (const std::int64_t at : {-5, 3, 6500, 9000}) busy(in, {.mask = causal() & window(1000, 0), .q_offset = at});
}

TEST_F(Splits, BandsWithAGapBetween) {
  const Options options{.mask = parse_mask("(q - k < 400 | q - k > 700) & (q - k < 1000) & (k <= q)"),
                        .q_offset = 4000};
  ASSERT_EQ(TileMap(options.mask).bands().size(), 2u);
  const auto all = busy(cache(1, 1, 6000), options);
  EXPECT_GE(splits, 3);
  for (const std::int64_t count : all) EXPECT_GE(count, 2);
}

TEST_F(Splits, SequencesThatUseLittleOfTheirRoom) {
  Inputs in = cache(3, 1, 6000);
  in.pages.lengths = made(i32, {3}, Content::constant);
  const std::int32_t used[] = {5990, 1300, 0};
  std::memcpy(in.pages.lengths.data, used, sizeof used);
  const std::vector<std::int64_t> all = busy(in, {});
  ASSERT_GE(splits, 6);
  ASSERT_EQ(all.size() % 3, 0u);
  const std::size_t units = all.size() / 3;
  for (std::size_t i = 0; i < units; ++i) {
    EXPECT_EQ(all[i], parts(0, 5990));
    EXPECT_EQ(all[units + i], parts(0, 1300));
    EXPECT_GE(all[units + i], 5);
    EXPECT_EQ(all[2 * units + i], 0);
  }
}

TEST_F(Splits, RunsOfAWorkList) {
  Inputs in = cache(1, 1, 6000);
  std::vector<std::int32_t> ids(6000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = i < 4700 ? 1 : 2;  // the query stands in the second document
  in.bind = {{"ids", tensor(ids.data(), {6000})}};
  const std::vector<std::int64_t> all = busy(in, {.mask = causal() & documents("ids")});
  ASSERT_GE(splits, 6);
  for (const std::int64_t count : all) EXPECT_EQ(count, parts(4700, 6000));
  EXPECT_GE(parts(4700, 6000), 5);
}

}  // namespace
}  // namespace tessera::tests
