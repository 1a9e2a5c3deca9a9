// The CPU backend: how work is cut (a function of the shape alone) and how the pieces are run.
#include "cpu/cpu_backend.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <string>

#include "cpu/fault.hpp"
#include "cpu/kernels.hpp"
#include "cpu/merge.hpp"
#include "cpu/pool.hpp"
#include "mods/kept.hpp"
#include "mods/program.hpp"
#include "problem/bindings.hpp"
#include "problem/validate.hpp"
#include "tiles/run_maps.hpp"

namespace tessera::cpu {
namespace {

std::int64_t l2_bytes() {
#ifdef _SC_LEVEL2_CACHE_SIZE
  static const long size = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (size > 0) return size;
#endif
  return 512 << 10;
}

constexpr std::int64_t max_dim = 512;
// A partial result is closed and merged every 8 key blocks, whoever computes it: splitting the keys over threads then
// changes no bit, and rounding errors do not grow with the number of keys. Merging costs one multiplication in some
// 1500.
constexpr std::int64_t blocks_per_split = 8;
constexpr std::int64_t enough_items = 32;              // below this the keys are split as well
constexpr std::size_t max_partial_bytes = 256u << 20;  // ... unless the partial results outgrow this
constexpr double flops_worth_waking = 4e6;             // below this a second thread costs more than it brings

constexpr std::int64_t queries_per_tile = 128;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::size_t padded(std::size_t bytes) {
  return (bytes + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
}

// Neighbouring tiles that one thread may take together, to read each block of K and V once for all of them: as many as
// leave three quarters of the core's own cache to K and V. No bit depends on it.
std::int64_t tiles_at_once(const Problem& p, const Tiling& cut) {
  if (cut.splits > 1 || cut.heads_per_tile > 1) return 1;
  const std::int64_t row_bytes = (p.dim + p.dim_v) * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t fit = l2_bytes() / 4 / row_bytes / cut.q_tile;
  return std::max<std::int64_t>(1, std::min(fit, ceil_div(p.tokens_q, cut.q_tile)));
}

// Masks that the tile map cannot decide are looked at tile by tile, if there are keys to be skipped, and if the heads
// of an item do not differ in what they attend to.
bool worth_mapping(const PlanData& plan) {
  const Problem& p = plan.problem;
  if (plan.tiles.decided() || p.tokens_kv < 2 * plan.tiling.k_block) return false;
  return plan.tiling.heads_per_tile == 1 || !mods::dependence(p.mask.graph()).head;
}
// Those of a mask that reads no tensor, for sequences whose shapes the plan knows.
std::shared_ptr<const tiles::RunMaps> fixed_runs(const PlanData& plan) {
  const Problem& p = plan.problem;
  const std::int64_t offset = p.q_offset.value_or(p.tokens_kv - p.tokens_q);
  if (!worth_mapping(plan) || !tiles::runs_are_fixed(p.mask.graph()) || !p.keys_known() || p.offset_per_sequence)
    return {};
  if (p.tokens_q == 0 || p.batch == 0 || offset > mods::farthest / 2 || offset < -mods::farthest / 2) return {};
  const std::vector<tiles::Grid> grids(
      static_cast<std::size_t>(p.batch),
      {offset, p.tokens_q, p.tokens_kv, plan.tiling.run_queries, plan.tiling.run_keys});
  return std::make_shared<const tiles::RunMaps>(p.mask.graph(), std::span<const mods::Table>{}, grids, p.heads_q);
}

// ------------------------------------------------------------------------------------------------ a call's work list
// Sequences, tiles and splits of one call. Items are numbered, never stored: a packed batch needs one prefix sum.
struct Work {
  const PlanData& plan;
  const Inputs& in;
  const Outputs& out;
  const Kernels& kernels;
  std::int64_t heads_units;              // groups of heads that share an item
  std::int64_t* tiles_before = nullptr;  // packed: [batch + 1], query tiles of the sequences before
  float* sinks = nullptr;                // [heads_q], if there are any
  float* partial = nullptr;
  std::int64_t tile_floats = 0;  // of one partial result
  char* scratch = nullptr;
  std::array<mods::Table, Bindings::most> score_tables{}, mask_tables{};
  Mod score{}, mask{};
  tiles::RunMaps own_runs{};
  const tiles::RunMaps* runs = nullptr;

  // The runs of a mask that bands do not describe, from the values of this call if the plan has none.
  void map_runs(const mods::Keeping& keeping) {
    const Problem& p = plan.problem;
    runs = plan.runs.get();
    if (runs || !worth_mapping(plan) || p.tokens_q == 0 || p.batch == 0) return;
    const mods::Keeping::Use kept(keeping);
    mods::Vector<tiles::Grid> grids;
    for (std::int64_t i = 0; i < p.batch; ++i) {
      const Extent e = extent(i);
      if (e.q_offset > mods::farthest / 2 || e.q_offset < -mods::farthest / 2) return;
      grids.push_back({e.q_offset, e.queries, e.keys, plan.tiling.run_queries, plan.tiling.run_keys});
    }
    own_runs = tiles::RunMaps(p.mask.graph(), {mask_tables.data(), p.mask.graph().captures.size()}, grids, p.heads_q);
    runs = &own_runs;
  }
  // One sequence: its tokens, and where they lie in a packed tensor.
  struct Extent {
    std::int64_t queries, keys, q_start, k_start, q_offset;
  };
  Extent extent(std::int64_t sequence) const {
    const Problem& p = plan.problem;
    Extent e{p.tokens_q, p.tokens_kv, 0, 0, 0};
    if (p.packed) {
      e.q_start = problem::integer_at(in.packed.cu_q, sequence);
      e.queries = problem::integer_at(in.packed.cu_q, sequence + 1) - e.q_start;
    }
    if (p.packed_keys()) {
      e.k_start = problem::integer_at(in.packed.cu_k, sequence);
      e.keys = problem::integer_at(in.packed.cu_k, sequence + 1) - e.k_start;
      if (TESSERA_FAULT(packed_start_ignored)) e.k_start = 0;
    }
    if (p.lengths) e.keys = problem::integer_at(in.pages.lengths, sequence);
    const std::int64_t last = TESSERA_FAULT(length_not_in_offset) ? p.tokens_kv : e.keys;
    e.q_offset =
        p.offset_per_sequence ? problem::integer_at(in.q_offset, sequence) : p.q_offset.value_or(last - e.queries);
    if (p.lengths && TESSERA_FAULT(lengths_ignored))
      e.keys = p.paged ? ceil_div(e.keys, p.page_size) * p.page_size : p.tokens_kv;
    return e;
  }

  void bind_mods() {
    const Problem& p = plan.problem;
    problem::bind_tables(p.score.graph(), in.bind, score_tables.data());
    problem::bind_tables(p.mask.graph(), in.bind, mask_tables.data());
    score = bind(plan.score.get(), score_tables.data(), static_cast<std::int64_t>(p.score.graph().captures.size()));
    mask = bind(plan.mask.get(), mask_tables.data(), static_cast<std::int64_t>(p.mask.graph().captures.size()));
  }
  void widen_sinks() {
    for (std::int64_t head = 0; head < plan.problem.heads_q; ++head) {
      const std::int64_t at = head * in.sinks.stride[0];
      if (in.sinks.dtype == DType::f32) sinks[head] = in.sinks.as<const float>()[at];
      else if (in.sinks.dtype == DType::bf16) sinks[head] = static_cast<float>(in.sinks.as<const BFloat16>()[at]);
      else sinks[head] = static_cast<float>(in.sinks.as<const Float16>()[at]);
    }
  }
  std::int64_t sequence_tiles(std::int64_t queries) const { return ceil_div(queries, plan.tiling.q_tile); }
  std::int64_t tiles() const {  // over all sequences, of one unit of heads
    const Problem& p = plan.problem;
    return p.packed ? tiles_before[p.batch] : p.batch * sequence_tiles(p.tokens_q);
  }
  std::int64_t items(std::int64_t splits) const { return tiles() * heads_units * splits; }

  void count_tiles() {
    const Problem& p = plan.problem;
    tiles_before[0] = 0;
    for (std::int64_t i = 0; i < p.batch; ++i) {
      const std::int64_t queries = problem::integer_at(in.packed.cu_q, i + 1) - problem::integer_at(in.packed.cu_q, i);
      tiles_before[i + 1] = tiles_before[i] + sequence_tiles(queries);
    }
  }

  // Where tile number `index` lies: the nth of `count` tiles of one sequence and unit of heads.
  struct Place {
    std::int64_t sequence, unit, nth, count;
  };
  Place place(std::int64_t index) const {
    const Problem& p = plan.problem;
    if (!p.packed) {
      const std::int64_t count = sequence_tiles(p.tokens_q);
      return {index / count / heads_units, index / count % heads_units, index % count, count};
    }
    const std::int64_t all = tiles_before[p.batch], nth = index % all;
    const std::int64_t* found = std::upper_bound(tiles_before, tiles_before + p.batch + 1, nth) - 1;
    return {found - tiles_before, index / all, nth - *found, found[1] - found[0]};
  }

  // `taken` tiles from number `index` on as one, with everything but its keys' range and destination decided.
  Tile tile(std::int64_t index, std::int64_t taken) const {
    const Problem& p = plan.problem;
    const Tiling& cut = plan.tiling;
    Tile t;
    const auto [sequence, unit, nth, count] = place(index);
    const auto [queries, keys, q_start, k_start, q_offset] = extent(sequence);
    const std::int64_t number =
        count - nth - taken;  // the longest causal rows first: the last to start are the shortest
    const std::int64_t head = unit * cut.heads_per_tile, first = number * cut.q_tile;
    const std::int64_t kv_head = TESSERA_FAULT(wrong_group_head) ? head % p.heads_kv : head / p.group();
    // Axes of [batch, tokens, heads, dim], of packed [total, heads, dim] and of [pages, page size, heads, dim].
    auto row = [](const Tensor& x, std::int64_t which, std::int64_t at, std::int64_t h) {
      const int axis = x.rank - 3;
      const std::int64_t offset = (axis > 0 ? which * x.stride[0] : 0) + at * x.stride[axis] + h * x.stride[axis + 1];
      return static_cast<char*>(x.data) + offset * size_bytes(x.dtype);
    };
    auto source = [&, start = k_start, which = p.paged ? 0 : sequence](const Tensor& x) {
      return Source{row(x, which, start, kv_head), x.stride[x.rank - 3], p.paged ? x.stride[0] : 0};
    };
    const int token = p.packed ? 0 : 1, heads = token + 1;
    t.q = row(in.q, sequence, q_start + first, head), t.k = source(in.k), t.v = source(in.v);
    t.q_head_stride = in.q.stride[heads], t.q_token_stride = in.q.stride[token];
    if (p.paged) {
      const Tensor& table = in.pages.block_table;
      t.pages = table.as<const std::int32_t>() + sequence * table.stride[0], t.page_size = p.page_size;
    }
    t.o = row(out.o, sequence, q_start + first, head);
    t.o_head_stride = out.o.stride[heads], t.o_token_stride = out.o.stride[token];
    if (out.lse.defined()) {  // [batch, heads, tokens], packed [heads, total]
      const int lse_head = p.packed ? 0 : 1;
      t.lse_head_stride = out.lse.stride[lse_head], t.lse_token_stride = out.lse.stride[lse_head + 1];
      t.lse = out.lse.as<float>() + (p.packed ? 0 : sequence * out.lse.stride[0]) + head * t.lse_head_stride +
              (q_start + first) * t.lse_token_stride;
    }
    t.dtype = p.dtype, t.out_dtype = p.out_dtype;
    t.queries = std::min(taken * cut.q_tile, queries - first), t.heads = cut.heads_per_tile;
    t.dim = p.dim, t.dim_v = p.dim_v, t.scale = p.scale;
    // Positions are exact within 2^48 of 0 (docs/contracts.md); beyond, they only must not overflow.
    constexpr std::int64_t farthest = std::int64_t{1} << 60;
    t.q_position = std::clamp(q_offset, -farthest, farthest) + first;
    t.k_end = keys;
    t.kv_split = cut.kv_split;
    if (runs) t.runs = &runs->at(sequence, head), t.first_run_tile = first / run_queries;
    t.tiles = &plan.tiles, t.score = score, t.mask = mask;
    if (sinks) t.sinks = sinks + head;
    t.batch = sequence, t.first_head = head;
    return t;
  }
};

// One pass over numbered items by any number of threads. Which thread takes which item changes no bit.
struct Pass {
  const Work& work;
  std::int64_t items;
  bool combine;
  int tasks = 1;
  std::atomic<std::int64_t> next{0};

  void run_items(std::int64_t index, std::int64_t taken, float* scratch) const {
    const Tiling& cut = work.plan.tiling;
    if (combine) {
      Tile t = work.tile(index, 1);
      t.partial = work.partial + index * cut.splits * work.tile_floats;
      const std::int64_t used = std::max<std::int64_t>(1, ceil_div(t.k_end, cut.kv_split));
      work.kernels.combine(t, used, work.tile_floats, scratch);
      return;
    }
    Tile t = work.tile(index / cut.splits, taken);
    if (cut.splits > 1) {
      t.k_begin = index % cut.splits * cut.kv_split;
      if (t.k_begin > 0 && t.k_begin >= t.k_end) return;
      t.k_end = std::min(t.k_end, t.k_begin + cut.kv_split);
      t.partial = work.partial + index * work.tile_floats;
    }
    work.kernels.forward(t, scratch);
  }
  // As many as may be taken together, of one sequence and head, but never more than a fair share of what is left.
  std::int64_t at_once(std::int64_t index) const {
    const std::int64_t most = std::min(work.plan.tiling.tiles_at_once, (items - index) / tasks);
    if (most <= 1) return 1;
    const Work::Place at = work.place(index);
    return std::min(most, at.count - at.nth);
  }
  static void task(void* context, int slot) {
    auto& pass = *static_cast<Pass*>(context);
    auto* scratch = reinterpret_cast<float*>(pass.work.scratch + pass.work.plan.scratch_bytes * slot);
    std::int64_t index = pass.next.load(std::memory_order_relaxed);
    while (index < pass.items) {
      const std::int64_t taken = pass.at_once(index);
      if (!pass.next.compare_exchange_weak(index, index + taken, std::memory_order_relaxed)) continue;
      pass.run_items(index, taken, scratch);
      index = pass.next.load(std::memory_order_relaxed);
    }
  }
};

// ------------------------------------------------------------------------------------------------ the backend
class CpuBackend final : public Backend {
 public:
  CpuBackend(const Kernels& kernels, bool present, const char* about)
      : kernels_(kernels), present_(present), about_(about) {}
  std::string_view name() const override { return "cpu"; }
  std::string_view variant() const override { return kernels_.name; }
  DeviceType device() const override { return DeviceType::cpu; }
  std::string about() const override { return about_; }

  std::string missing() const override {
    if (!present_) return "this processor has no " + std::string(about_);
    static const char* const pinned = std::getenv("TESSERA_CPU_ISA");
    if (pinned && *pinned && variant() != pinned)
      return "TESSERA_CPU_ISA=" + std::string(pinned) + " asks for another instruction set (avx512, avx2 or scalar)";
    return {};
  }

  std::vector<std::string> supports(const Problem& p) const override {
    std::vector<std::string> reasons;
    if (p.device.type != DeviceType::cpu)
      reasons.push_back("the tensors are on a CUDA device: they must be on the cpu");
    auto dim = [&](const char* which, std::int64_t value) {
      if (value > max_dim)
        reasons.push_back(std::string("the head dim of ") + which + " is " + std::to_string(value) +
                          ": the cpu backend takes 1 to " + std::to_string(max_dim));
    };
    dim("q and k", p.dim), dim("v", p.dim_v);
    return reasons;
  }

  void decide(PlanData& plan) const override {
    const Problem& p = plan.problem;
    Tiling& cut = plan.tiling;
    cut.panel = kernels_.panel, cut.k_block = kernels_.k_block;
    cut.kv_split = blocks_per_split * kernels_.k_block;
    cut.q_tile = queries_per_tile;
    // Few queries: the heads of a group share a panel, and every load of K and V.
    if (!p.packed && p.tokens_q > 0 && 2 * p.tokens_q <= kernels_.panel) {
      cut.q_tile = p.tokens_q;
      for (std::int64_t heads = 1; heads <= p.group(); ++heads)
        if (p.group() % heads == 0 && heads * p.tokens_q <= 128) cut.heads_per_tile = heads;
    }
    const std::int64_t units = p.heads_q / cut.heads_per_tile;
    const std::int64_t tiles =
        units * (p.packed ? ceil_div(p.tokens_q, cut.q_tile) + p.batch : p.batch * ceil_div(p.tokens_q, cut.q_tile));
    const std::int64_t splits = std::max<std::int64_t>(1, ceil_div(p.tokens_kv, cut.kv_split));
    const double partial = static_cast<double>(tiles) * static_cast<double>(splits) *
                           static_cast<double>(tile_floats(plan)) * sizeof(float);
    if (tiles < enough_items && partial <= static_cast<double>(max_partial_bytes)) cut.splits = splits;
    cut.items = tiles * cut.splits;
    cut.tiles_at_once = tiles_at_once(p, cut);
    const std::int64_t rows = cut.q_tile * std::max(cut.heads_per_tile, cut.tiles_at_once);
    plan.partial_bytes = cut.splits > 1 ? padded(static_cast<std::size_t>(partial)) : 0;
    if (p.packed) plan.partial_bytes += padded(static_cast<std::size_t>(p.batch + 1) * sizeof(std::int64_t));
    if (p.sinks) plan.partial_bytes += padded(static_cast<std::size_t>(p.heads_q) * sizeof(float));
    const bool one_head = cut.heads_per_tile == 1;
    const auto program = [&](const Graph& graph) {
      return std::make_shared<const mods::Program>(mods::compile(graph, one_head));
    };
    if (!p.score.is_identity()) plan.score = program(p.score.graph());
    if (!plan.tiles.decided()) plan.mask = program(p.mask.graph());
    if (worth_mapping(plan)) cut.run_queries = run_queries, cut.run_keys = run_keys;
    plan.runs = fixed_runs(plan);
    Tile widest;
    widest.dim = p.dim, widest.dim_v = p.dim_v;
    widest.score = bind(plan.score.get(), nullptr, 0), widest.mask = bind(plan.mask.get(), nullptr, 0);
    plan.scratch_bytes = padded(static_cast<std::size_t>(kernels_.scratch_floats(widest, rows)) * sizeof(float));
  }

  void run(const PlanData& plan, const Inputs& in, const Outputs& out, const Exec& exec) const override {
    const Problem& p = plan.problem;
    const int wanted = exec.threads > 0 ? exec.threads
                       : exec.executor  ? exec.executor->concurrency()
                                        : default_threads();
    const std::size_t needed = plan.partial_bytes + plan.scratch_bytes * static_cast<std::size_t>(wanted);
    if (exec.workspace.data) {
      check_workspace(exec.workspace, needed, wanted);
      return run_in(static_cast<char*>(exec.workspace.data), wanted, plan, in, out, exec);
    }
    if (p.tokens_q == 0 || p.batch == 0) return;
    const ArenaLease arena(needed);
    run_in(static_cast<char*>(arena.data()), wanted, plan, in, out, exec);
  }

  void merge(const Outputs& a, const Outputs& b, const Outputs& out, const Exec&) const override {
    cpu::merge(a, b, out);
  }

 private:
  std::int64_t tile_floats(const PlanData& plan) const {
    const std::int64_t rows = plan.tiling.q_tile * plan.tiling.heads_per_tile;
    return ceil_div(rows, kernels_.panel) * state_floats(kernels_.panel, plan.problem.dim_v);
  }
  static void check_workspace(const Workspace& given, std::size_t needed, int threads) {
    if (given.bytes < needed)
      throw Error(Code::workspace_too_small, "the workspace has " + std::to_string(given.bytes) +
                                                 " bytes, the plan needs " + std::to_string(needed) + " on " +
                                                 std::to_string(threads) +
                                                 " threads: ask plan.workspace_bytes(threads)");
    if (reinterpret_cast<std::uintptr_t>(given.data) % scratch_alignment != 0)
      throw Error(Code::workspace_too_small, "the workspace is not aligned to 64 bytes");
  }

  void run_in(char* memory, int wanted, const PlanData& plan, const Inputs& in, const Outputs& out,
              const Exec& exec) const {
    const Problem& p = plan.problem;
    const mods::Keeping keeping;  // the maps of this call
    Work work{plan, in, out, kernels_, p.heads_q / plan.tiling.heads_per_tile};
    work.bind_mods();
    work.scratch = memory;  // first, so that it is aligned whatever follows
    char* rest = memory + plan.scratch_bytes * static_cast<std::size_t>(wanted);
    if (p.packed) {
      work.tiles_before = reinterpret_cast<std::int64_t*>(rest);
      work.count_tiles();
      rest += padded(static_cast<std::size_t>(p.batch + 1) * sizeof(std::int64_t));
    }
    if (p.sinks) {
      work.sinks = reinterpret_cast<float*>(rest);
      work.widen_sinks();
      rest += padded(static_cast<std::size_t>(p.heads_q) * sizeof(float));
    }
    work.map_runs(keeping);
    work.partial = reinterpret_cast<float*>(rest), work.tile_floats = tile_floats(plan);

    Executor& executor = exec.executor ? *exec.executor : pool();
    auto all = [&](std::int64_t items, bool combine) {
      const bool worth = plan.cost.flops >= flops_worth_waking;
      Pass pass{work, items, combine, worth ? static_cast<int>(std::min<std::int64_t>(wanted, items)) : 1};
      if (pass.tasks <= 1) Pass::task(&pass, 0);
      else executor.run(pass.tasks, &Pass::task, &pass);
    };
    all(work.items(plan.tiling.splits), false);
    if (plan.tiling.splits > 1) all(work.items(1), true);
  }

  const Kernels& kernels_;
  const bool present_;
  const char* const about_;
};

}  // namespace

namespace {

// The run that holds a key tile, or else the next one; null past the last.
const tiles::Run* run_from(std::span<const tiles::Run> runs, std::int64_t key_tile) {
  const auto found = std::partition_point(runs.begin(), runs.end(),
                                          [&](const tiles::Run& run) { return std::int64_t{run.end} <= key_tile; });
  return found == runs.end() ? nullptr : &*found;
}

}  // namespace

Cover first_run(const Tile& t, std::int64_t row, std::int64_t begin, std::int64_t end) {
  const auto runs = (*t.runs)[static_cast<std::size_t>(t.first_run_tile + row % t.queries / run_queries)];
  const tiles::Run* run = begin < end ? run_from(runs, begin / run_keys) : nullptr;
  if (!run || run->begin * run_keys >= end) return {Coverage::empty, begin, begin};
  return {run->full ? Coverage::full : Coverage::partial, std::max(begin, run->begin * run_keys),
          std::min(end, run->end * run_keys)};
}

std::int64_t next_block(const Tile& t, std::int64_t key, std::int64_t k_block) {
  std::int64_t nearest = std::numeric_limits<std::int64_t>::max() - k_block;
  for (std::int64_t i = 0; i * run_queries < t.queries; ++i) {
    const tiles::Run* run = run_from((*t.runs)[static_cast<std::size_t>(t.first_run_tile + i)], key / run_keys);
    if (run) nearest = std::min(nearest, std::max(key, run->begin * run_keys));
  }
  return nearest / k_block * k_block;
}

std::vector<const Backend*> backends() {
#if defined(__x86_64__)
  static const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  static const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  static const CpuBackend avx512(kernels_avx512(), has_avx512, "AVX-512 (F, BW, DQ, VL)");
  static const CpuBackend avx2(kernels_avx2(), has_avx2, "AVX2, FMA and F16C");
  static const CpuBackend scalar(kernels_scalar(), true, "portable C++");
  return {&avx512, &avx2, &scalar};
#else
  static const CpuBackend scalar(kernels_scalar(), true, "portable C++");
  return {&scalar};
#endif
}

}  // namespace tessera::cpu
