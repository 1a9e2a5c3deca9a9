// How problems are cut for a GPU: tiles, heads that share one, splits, the kernel's spec, the workspace.
#include "gpu/decision.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "gpu/testing/device_call.hpp"
#include "gpu/testing/fake_engine.hpp"
#include "kernels/params.cuh"

namespace tessera::gpu {
namespace {

using tests::caps_of_h200;
using tests::DeviceCall;

Caps caps_of_rtx() {  // compute capability 8.9: little shared memory
  Caps caps = caps_of_h200();
  caps.name = "an Ada card", caps.arch = 89, caps.sms = 128;
  caps.smem_block_bytes = 101376, caps.smem_sm_bytes = 102400, caps.threads_sm = 1536;
  return caps;
}

Decision decided(const DeviceCall& call, const Options& options = {}, const Caps& caps = caps_of_h200()) {
  const Problem problem = call.problem(options);
  EXPECT_EQ(reasons(problem, caps, 80), std::vector<std::string>{}) << problem;
  return decide(problem, TileMap(problem.mask), caps, 80);
}

TEST(TileTable, EveryDimHasATileThatFits) {
  for (const Caps& caps : {caps_of_h200(), caps_of_rtx()})
    for (int dim = 1; dim <= max_dim; ++dim)
      for (int dim_v : {1, dim, 256})
        for (std::int64_t rows : {1, 17, 64, 5000})
          for (bool paged : {false, true}) {
            const Tile* tile = find_tile(tile_table(), caps, dim, dim_v, paged, rows);
            ASSERT_NE(tile, nullptr) << caps.name << ' ' << dim << ' ' << dim_v;
            EXPECT_LE(tile_smem_bytes(*tile, dim, dim_v, paged), caps.smem_block_bytes);
            EXPECT_GE(tile->max_dim, std::max(dim, dim_v));
            EXPECT_EQ(tile->q_tile * tile->warps_n % (16 * tile->warps), 0);
          }
}

// batch_invariant rests on it: a row sees its keys in the same steps, in prefill and in decode.
TEST(TileTable, KeysOfATileDependOnTheDimsAlone) {
  for (const Caps& caps : {caps_of_h200(), caps_of_rtx()})
    for (int dim = 1; dim <= max_dim; ++dim) {
      std::set<int> k_tiles;
      for (std::int64_t rows = 1; rows < 300; ++rows)
        k_tiles.insert(find_tile(tile_table(), caps, dim, dim, false, rows)->k_tile);
      EXPECT_EQ(k_tiles.size(), 1u) << dim;
    }
}

TEST(Decision, AFixedReferenceWhereScoresStayNearTheLastTile) {
  const auto fixed = [](const char* score, const Mask& mask, bool invariant = false) {
    return decided({.queries = 512, .keys = 512},
                   {.mask = mask, .score = parse_score(score), .batch_invariant = invariant})
        .spec.fixed;
  };
  EXPECT_TRUE(fixed("s", causal()));
  EXPECT_FALSE(fixed("s", causal(), true));
  EXPECT_TRUE(fixed("softcap(30)", full()));
  EXPECT_TRUE(fixed("s - 0.5 * real(h + 1) * real(q - k)", causal()));
  EXPECT_FALSE(fixed("s + 0.5 * real(h + 1) * real(q - k)", causal()));  // grows towards the first key
  EXPECT_TRUE(fixed("s + 0.1 * real(q - k)", causal()));                 // by 51, which leaves room
  EXPECT_FALSE(fixed("s - 0.5 * real(abs(q - k))", full()));             // the last key is far from the first query
  EXPECT_FALSE(
      fixed("s - 0.5 * real(q - k)", parse_mask("k <= q & (k % 3 == 0)")));  // where its tiles are is not known
}

TEST(Decision, TilesOfFewKeysHaveFewRowsAtLargeDims) {
  const auto rows = [](std::int64_t n, const Mask& mask) {
    return decided({.queries = n, .keys = n, .dim = 256, .dim_v = 256}, {.mask = mask}).spec.q_tile;
  };
  EXPECT_EQ(rows(512, full()), 64);
  EXPECT_EQ(rows(1024, full()), 128);
  EXPECT_EQ(rows(2048, causal()), 64);
  EXPECT_EQ(rows(8192, causal()), 128);
  EXPECT_EQ(rows(8192, window(1023, 0)), 64);
}

TEST(Decision, AFewQueriesShareATileWithTheirGroup) {
  const Decision one = decided({.queries = 1, .keys = 300, .heads_q = 32, .heads_kv = 4});
  EXPECT_EQ(one.spec.heads, 8);
  EXPECT_EQ(one.spec.q_tile, 16);
  EXPECT_EQ(one.queries, 2);
  EXPECT_EQ(one.units, 4);
  const Decision odd = decided({.queries = 9, .keys = 300, .heads_q = 14, .heads_kv = 2});
  EXPECT_EQ(odd.spec.heads, 7);
  EXPECT_EQ(odd.spec.q_tile, 64);
  EXPECT_EQ(odd.queries, 9);
  EXPECT_EQ(odd.tiles, 1);
  const Decision many = decided({.queries = 500, .keys = 500, .heads_q = 32, .heads_kv = 4});
  EXPECT_EQ(many.spec.heads, 1);
  EXPECT_EQ(many.units, 32);
  EXPECT_EQ(many.queries, many.spec.q_tile);
}

TEST(Decision, KeysAreSplitWhereThereAreTooFewTiles) {
  const Decision decode = decided({.queries = 1, .keys = 32768, .heads_q = 8, .heads_kv = 1, .dim = 128, .dim_v = 128});
  EXPECT_GT(decode.splits, 60);
  EXPECT_TRUE(decode.spec.split);
  EXPECT_EQ(decode.kv_split % decode.spec.k_tile, 0);
  EXPECT_GE(decode.splits * decode.kv_split, 32768);
  EXPECT_LT((decode.splits - 1) * decode.kv_split, 32768);
  EXPECT_EQ(decode.layout.partial_o.bytes,
            static_cast<std::size_t>(decode.items() * decode.spec.q_tile * 128) * sizeof(float));
  EXPECT_EQ(decode.layout.bytes, decode.layout.partial_o.bytes + decode.layout.partial_lse.bytes);

  const Decision prefill = decided({.batch = 4, .queries = 4096, .keys = 4096, .heads_q = 16, .heads_kv = 16});
  EXPECT_EQ(prefill.splits, 1);
  EXPECT_FALSE(prefill.spec.split);
  EXPECT_EQ(prefill.layout.bytes, 0u);

  const Decision few_keys = decided({.queries = 1, .keys = 100});
  EXPECT_EQ(few_keys.splits, 1);
}

TEST(Decision, BatchInvarianceLeavesKeysWhole) {
  const DeviceCall call{.queries = 1, .keys = 32768, .heads_q = 8, .heads_kv = 1};
  EXPECT_GT(decided(call).splits, 1);
  EXPECT_EQ(decided(call, {.batch_invariant = true}).splits, 1);
}

// A window reaches few keys: they are what is split, not all that there are.
TEST(Decision, SplitsFollowWhatAWindowReaches) {
  const DeviceCall call{.queries = 1, .keys = 65536, .heads_q = 8, .heads_kv = 1, .dim = 128, .dim_v = 128};
  const Decision window = decided(call, {.mask = causal() & tessera::window(4095, 0)});
  EXPECT_LE(window.kv_split, 4096 / 8);
  // As many parts as for a cache that ends where the window does: none is for keys that nobody sees.
  EXPECT_GT(window.splits, 8);
  EXPECT_LE((window.splits - 1) * window.kv_split, 4096 + window.spec.k_tile);
  EXPECT_GE(window.splits * window.kv_split, 4096 + window.spec.k_tile - 1);
  DeviceCall shorter = call;
  shorter.keys = 4096 + 64;
  EXPECT_EQ(decided(shorter, {.mask = causal() & tessera::window(4095, 0)}).splits, window.splits);
}

TEST(Decision, MasksBecomeBandsRunsOrAreEvaluated) {
  const DeviceCall call{.queries = 500, .keys = 500, .heads_q = 4, .heads_kv = 4};
  EXPECT_EQ(decided(call).spec.keys, emit::Keys::all);
  const Decision causal_one = decided(call, {.mask = causal()});
  EXPECT_EQ(causal_one.spec.keys, emit::Keys::bands);
  EXPECT_EQ(causal_one.spec.bands, 1);
  EXPECT_TRUE(causal_one.spec.mask.nodes.empty());
  EXPECT_EQ(decided(call, {.mask = parse_mask("!window(5, 3)")}).spec.bands, 2);
  EXPECT_EQ(decided(call, {.mask = parse_mask("false")}).spec.bands, 0);
  EXPECT_EQ(decided(call, {.mask = parse_mask("false")}).spec.keys, emit::Keys::bands);

  const Decision runs = decided(call, {.mask = parse_mask("k <= q & (q // 64) % 2 == (k // 64) % 2")});
  EXPECT_EQ(runs.spec.keys, emit::Keys::runs);
  ASSERT_TRUE(runs.runs);
  EXPECT_FALSE(runs.spec.mask.nodes.empty());
  EXPECT_EQ(runs.runs->at(0, 0).query_tiles(), static_cast<std::size_t>(runs.tiles));
  // Heads that attend to different keys do not share a tile's runs.
  const Decision by_head =
      decided({.queries = 2, .keys = 500, .heads_q = 8, .heads_kv = 1}, {.mask = parse_mask("k * h % 3 == 0")});
  EXPECT_GT(by_head.spec.heads, 1);
  EXPECT_EQ(by_head.spec.keys, emit::Keys::all);
  EXPECT_FALSE(by_head.spec.mask.nodes.empty());
}

TEST(Decision, AlignmentIsWhatAddressesAndStridesAllow) {
  EXPECT_EQ(decided({}).spec.k_copy, 16);
  EXPECT_EQ(decided({.shift_bytes = 4}).spec.k_copy, 4);
  EXPECT_EQ(decided({.shift_bytes = 2}).spec.o_copy, 2);
}

TEST(Decision, PositionsThatFitIn32BitsAreNarrow) {
  const DeviceCall call{.queries = 8, .keys = 100};
  EXPECT_TRUE(decided(call).spec.narrow);
  EXPECT_TRUE(decided(call, {.q_offset = -1000}).spec.narrow);
  EXPECT_FALSE(decided(call, {.q_offset = std::int64_t{1} << 29}).spec.narrow);
  EXPECT_FALSE(decided(call, {.q_offset = -(std::int64_t{1} << 40)}).spec.narrow);
}

TEST(Decision, EveryReasonIsGiven) {
  const auto all = [](const Problem& problem, const Caps& caps) {
    std::string text;
    for (const std::string& reason : reasons(problem, caps, 80)) text += reason + "\n";
    return text;
  };
  DeviceCall call{.dim = 300, .dim_v = 512, .dtype = f32, .out = f32};
  Caps old = caps_of_h200();
  old.arch = 75, old.name = "a T4";
  const std::string text = all(call.problem(), old);
  for (const char* part : {"compute capability 8.0, a T4 has 7.5", "q, k and v are f32: tensor cores take bf16 and f16",
                           "the head dim of q and k is 300: the gpu kernels take 1 to 256",
                           "the head dim of v is 512: the gpu kernels take 1 to 256"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;

  const DeviceCall huge{.batch = 1 << 20, .queries = 1, .heads_q = 1 << 12, .heads_kv = 1 << 12, .dim = 1, .dim_v = 1};
  EXPECT_NE(all(huge.problem(), caps_of_h200()).find("a launch has at most 2147483647 blocks"), std::string::npos);
  EXPECT_EQ(all(DeviceCall{.batch = 100000, .heads_q = 3, .heads_kv = 3}.problem(), caps_of_h200()), "");

  std::string score = "s";
  for (int i = 0; i < 250; ++i) score = "(" + score + " + param(" + std::to_string(i) + ".5))";
  EXPECT_EQ(all(DeviceCall{}.problem({.score = parse_score(score)}), caps_of_h200()), "");
  std::string mask = "k > 0";
  for (int i = 0; i < 250; ++i) mask += " & (q * k != param(" + std::to_string(i) + "))";
  EXPECT_NE(all(DeviceCall{}.problem({.mask = parse_mask(mask), .score = parse_score(score)}), caps_of_h200())
                .find("4096 are allowed"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::gpu
