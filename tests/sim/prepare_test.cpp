// The prepare kernel on the emulated GPU, plain and checked: the tiles before each sequence, and the very runs that the
// host derives, from lengths, prefix sums and captured tensors in the memory of the device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "emit/prepare_text.hpp"
#include "emit/testing/compiled_text.hpp"
#include "kernels/prepare_params.cuh"
#include "sim/compile.hpp"
#include "sim/folder.hpp"
#include "sim/launch.hpp"
#include "sim/region.hpp"
#include "tiles/run_maps.hpp"
#include "tiles/testing/random_masks.hpp"

namespace tessera::sim {
namespace {

using mods::Table;
using tests::bind;
using tests::Bound;
using tests::table;
using tiles::Grid;
using tiles::Run;

// What a call knows of its sequences.
struct Shape {
  std::int64_t batch = 1, tokens_q = 0, tokens_k = 0, heads = 1;
  std::vector<std::int32_t> cu_q{}, cu_k{}, lengths{};
  std::vector<std::int64_t> q_offset{};
  std::optional<std::int64_t> q_offset_all{};

  // What it means, by the rule for what is out of range.
  Grid grid(std::int64_t b, int q_tile, int k_tile) const {
    const auto i = static_cast<std::size_t>(b);
    const auto rows = [&](const std::vector<std::int32_t>& cu, std::int64_t total) {
      if (cu.empty()) return total;
      const std::int64_t begin = std::clamp<std::int64_t>(cu[i], 0, total);
      return std::clamp<std::int64_t>(cu[i + 1], begin, total) - begin;
    };
    Grid grid{0, rows(cu_q, tokens_q), rows(cu_k, tokens_k), q_tile, k_tile};
    if (!lengths.empty()) grid.keys = std::clamp<std::int64_t>(lengths[i], 0, grid.keys);
    grid.q_offset = !q_offset.empty() ? q_offset[i] : q_offset_all.value_or(grid.keys - grid.queries);
    return grid;
  }
};

// A call of the prepare kernel, with all that it writes.
class Call {
 public:
  Call(const emit::PrepareSpec& spec, const Shape& shape, const std::vector<Table>& tables, bool checked,
       const Schedule& schedule)
      : spec_(spec), shape_(shape) {
    const emit::KernelText text = emit::prepare_text(spec);
    const LoadedCode& code = compiled({"g++", cache_folder(), checked}, text.name, text.source);
    const std::vector<Table> on_device = moved(tables);
    std::vector<std::uint64_t> words(emit::prepare_param_bytes(spec) / 8);
    auto& p = reinterpret_cast<tessera_kernels::PrepareParams&>(words[0]);
    p.sequences = {shape.batch,
                   shape.tokens_q,
                   shape.tokens_k,
                   numbers(shape.cu_q),
                   numbers(shape.cu_k),
                   numbers(shape.lengths),
                   numbers(shape.q_offset),
                   shape.q_offset_all.value_or(0),
                   shape.q_offset_all.has_value(),
                   made<unsigned>("error", 1, Content::given)};
    *p.sequences.error = 0;
    const mods::Dependence sees = mods::dependence(spec.mask);
    const bool differ = sees.batch || !shape.lengths.empty() || !shape.q_offset.empty();
    p.map_batch = !spec.packed && differ ? shape.batch : 1, p.map_heads = sees.head ? shape.heads : 1;
    p.tiles = (shape.tokens_q + spec.queries - 1) / spec.queries + (spec.packed ? shape.batch : 0);
    if (spec.packed) p.tiles_before = made<tessera_kernels::i64>("tiles_before", shape.batch + 1, Content::nothing);
    const std::int64_t items = p.tiles * p.map_batch * p.map_heads;
    if (spec.runs) {
      p.run_limit = emit::run_limit((shape.tokens_k + spec.k_tile - 1) / spec.k_tile);
      p.run_ranges = made<tessera_kernels::RunRange>("run_ranges", items, Content::nothing);
      p.runs = made<tessera_kernels::KeyRun>("runs", items * p.run_limit, Content::nothing);
      for (std::size_t i = 0; i < tables.size(); ++i)
        if (const std::size_t bytes = emit::summary_bytes(spec.mask.captures[i], tables[i]))
          p.entries[i] = made<char>("summary", static_cast<std::int64_t>(bytes), Content::nothing);
      emit::pack_prepare_arguments(spec, on_device, words.data() + sizeof p / 8);
    }
    for (const emit::PrepareLaunch& l : emit::prepare_launches(spec, on_device, spec.runs ? items : 0)) {
      p.stage = l.stage, p.pass = l.pass;
      const Result result = launch(code, l.blocks, text.threads, text.smem_bytes, words.data(), schedule);
      EXPECT_TRUE(result.ok()) << "stage " << l.stage << " pass " << l.pass << "\n" << text_of(result);
      ++launches;
    }
    std::memcpy(&params, words.data(), sizeof params);
  }

  std::vector<std::int64_t> tiles_before() const {
    return {params.tiles_before, params.tiles_before + shape_.batch + 1};
  }
  unsigned error() const { return *params.sequences.error; }
  std::vector<Run> runs(std::int64_t b, std::int64_t h, std::int64_t tile) const {
    std::int64_t item = params.map_heads > 1 ? h : 0;
    if (spec_.packed) item = item * params.tiles + params.tiles_before[b] + tile;
    else item = ((params.map_batch > 1 ? b * params.map_heads : 0) + item) * params.tiles + tile;
    std::vector<Run> all;
    for (unsigned i = params.run_ranges[item].begin; i < params.run_ranges[item].end; ++i) {
      Run run;
      run.begin = params.runs[i].begin, run.end = params.runs[i].end_full & 0x7fffffffu;
      run.full = static_cast<bool>(params.runs[i].end_full >> 31);
      all.push_back(run);
    }
    return all;
  }
  tessera_kernels::PrepareParams params;
  int launches = 0;

 private:
  template <class T>
  T* made(const char* name, std::int64_t count, Content content) {
    memory_.push_back(std::make_unique<Memory>(name, static_cast<std::size_t>(count) * sizeof(T), content));
    return memory_.back()->as<T>();
  }
  template <class T>
  T* copied(const char* name, const T* from, std::size_t count) {
    T* to = made<T>(name, static_cast<std::int64_t>(count), Content::constant);
    std::memcpy(to, from, count * sizeof(T));
    return to;
  }
  template <class T>
  tessera_kernels::Numbers numbers(const std::vector<T>& values) {
    if (values.empty()) return {};
    return {copied("numbers", values.data(), values.size()), sizeof(T), 1};
  }
  std::vector<Table> moved(std::vector<Table> tables) {
    for (Table& t : tables) {
      std::int64_t last = 0;
      bool empty = t.data == nullptr;
      for (std::size_t i = 0; i < t.extent.size(); ++i)
        if (t.stride[i] != 0) last += (t.extent[i] - 1) * t.stride[i], empty = empty || t.extent[i] <= 0;
      const auto bytes = static_cast<std::size_t>((last + 1) * size_bytes(t.dtype));
      if (!empty) t.data = copied("table", static_cast<const char*>(t.data), bytes);
    }
    return tables;
  }

  emit::PrepareSpec spec_;
  Shape shape_;
  std::vector<std::unique_ptr<Memory>> memory_;
};

std::string shown(const std::vector<Run>& runs) {
  std::ostringstream out;
  for (const Run& run : runs) out << run << ", ";
  return out.str();
}
// What of the host's runs fits, by the rule of the device.
std::vector<Run> limited(std::span<const Run> runs, std::int64_t limit) {
  std::vector<Run> all;
  for (const Run& run : runs) {
    if (static_cast<std::int64_t>(all.size()) < limit) {
      all.push_back(run);
      continue;
    }
    all.back().end = run.end, all.back().full = 0;
  }
  return all;
}

struct Count {
  std::size_t rows = 0, full = 0, partial = 0, limited = 0;
};
void expect_the_runs_of_the_host(const std::string& mask, const std::vector<Bound>& tensors, const Shape& shape,
                                 int q_tile, int k_tile, bool checked, std::uint64_t seed, Count& count) {
  const Graph graph = parse_mask(mask).graph();
  const std::vector<Table> tables = bind(graph, tensors);
  emit::PrepareSpec spec{
      .packed = !shape.cu_q.empty(), .queries = q_tile, .runs = true, .k_tile = k_tile, .mask = graph};
  for (const Table& t : tables) spec.mask_dtypes.push_back(t.dtype);
  const Call call(spec, shape, tables, checked, {seed, Timing::late, seed % 2 ? 3 : 1});
  const mods::Dependence sees = mods::dependence(graph);
  std::int64_t before = 0;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    const Grid grid = shape.grid(b, q_tile, k_tile);
    for (std::int64_t h = 0; h < (sees.head ? shape.heads : 1); ++h) {
      const tiles::Runs runs = tiles::derive(graph, tables, b, h, grid);
      for (std::int64_t i = 0; i < grid.query_tiles(); ++i) {
        const auto host = limited(runs[static_cast<std::size_t>(i)], call.params.run_limit);
        ASSERT_EQ(shown(call.runs(b, h, i)), shown(host)) << mask << " b " << b << " h " << h << " query tile " << i;
        ++count.rows, count.limited += host.size() < runs[static_cast<std::size_t>(i)].size();
        for (const Run& run : host) (run.full ? count.full : count.partial) += run.end - run.begin;
      }
    }
    if (spec.packed) {
      EXPECT_EQ(call.tiles_before()[static_cast<std::size_t>(b)], before);
    }
    before += grid.query_tiles();
  }
}

struct Tensors {
  std::vector<std::int32_t> ids, names, lengths{0, 300, 171}, parents;
  std::vector<std::int64_t> offsets{0, 11, 11, 60, 131, 170, 260};
  std::vector<float> bias;
  std::vector<std::uint8_t> layout, seen;
  std::vector<Bound> all;
  Tensors() : ids(300), names(900), parents(300), bias(300), layout(19 * 13), seen(300 * 300) {
    std::minstd_rand random(5);
    for (std::size_t i = 1; i < ids.size(); ++i) ids[i] = ids[i - 1] + (random() % 40 == 0);
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = ids[i / 3] * 7919 % 1000;
    for (std::size_t i = 1; i < parents.size(); ++i)
      parents[i] = static_cast<std::int32_t>(i - 1 - random() % std::min<std::size_t>(i, 5));
    for (float& b : bias) b = random() % 50 == 0 ? std::nanf("") : static_cast<float>(random() % 64) / 8 - 4;
    for (std::uint8_t& tile : layout) tile = random() % 10 < 3;
    for (std::size_t i = 0; i < seen.size(); ++i) seen[i] = i / 300 % 90 < i % 300 % 110;
    all = {{"ids", table(ids)},
           {"names2", table(names, 3, 300)},
           {"len", table(lengths)},
           {"cu", table(offsets)},
           {"parents", table(parents)},
           {"bias", table(bias)},
           {"layout", {layout.data(), b8, {19, 13}, {13, 1}}},
           {"seen", {seen.data(), b8, {300, 300}, {300, 1}}}};
  }
};

Shape dense(std::int64_t batch, std::int64_t queries, std::int64_t keys) {
  Shape shape;
  shape.batch = batch, shape.tokens_q = queries, shape.tokens_k = keys, shape.heads = 2;
  return shape;
}
Shape packed(std::vector<std::int32_t> cu_q, std::vector<std::int32_t> cu_k) {
  Shape shape = dense(static_cast<std::int64_t>(cu_q.size()) - 1, cu_q.back(), cu_k.back());
  shape.cu_q = std::move(cu_q), shape.cu_k = std::move(cu_k);
  return shape;
}

const char* masks[] = {"causal & documents(ids)",
                       "documents(names2, 2)",
                       "documents_from_offsets(cu) & window(60, 0) | prefix_lm(len)",
                       "block_sparse(layout, 16, 24) & !dilated(3)",
                       "mask_tensor(seen) | tree(parents, 4)",
                       "(k <= q) & (h * 20 + 30 > q - k) | bias[k] <= bias[q]"};

TEST(Prepare, RunsAreThoseOfTheHost) {
  const Tensors tensors;
  Count count;
  std::uint64_t seed = 0;
  for (const char* mask : masks) {
    expect_the_runs_of_the_host(mask, tensors.all, dense(3, 300, 300), 16, 24, false, seed++, count);
    Shape shape = dense(3, 40, 290);
    shape.lengths = {290, 0, 123}, shape.q_offset = {-7, 5, 83};
    expect_the_runs_of_the_host(mask, tensors.all, shape, 16, 24, false, seed++, count);
    if (seed % 4 == 0) continue;  // of each mask one or two texts, which are compiled
    expect_the_runs_of_the_host(mask, tensors.all, packed({0, 17, 17, 170, 205}, {0, 90, 90, 300, 301}), 16, 24, false,
                                seed, count);
  }
  EXPECT_GT(count.rows, 500u);
  EXPECT_GT(count.full, 500u);
  EXPECT_GT(count.partial, 500u);
}

TEST(Prepare, NothingIsRacedForNorReadBeforeItIsWritten) {
  const Tensors tensors;
  Count count;
  for (const char* mask : {masks[0], masks[4]}) {
    expect_the_runs_of_the_host(mask, tensors.all, dense(2, 120, 300), 16, 24, true, 3, count);
    expect_the_runs_of_the_host(mask, tensors.all, packed({0, 17, 17, 120}, {0, 90, 90, 300}), 16, 24, true, 4, count);
  }
  EXPECT_GT(count.rows, 20u);
}

// More than one level of ranges of 32, several launches of passes, and more runs than are kept.
TEST(Prepare, LongContexts) {
  constexpr std::int64_t n = 12000;
  std::vector<std::int32_t> ids(n);
  std::vector<std::uint8_t> wide(70 * 9000), comb(n);
  for (std::int64_t i = 0; i < n; ++i) ids[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * i / (n * 700));
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = i % 9000 / 500 == i / 9000 % 18;
  for (std::size_t i = 0; i < comb.size(); ++i) comb[i] = i / 4 % 2 == 0;
  const std::vector<Bound> tensors = {
      {"ids", table(ids)}, {"wide", {wide.data(), b8, {70, 9000}, {9000, 1}}}, {"comb", {comb.data(), b8, {n}, {1}}}};
  Count count;
  expect_the_runs_of_the_host("causal & documents(ids)", tensors, dense(1, n, n), 64, 8, false, 0, count);
  EXPECT_EQ(count.limited, 0u);
  expect_the_runs_of_the_host("wide:bool[q // 64][k]", tensors, dense(1, 4000, 9000), 64, 8, false, 1, count);
  expect_the_runs_of_the_host("comb:bool[k]", tensors, dense(1, 100, 3000), 64, 4, false, 2, count);
  EXPECT_EQ(count.limited, 2u);
}

// With masks that are mixed everywhere the effort ends: what is decided is right, the rest is partial.
TEST(Prepare, WhereEffortEndsTilesArePartial) {
  const Graph graph = parse_mask("(q * k) % 7 < 4").graph();
  const Shape shape = dense(1, 64, 200000);
  const emit::PrepareSpec spec{.queries = 64, .runs = true, .k_tile = 16, .mask = graph};
  const Call call(spec, shape, {}, false, {});
  ASSERT_EQ(shown(call.runs(0, 0, 0)), "partial [0, 12500), ");
}

TEST(Prepare, TilesBeforeEachSequence) {
  std::mt19937 random(3);
  for (const std::int64_t batch : {1, 2, 31, 256, 257, 700}) {
    std::vector<std::int32_t> cu{0};
    std::vector<std::int64_t> expected{0};
    for (std::int64_t b = 0; b < batch; ++b) {
      const int tokens = static_cast<int>(random() % 3 == 0 ? 0 : random() % 300);
      cu.push_back(cu.back() + tokens), expected.push_back(expected.back() + (tokens + 47) / 48);
    }
    const Shape shape = packed(cu, cu);
    const Call call({.packed = true, .queries = 48}, shape, {}, batch < 40, {static_cast<std::uint64_t>(batch)});
    EXPECT_EQ(call.tiles_before(), expected) << batch << " sequences";
    EXPECT_EQ(call.error(), 0u);
    EXPECT_EQ(call.launches, 1);
  }
}

TEST(Prepare, WhatIsOutOfRangeIsClampedAndSaid) {
  const auto errors = [](Shape shape) {
    const Call call({.packed = !shape.cu_q.empty(), .queries = 16}, shape, {}, true, {});
    if (!shape.cu_q.empty()) {
      const std::vector<std::int64_t> before = call.tiles_before();
      EXPECT_TRUE(std::is_sorted(before.begin(), before.end()));
      EXPECT_EQ(before[0], 0);
      EXPECT_LE(before.back(), call.params.tiles);
    }
    return call.error();
  };
  using namespace tessera_kernels;
  const auto sums = [&](std::vector<std::int32_t> cu_q) {
    Shape shape = packed({0, 100}, {0, 100});
    shape.batch = static_cast<std::int64_t>(cu_q.size()) - 1, shape.cu_q = cu_q;
    shape.cu_k.assign(cu_q.size(), 100), shape.cu_k[0] = 0;
    return errors(shape);
  };
  EXPECT_EQ(sums({0, 30, 100}), 0u);
  EXPECT_EQ(sums({0, 30, 99}), 0u);
  EXPECT_EQ(sums({0, 60, 30, 100}), error_prefix_sums);
  EXPECT_EQ(sums({1, 30, 100}), error_prefix_sums);
  EXPECT_EQ(sums({0, 30, 101}), error_prefix_sums);
  EXPECT_EQ(sums({0, -1, 100}), error_prefix_sums);
  EXPECT_EQ(sums({0, 100, 0, 100, 0, 100, 0, 100, 0, 100}), error_prefix_sums);
  Shape shape = dense(3, 40, 290);
  shape.lengths = {290, 0, 123};
  EXPECT_EQ(errors(shape), 0u);
  shape.lengths = {290, 0, 291};
  EXPECT_EQ(errors(shape), error_lengths);
  shape.lengths = {290, -1, 7};
  EXPECT_EQ(errors(shape), error_lengths);
}

TEST(Prepare, CompilesForTheDevice) {
  const tests::Nvrtc nvrtc;
  if (!nvrtc) GTEST_SKIP() << "libnvrtc is not here";
  const Graph graph = parse_mask("causal & documents(ids, 2) | prefix_lm(len)").graph();
  const emit::PrepareSpec specs[] = {
      {.packed = true, .queries = 64},
      {.packed = true, .queries = 64, .runs = true, .mask = graph, .mask_dtypes = {i32, i64}}};
  for (const emit::PrepareSpec& spec : specs)
    for (const char* architecture : {"compute_80", "compute_90a"})
      EXPECT_NE(nvrtc.compile(emit::prepare_text(spec).source, architecture).find("tessera_prepare"),
                std::string::npos);
}

}  // namespace
}  // namespace tessera::sim
