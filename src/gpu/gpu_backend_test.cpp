// What a GPU backend asks of its engine: which kernels, in which order, with which parameters, and what it refuses.
#include "gpu/gpu_backend.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "emit/kernel_text.hpp"
#include "gpu/testing/device_call.hpp"
#include "gpu/testing/fake_engine.hpp"
#include "kernels/params.cuh"
#include "kernels/prepare_params.cuh"
#include "unit/count_allocations.hpp"
#include "unit/failure_of.hpp"

namespace tessera::gpu {
namespace {

using tessera_kernels::ForwardParams;
using tests::DeviceCall;
using tests::FakeEngine;

constexpr Device device{DeviceType::cuda, 0};

// A plan of one backend, as plan() makes it.
PlanData planned(const GpuBackend& backend, const Problem& problem) {
  PlanData plan;
  plan.problem = problem, plan.tiles = TileMap(problem.mask);
  plan.backend = backend.name(), plan.isa = backend.variant(), plan.runner = &backend;
  backend.decide(plan);
  return plan;
}

ForwardParams params_of(const FakeEngine::Launch& launch) {
  ForwardParams params;
  std::memcpy(&params, launch.params.data(), sizeof params);
  return params;
}

std::vector<std::int64_t> numbers(const FakeEngine::Upload& upload) {
  std::vector<std::int64_t> all(upload.bytes.size() / sizeof(std::int64_t));
  std::memcpy(all.data(), upload.bytes.data(), upload.bytes.size());
  return all;
}

struct GpuBackendTest : testing::Test {
  FakeEngine engine;
  const GpuBackend backend{"fake", engine, 80};
};

TEST_F(GpuBackendTest, LaunchesForwardWithTheTensors) {
  const DeviceCall call{
      .batch = 3, .queries = 500, .keys = 700, .heads_q = 6, .heads_kv = 2, .dim = 72, .dim_v = 40, .lse = true};
  const Options options{.mask = causal() & window(99, 0)};
  const PlanData plan = planned(backend, call.problem(options));
  int stream = 0;
  const Inputs in = call.inputs();
  const Outputs out = call.outputs();
  backend.run(plan, in, out, {.stream = {&stream}});
  ASSERT_EQ(engine.launches.size(), 1u);
  const FakeEngine::Launch& launch = engine.launches[0];
  EXPECT_EQ(launch.stream, &stream);
  EXPECT_EQ(launch.blocks, plan.tiling.items);
  const ForwardParams p = params_of(launch);
  EXPECT_EQ(p.q.data, in.q.data);
  EXPECT_EQ(p.q.batch, 500 * 6 * 72);
  EXPECT_EQ(p.k.token, 2 * 72);
  EXPECT_EQ(p.v.head, 40);
  EXPECT_EQ(p.o.data, out.o.data);
  EXPECT_EQ(p.lse, out.lse.data);
  EXPECT_EQ(p.lse_batch, 6 * 500);
  EXPECT_EQ(p.lse_head, 500);
  EXPECT_EQ(p.lse_token, 1);
  EXPECT_EQ(p.sequences.batch, 3);
  EXPECT_EQ(p.sequences.tokens_q, 500);
  EXPECT_EQ(p.sequences.tokens_k, 700);
  EXPECT_EQ(p.sequences.cu_q.bytes, 0);
  EXPECT_FALSE(p.sequences.has_offset);
  EXPECT_EQ(p.heads_q, 6);
  EXPECT_EQ(p.heads_kv, 2);
  EXPECT_FLOAT_EQ(p.scale, plan.problem.scale);
  EXPECT_EQ(p.band_lo[0], -99);
  EXPECT_EQ(p.band_hi[0], 0);
  // What bands describe is not evaluated: no arguments of the mask but the word that every struct has.
  EXPECT_EQ(launch.params.size(), emit::forward_param_bytes({}));
  EXPECT_EQ(p.tiles, 3 * ((500 + plan.tiling.q_tile - 1) / plan.tiling.q_tile));
  EXPECT_TRUE(engine.uploads.empty());
}

TEST_F(GpuBackendTest, SplitKeysAreCombined) {
  const DeviceCall call{.batch = 2, .queries = 1, .keys = 9000, .heads_q = 8, .heads_kv = 2};
  const PlanData plan = planned(backend, call.problem());
  ASSERT_GT(plan.tiling.splits, 1);
  backend.run(plan, call.inputs(), call.outputs(), {});
  ASSERT_EQ(engine.launches.size(), 2u);
  EXPECT_EQ(engine.launches[0].blocks, plan.tiling.items);
  EXPECT_EQ(engine.launches[1].blocks * plan.tiling.splits, plan.tiling.items);
  EXPECT_NE(engine.launches[0].kernel, engine.launches[1].kernel);
  const ForwardParams p = params_of(engine.launches[0]), c = params_of(engine.launches[1]);
  EXPECT_EQ(p.splits, plan.tiling.splits);
  ASSERT_NE(p.partial_o, nullptr);
  EXPECT_EQ(c.partial_o, p.partial_o);
  EXPECT_EQ(c.partial_lse, p.partial_lse);
  const auto distance = reinterpret_cast<const char*>(p.partial_lse) - reinterpret_cast<const char*>(p.partial_o);
  EXPECT_EQ(distance, plan.tiling.items * plan.tiling.panel * 64 * 4);
}

TEST_F(GpuBackendTest, PrefixSumsOnTheHostAreBroughtOver) {
  DeviceCall call{.queries = 40, .keys = 60, .heads_q = 2, .heads_kv = 2};
  Inputs in = call.inputs();
  Outputs out = call.outputs();
  for (Tensor* t : {&in.q, &in.k, &in.v, &out.o})
    *t = tensor(t->data, t->dtype, {t->shape[1], t->shape[2], t->shape[3]}, {}, device);
  std::int32_t cu_q[] = {0, 20, 20, 37}, cu_k[] = {0, 0, 55, 60};
  in.packed = {tensor(cu_q, {4}), tensor(cu_k, {4})};
  const PlanData plan = planned(backend, describe(in, out));
  const std::int64_t queries = plan.tiling.q_tile;
  backend.run(plan, in, out, {});
  ASSERT_EQ(engine.uploads.size(), 1u);
  const std::int64_t first = (20 + queries - 1) / queries, last = (17 + queries - 1) / queries;
  EXPECT_EQ(numbers(engine.uploads[0]),
            (std::vector<std::int64_t>{0, 20, 20, 37, 0, 0, 55, 60, 0, first, first, first + last}));
  ASSERT_EQ(engine.launches.size(), 1u);
  const ForwardParams p = params_of(engine.launches[0]);
  EXPECT_EQ(p.sequences.batch, 3);
  EXPECT_EQ(p.sequences.cu_q.data, engine.uploads[0].to);
  EXPECT_EQ(p.sequences.cu_q.bytes, 8);
  EXPECT_EQ(p.q.batch, 0);
  EXPECT_EQ(p.tiles, first + last);
  EXPECT_EQ(engine.launches[0].blocks, (first + last) * plan.problem.heads_q / plan.tiling.heads_per_tile);
  EXPECT_LE(engine.uploads[0].bytes.size(), plan.partial_bytes);
}

// Document ids on the host: the list of tiles comes from their values, anew in every call, and the kernel gets a copy.
TEST_F(GpuBackendTest, TablesOnTheHostAndTheirWorkListAreBroughtOver) {
  const DeviceCall call{.queries = 512, .keys = 512, .heads_q = 2, .heads_kv = 2};
  std::vector<std::int32_t> ids(512);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = i < 256 ? 7 : 9;
  Inputs in = call.inputs();
  in.bind = {{"ids", tensor(ids.data(), {512})}};
  const PlanData plan = planned(backend, describe(in, call.outputs(), {.mask = documents("ids")}));
  const std::int64_t tiles = 512 / plan.tiling.q_tile, k_tile = plan.tiling.k_block;
  backend.run(plan, in, call.outputs(), {});
  ASSERT_EQ(engine.uploads.size(), 3u);
  EXPECT_EQ(engine.uploads[0].bytes.size(), 512 * sizeof(std::int32_t));
  ForwardParams p = params_of(engine.launches.back());
  const auto first_run = [&](std::int64_t tile) { return p.runs[p.run_ranges[tile].begin]; };
  EXPECT_EQ(first_run(0).begin, 0u);
  EXPECT_EQ(first_run(0).end_full, static_cast<unsigned>(256 / k_tile) | 1u << 31);
  EXPECT_EQ(first_run(tiles - 1).begin, static_cast<unsigned>(256 / k_tile));
  ids[300] = 8;  // that key is no longer in the second document
  backend.run(plan, in, call.outputs(), {});
  p = params_of(engine.launches.back());
  EXPECT_EQ(first_run(tiles - 1).end_full, static_cast<unsigned>(300 / k_tile + 1));
}

// What only the device sees, a kernel finds there, before the forward kernel and in the memory that that one reads.
TEST_F(GpuBackendTest, NumbersAndTablesOnTheDeviceAreLookedAtThere) {
  const DeviceCall call{.queries = 4000, .keys = 4000, .heads_q = 2, .heads_kv = 2};
  Inputs in = call.inputs();
  Outputs out = call.outputs();
  for (Tensor* t : {&in.q, &in.k, &in.v, &out.o})
    *t = tensor(t->data, t->dtype, {t->shape[1], t->shape[2], t->shape[3]}, {}, device);
  in.packed = {tensor(call.address(5), i32, {4}, {}, device), tensor(call.address(6), i32, {4}, {}, device)};
  in.bind = {{"ids", tensor(call.address(7), i32, {4000}, {}, device)}};
  const PlanData plan = planned(backend, describe(in, out, {.mask = documents("ids"), .batch_invariant = true}));
  EXPECT_GT(plan.partial_bytes, 0u);
  for (int round = 0; round < 2; ++round) {
    engine.launches.clear();
    backend.run(plan, in, out, {});
    ASSERT_GE(engine.launches.size(), 3u);  // summaries of the ids, the runs, attention
    EXPECT_TRUE(engine.uploads.empty());
    for (std::size_t i = 0; i + 1 < engine.launches.size(); ++i)
      EXPECT_EQ(engine.launches[i].kernel, "tessera_prepare");
    EXPECT_NE(engine.launches.back().kernel, "tessera_prepare");
    tessera_kernels::PrepareParams prepare;
    std::memcpy(&prepare, engine.launches[0].params.data(), sizeof prepare);
    const ForwardParams forward = params_of(engine.launches.back());
    EXPECT_EQ(prepare.sequences.cu_q.data, in.packed.cu_q.data);
    EXPECT_EQ(prepare.sequences.cu_q.bytes, 4);
    ASSERT_NE(prepare.tiles_before, nullptr);
    EXPECT_EQ(prepare.tiles_before, forward.tiles_before);
    EXPECT_EQ(prepare.run_ranges, forward.run_ranges);
    EXPECT_EQ(prepare.runs, forward.runs);
    EXPECT_NE(prepare.entries[0], nullptr);
    EXPECT_EQ(prepare.entries[1], nullptr);
    EXPECT_EQ(prepare.tiles, forward.runs_tiles);
    EXPECT_EQ(prepare.tiles, (4000 + plan.tiling.q_tile - 1) / plan.tiling.q_tile + 3);  // at most
    EXPECT_EQ(engine.launches.back().blocks, prepare.tiles * 2 / plan.tiling.heads_per_tile);
  }
  // The host knows less and does less: no summaries, no runs, where bands say it all.
  const PlanData bands = planned(backend, describe(in, out, {.mask = causal(), .batch_invariant = true}));
  engine.launches.clear();
  backend.run(bands, in, out, {});
  EXPECT_EQ(engine.launches.size(), 2u);
}

TEST_F(GpuBackendTest, PagesOnTheHostAreBroughtOver) {
  const DeviceCall call{.batch = 2, .queries = 3, .keys = 1, .heads_q = 2, .heads_kv = 2};
  Inputs in = call.inputs();
  in.k = tensor(call.address(1), bf16, {50, 16, 2, 64}, {}, device),
  in.v = tensor(call.address(2), bf16, {50, 16, 2, 64}, {}, device);
  std::int32_t table[2][5] = {{3, 4, 5, 2147480000, 0}, {7, 8, 9, 10, 11}}, lengths[] = {40, 60};
  in.pages = {tensor(&table[0][0], {2, 4}, {5, 1}), tensor(lengths, {2})};
  const PlanData plan = planned(backend, describe(in, call.outputs()));
  backend.run(plan, in, call.outputs(), {});
  ASSERT_EQ(engine.uploads.size(), 2u);
  EXPECT_EQ(numbers(engine.uploads[0]), (std::vector<std::int64_t>{40, 60}));
  const ForwardParams p = params_of(engine.launches[0]);
  EXPECT_EQ(p.block_table, engine.uploads[1].to);
  EXPECT_EQ(p.table_stride, 4);
  EXPECT_EQ(p.block_table[3], 2147480000);
  EXPECT_EQ(p.block_table[4], 7);
  EXPECT_EQ(p.page_size, 16);
  EXPECT_EQ(p.pages, 50);
  EXPECT_EQ(p.sequences.tokens_k, 64);
  EXPECT_EQ(p.k.batch, 16 * 2 * 64);  // of a page
}

TEST_F(GpuBackendTest, AWorkListIsUploadedOnceAndKeptByEveryCall) {
  const DeviceCall call{.batch = 2, .queries = 300, .keys = 300, .heads_q = 4, .heads_kv = 4};
  const PlanData plan =
      planned(backend, call.problem({.mask = parse_mask("k <= q & (q // 64 + b) % 2 == (k // 64) % 2")}));
  ASSERT_GT(plan.tiling.run_queries, 0);
  for (int i = 0; i < 3; ++i) backend.run(plan, call.inputs(), call.outputs(), {});
  EXPECT_EQ(engine.constants, 1);
  EXPECT_EQ(engine.kept, 3);
  const ForwardParams p = params_of(engine.launches[2]);
  ASSERT_NE(p.run_ranges, nullptr);
  EXPECT_EQ(p.runs_tiles, (300 + plan.tiling.q_tile - 1) / plan.tiling.q_tile);
  EXPECT_EQ(p.runs_batch, 1);  // a map for each sequence,
  EXPECT_EQ(p.runs_head, 0);   // the same for all heads
  EXPECT_EQ(p.run_ranges[0].begin, 0u);
  EXPECT_EQ(p.run_ranges[1].begin, p.run_ranges[0].end);
  const auto& run = p.runs[p.run_ranges[0].begin];
  EXPECT_EQ(run.begin, 0u);
  EXPECT_EQ(run.end_full & 0x7fffffffu, static_cast<unsigned>(plan.tiling.q_tile / plan.tiling.run_keys));
}

TEST_F(GpuBackendTest, ARepeatedCallCompilesAndAllocatesNothing) {
  const DeviceCall call{.batch = 2, .queries = 1, .keys = 9000, .heads_q = 8, .heads_kv = 2};
  std::vector<float> slopes(8);
  const Options options{.score = alibi("slope")};
  Inputs in = call.inputs();
  in.bind = {{"slope", tensor(call.address(5), f32, {8}, {}, device)}};
  const PlanData plan = planned(backend, describe(in, call.outputs(), options));
  const Workspace workspace{call.address(6), plan.partial_bytes};
  backend.run(plan, in, call.outputs(), {.workspace = workspace});
  const int compiled = engine.compiled;
  EXPECT_EQ(compiled, 2);
  engine.forgets = true;
  const tests::AllocationCount count;
  backend.run(plan, in, call.outputs(), {.workspace = workspace});
  EXPECT_EQ(count.of_this_thread(), 0u);
  EXPECT_EQ(engine.compiled, compiled);
  EXPECT_TRUE(engine.uploads.empty());
}

TEST_F(GpuBackendTest, TensorsElsewhereAreRefusedByName) {
  const DeviceCall call{.queries = 5, .keys = 9};
  const PlanData plan = planned(backend, call.problem());
  engine.places[call.inputs().v.data] = {-1, "host memory"};
  Failure failure = failure_of([&] { backend.run(plan, call.inputs(), call.outputs(), {}); });
  EXPECT_EQ(failure.code, Code::invalid_device);
  EXPECT_NE(failure.text.find("v is said to be on device 0, its address is host memory"), std::string::npos)
      << failure.text;
  engine.places = {{call.outputs().o.data, {3, ""}}};
  failure = failure_of([&] { backend.run(plan, call.inputs(), call.outputs(), {}); });
  EXPECT_NE(failure.text.find("o is said to be on device 0, its address is memory of device 3"), std::string::npos)
      << failure.text;
  EXPECT_TRUE(engine.launches.empty());
}

TEST_F(GpuBackendTest, AWorkspaceTooSmallIsRefused) {
  const DeviceCall call{.queries = 1, .keys = 9000};
  const PlanData plan = planned(backend, call.problem());
  ASSERT_GT(plan.partial_bytes, 0u);
  const Failure failure = failure_of([&] {
    backend.run(plan, call.inputs(), call.outputs(), {.workspace = {call.address(5), plan.partial_bytes - 1}});
  });
  EXPECT_EQ(failure.code, Code::workspace_too_small);
  EXPECT_NE(failure.text.find(std::to_string(plan.partial_bytes)), std::string::npos) << failure.text;
}

TEST_F(GpuBackendTest, NoQueriesLaunchNothing) {
  const DeviceCall call{.queries = 0, .keys = 9};
  backend.run(planned(backend, call.problem()), call.inputs(), call.outputs(), {});
  EXPECT_TRUE(engine.launches.empty());
}

TEST_F(GpuBackendTest, SaysWhyItCannot) {
  EXPECT_EQ(backend.full_name(), "fake:sm_80");
  Problem cpu = DeviceCall{}.problem();
  cpu.device = {};
  EXPECT_EQ(backend.supports(cpu),
            (std::vector<std::string>{"the tensors are on the cpu: they must be on a CUDA device"}));
  Problem other = DeviceCall{}.problem();
  other.device.index = 7;
  EXPECT_EQ(backend.supports(other),
            (std::vector<std::string>{"the tensors are on device 7: there are 1, numbered from 0"}));
  engine.nothing_here = "no driver";
  EXPECT_EQ(backend.missing(), "no driver");
  EXPECT_TRUE(backend.supports(other).empty());  // nobody to ask; what is missing is said already
}

// Explaining compiles nothing; what is compiled shows what it takes.
TEST_F(GpuBackendTest, ExplainsItself) {
  const DeviceCall call{.batch = 2, .queries = 700, .keys = 700, .heads_q = 4, .heads_kv = 4};
  const auto plan = std::make_shared<PlanData>(planned(backend, call.problem({.mask = causal()})));
  const auto text = [&] {
    std::ostringstream out;
    out << Plan(plan);
    return out.str();
  };
  const std::string before = text();
  EXPECT_EQ(engine.compiled, 0);
  for (const char* part :
       {"fake:sm_80", "NVIDIA H200, 132 multiprocessors", "\n  kernel     ", "compiled when it is first run",
        "B of shared memory, at most ", "\n  waves      ", "of arithmetic at 989 TFLOP/s", "of memory at 4.8 TB/s"})
    EXPECT_NE(before.find(part), std::string::npos) << part << " is not in:\n" << before;
  backend.run(*plan, call.inputs(), call.outputs(), {});
  const std::string after = text();
  EXPECT_NE(after.find("168 registers"), std::string::npos) << after;
  EXPECT_NE(after.find("3 blocks a multiprocessor; in memory"), std::string::npos) << after;
}

}  // namespace
}  // namespace tessera::gpu
