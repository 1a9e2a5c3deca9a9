// How problems are cut for the kernel of Hopper: tiles, what it refuses, who does what.
#include <gtest/gtest.h>

#include <set>

#include "emit/kernel_text.hpp"
#include "gpu/class_rule.hpp"
#include "gpu/decision.hpp"
#include "gpu/testing/device_call.hpp"
#include "gpu/testing/fake_engine.hpp"
#include "gpu/tile_table_sm90.hpp"

namespace tessera::gpu {
namespace {

using tests::DeviceCall;

Caps hopper() {
  Caps caps = tests::caps_of_h200();
  caps.tensor_maps = true;
  return caps;
}
Decision decided(const DeviceCall& call, const Options& options = {}) {
  const Problem problem = call.problem(options);
  EXPECT_EQ(reasons(problem, hopper(), 90), std::vector<std::string>{}) << problem;
  return decide(problem, TileMap(problem.mask), hopper(), 90);
}
std::string refused(const DeviceCall& call, const Caps& caps) {
  std::string text;
  for (const std::string& reason : reasons(call.problem(), caps, 90)) text += reason + "\n";
  return text;
}

TEST(DecisionSm90, EveryDimHasATileThatFits) {
  for (int dim = 1; dim <= max_dim; ++dim)
    for (const int dim_v : {1, dim, 256})
      for (const bool edges : {false, true})
        for (const bool evaluated : {false, true})
          for (const std::int64_t keys : {1, 1000, 2000, 5000, 100000}) {
            const Tile* tile = find_tile_sm90(tile_table_sm90(), hopper(), {dim, dim_v, edges, evaluated, keys});
            ASSERT_NE(tile, nullptr) << dim << ' ' << dim_v;
            EXPECT_LE(tile_smem_bytes_sm90(*tile, dim, dim_v), hopper().smem_block_bytes);
          }
}
TEST(DecisionSm90, TextOfEveryTile) {
  for (const Tile& tile : tile_table_sm90()) {
    int dim_v = tile.max_dim;  // some are for fewer columns of values alone
    while (tile_smem_bytes_sm90(tile, tile.max_dim, dim_v) > hopper().smem_block_bytes) dim_v -= 64;
    ASSERT_GT(dim_v, 0);
    const DeviceCall call{.queries = 1000, .keys = 1000, .dim = tile.max_dim, .dim_v = dim_v};
    const Problem problem = call.problem();
    const emit::KernelText text =
        emit::forward_text(decide(problem, TileMap(problem.mask), hopper(), 90, std::span(&tile, 1)).spec);
    EXPECT_EQ(text.threads, 32 * tile.warps + 128);
    EXPECT_EQ(static_cast<std::int64_t>(text.smem_bytes), tile_smem_bytes_sm90(tile, tile.max_dim, dim_v));
  }
}
// A row sees its keys in the same steps, however many there are.
TEST(DecisionSm90, OneSizeOfKeysWhereRowsMustNotDependOnOthers) {
  for (const int dim : {64, 128, 256}) {
    std::set<int> sizes;
    for (const std::int64_t keys : {10, 1000, 3000, 30000})
      sizes.insert(
          decided({.queries = 300, .keys = keys, .dim = dim, .dim_v = dim}, {.batch_invariant = true}).spec.k_tile);
    EXPECT_EQ(sizes.size(), 1u) << dim;
  }
}
TEST(DecisionSm90, Refuses) {
  EXPECT_NE(
      refused({.queries = 2, .keys = 2, .dim = 65, .dim_v = 64}, hopper()).find("q has rows at multiples of 2 bytes"),
      std::string::npos);
  Caps other = hopper();
  other.arch = 100, other.name = "a B200";
  EXPECT_NE(refused({}, other).find("compute capability 9.0 alone, a B200 has 10.0"), std::string::npos);
  Caps old = hopper();
  old.tensor_maps = false;
  EXPECT_NE(refused({}, old).find("makes no tensor maps"), std::string::npos);
  EXPECT_EQ(refused({}, hopper()), "");
}
// A call has the same bits in pages and side by side: the same tiles.
TEST(DecisionSm90, TensorStoresWriteWholeChunks) {
  EXPECT_EQ(decided({.queries = 200, .dim = 64, .dim_v = 64}).spec.o_copy, 16);
  EXPECT_LT(decided({.queries = 1, .keys = 1, .dim = 1, .dim_v = 1}).spec.o_copy, 16);
}

TEST(DecisionSm90, TilesDoNotDependOnPages) {
  for (const int dim : {64, 128, 192, 256})
    for (const bool causally : {false, true}) {
      const DeviceCall call{.queries = 300, .keys = 3000, .dim = dim, .dim_v = dim};
      Problem side_by_side = call.problem(causally ? Options{.mask = causal()} : Options{});
      side_by_side.lengths = true;
      Problem paged = side_by_side;
      paged.paged = true, paged.page_size = 40;
      const auto spec = [&](const Problem& p) { return decide(p, TileMap(p.mask), hopper(), 90).spec; };
      EXPECT_EQ(spec(paged).k_tile, spec(side_by_side).k_tile);
      EXPECT_EQ(spec(paged).q_tile, spec(side_by_side).q_tile);
      EXPECT_EQ(spec(paged).page_box, 8);
      EXPECT_EQ(spec(side_by_side).page_box, 0);
    }
}
TEST(DecisionSm90, RefusesTokensThatShareRows) {
  const DeviceCall call{.queries = 200, .keys = 200, .heads_q = 4, .heads_kv = 2};
  const auto reasons_of = [&](const auto& change) {
    Inputs in = call.inputs();
    change(in);
    std::string text;
    for (const std::string& reason : reasons(describe(in, call.outputs()), hopper(), 90)) text += reason + "\n";
    return text;
  };
  EXPECT_EQ(reasons_of([](Inputs& in) { in.k.stride[2] = in.v.stride[2] = 0; }), "") << "key heads may share";
  EXPECT_EQ(reasons_of([](Inputs& in) { in.k.stride[0] = in.q.stride[0] = 0; }), "") << "and batches";
  for (const auto& change : {+[](Inputs& in) { in.q.stride[1] = 0; }, +[](Inputs& in) { in.q.stride[2] = 0; },
                             +[](Inputs& in) { in.k.stride[1] = 0; }, +[](Inputs& in) { in.v.stride[1] = 0; }})
    EXPECT_NE(reasons_of(change).find("share rows by a stride of 0"), std::string::npos);
}
TEST(DecisionSm90, SaysWhatIsLeftToTheOtherClass) {
  const auto left = [](const DeviceCall& call, const Options& options = {}) {
    return left_to_sm80(call.problem(options));
  };
  EXPECT_EQ(left({.queries = 65, .keys = 4096}), "");
  EXPECT_EQ(left({.queries = 16, .keys = 4096, .heads_q = 8, .heads_kv = 1}), "") << "heads of a group are rows, too";
  EXPECT_EQ(left({.queries = 8, .keys = 4096, .heads_q = 8, .heads_kv = 1}),
            "64 rows that share keys (queries of a sequence x heads of a group), fewer than 65: left to cuda:sm_80, it "
            "has tiles of so few rows");
  EXPECT_NE(left({.queries = 4096, .keys = 4096}, {.batch_invariant = true}).find("batch_invariant"),
            std::string::npos);
}
TEST(DecisionSm90, ItemsOfDifferentLengthAreDealt) {
  const DeviceCall call{.queries = 4096, .keys = 4096, .heads_q = 8, .heads_kv = 2, .dim = 128, .dim_v = 128};
  EXPECT_EQ(decided(call).dealt, nullptr);
  const Decision dealt = decided(call, {.mask = causal()});
  ASSERT_NE(dealt.dealt, nullptr);
  EXPECT_EQ(dealt.dealt->begin.size(), 133u);
  EXPECT_EQ(static_cast<std::int64_t>(dealt.dealt->list.size()), dealt.items());
  EXPECT_TRUE(dealt.spec.left_open);
  EXPECT_EQ(dealt.spec.heads, 1);
}

}  // namespace
}  // namespace tessera::gpu
