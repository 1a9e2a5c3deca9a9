#include "kernel_subject.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "conformance/oracle.hpp"
#include "emit/kernel_text.hpp"
#include "kernels/params.cuh"
#include "problem/bindings.hpp"
#include "problem/layout.hpp"
#include "sim/engine.hpp"
#include "tessera/tile_map.hpp"
#include "tiles/run_maps.hpp"

namespace tessera::tests {
namespace {

using conformance::Sequence;
using tessera_kernels::ForwardParams;
using tessera_kernels::KeyRun;
using tessera_kernels::RunRange;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

const sim::Engine& engine(bool checked, std::uint64_t schedule) {
  const auto make = [](bool is_checked) {
    sim::EngineOptions options;
    options.checked = is_checked, options.folder = TESSERA_SIM_CACHE;
    return new sim::Engine(options);
  };
  static sim::Engine *const plain = make(false), *const watched = make(true);
  sim::Engine& chosen = checked ? *watched : *plain;
  chosen.schedule = {schedule, schedule % 3 == 1 ? sim::Timing::random : sim::Timing::late, schedule % 2 ? 2 : 1};
  return chosen;
}

// Keys and values of a dense or packed call in pages, with garbage in all that is not used.
struct Pages {
  std::vector<std::uint16_t> k, v;
  std::vector<std::int32_t> table;
  std::vector<std::int32_t> lengths;
  std::int64_t width = 0, count = 0;
};

constexpr std::uint16_t garbage = 0x7fc1;  // NaN in both types

Pages in_pages(const KernelShape& shape, const Inputs& in, const std::vector<Sequence>& sequences) {
  Pages pages;
  const std::int64_t size = shape.page, heads = conformance::heads_of(in.k), dim = conformance::dim_of(in.k),
                     dim_v = conformance::dim_of(in.v);
  for (const Sequence& s : sequences) {
    pages.lengths.push_back(static_cast<std::int32_t>(s.k_count));
    pages.width = std::max(pages.width, ceil_div(s.k_count, size) + 1);
    pages.count += ceil_div(s.k_count, size);
  }
  pages.count += 2;
  std::vector<std::int32_t> free(static_cast<std::size_t>(pages.count));
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), std::mt19937(7));
  pages.k.assign(static_cast<std::size_t>(pages.count * size * heads * dim), garbage);
  pages.v.assign(static_cast<std::size_t>(pages.count * size * heads * dim_v), garbage);
  pages.table.assign(sequences.size() * static_cast<std::size_t>(pages.width), 2147480000);  // never looked at
  for (std::size_t b = 0; b < sequences.size(); ++b)
    for (std::int64_t key = 0; key < sequences[b].k_count; ++key) {
      std::int32_t& page =
          pages.table[b * static_cast<std::size_t>(pages.width) + static_cast<std::size_t>(key / size)];
      if (key % size == 0) page = free.back(), free.pop_back();
      for (std::int64_t h = 0; h < heads; ++h) {
        const auto row = static_cast<std::size_t>((page * size + key % size) * heads + h);
        std::memcpy(&pages.k[row * static_cast<std::size_t>(dim)],
                    in.k.as<std::uint16_t>() + conformance::k_row_offset(in.k, sequences[b], key, h), 2 * dim);
        std::memcpy(&pages.v[row * static_cast<std::size_t>(dim_v)],
                    in.v.as<std::uint16_t>() + conformance::k_row_offset(in.v, sequences[b], key, h), 2 * dim_v);
      }
    }
  return pages;
}

// The work list of a mask, for every sequence and head alike in layout.
struct WorkList {
  std::vector<RunRange> ranges;
  std::vector<KeyRun> runs;
};

void add_runs(WorkList& list, const tiles::Runs& runs) {
  for (std::size_t tile = 0; tile < runs.query_tiles(); ++tile) {
    RunRange range{static_cast<unsigned>(list.runs.size()), 0};
    for (const tiles::Run& run : runs[tile]) list.runs.push_back({run.begin, (run.full ? 0x80000000u : 0u) | run.end});
    range.end = static_cast<unsigned>(list.runs.size());
    list.ranges.push_back(range);
  }
}

int copy_of(const Tensor& t, int most) {
  std::uintptr_t all = reinterpret_cast<std::uintptr_t>(t.data);
  for (int i = 0; i + 1 < t.rank; ++i)
    if (t.shape[i] > 1) all |= static_cast<std::uintptr_t>(t.stride[i] * size_bytes(t.dtype));
  int bytes = most;
  while (all % bytes) bytes /= 2;
  return bytes;
}

tessera_kernels::Rows rows(const Tensor& t) {
  if (t.rank == 3) return {t.data, 0, t.stride[0], t.stride[1]};
  return {t.data, t.stride[0], t.stride[1], t.stride[2]};
}

tessera_kernels::Numbers numbers(const Tensor& t) {
  if (!t.defined()) return {};
  return {t.data, static_cast<int>(size_bytes(t.dtype)), static_cast<int>(t.stride[0])};
}

std::vector<mods::Table> tables(const Graph& graph, const Bindings& bind) {
  std::vector<mods::Table> all(Bindings::most);
  problem::bind_tables(graph, bind, all.data());
  all.resize(graph.captures.size());
  return all;
}

void run(const KernelShape& shape, const Inputs& in, const Outputs& out, const Options& options) {
  const emit::ForwardSpec spec = spec_of(shape, in, out, options);
  const std::vector<Sequence> sequences = conformance::sequences(in, options);
  const bool packed = spec.packed;
  const std::int64_t queries = spec.q_tile / spec.heads;
  std::vector<tessera_kernels::i64> tiles_before{0}, offsets;
  for (const Sequence& s : sequences) {
    tiles_before.push_back(tiles_before.back() + ceil_div(s.q_count, queries));
    offsets.push_back(s.q_offset);
  }
  ForwardParams f{};
  f.q = rows(in.q), f.k = rows(in.k), f.v = rows(in.v), f.o = rows(out.o);
  Pages pages;
  if (spec.paged) {
    pages = in_pages(shape, in, sequences);
    const std::int64_t heads = conformance::heads_of(in.k), dim = spec.dim, dim_v = spec.dim_v;
    f.k = {pages.k.data(), shape.page * heads * dim, heads * dim, dim};
    f.v = {pages.v.data(), shape.page * heads * dim_v, heads * dim_v, dim_v};
    f.block_table = pages.table.data(), f.table_stride = pages.width, f.page_size = shape.page, f.pages = pages.count;
  }
  if (spec.lse) {
    f.lse = out.lse.as<float>();
    const int head = packed ? 0 : 1;
    f.lse_batch = packed ? 0 : out.lse.stride[0], f.lse_head = out.lse.stride[head],
    f.lse_token = out.lse.stride[head + 1];
  }
  unsigned error = 0;
  auto& s = f.sequences;
  s.batch = static_cast<std::int64_t>(sequences.size());
  s.tokens_q = in.q.shape[packed ? 0 : 1], s.tokens_k = in.k.shape[packed ? 0 : 1];
  if (packed) s.cu_q = numbers(in.packed.cu_q), s.cu_k = numbers(in.packed.cu_k);
  if (spec.paged) s.tokens_k = pages.width * shape.page;
  if (spec.lengths) s.lengths = {pages.lengths.data(), 4, 1}, s.cu_k = {};
  s.q_offset = {offsets.data(), 8, 1};
  s.error = &error;
  f.heads_q = static_cast<int>(conformance::heads_of(in.q)), f.heads_kv = static_cast<int>(conformance::heads_of(in.k));
  f.scale = conformance::scale_of(in, options);
  const TileMap map(options.mask);
  for (std::size_t i = 0; i < map.bands().size(); ++i) {
    constexpr std::int64_t far = std::int64_t{1} << 61;
    f.band_lo[i] = std::clamp(map.bands()[i].lo, -far, far), f.band_hi[i] = std::clamp(map.bands()[i].hi, -far, far);
  }
  f.tiles_before = tiles_before.data(), f.tiles = tiles_before.back();
  const std::int64_t units = f.heads_q / spec.heads;
  WorkList list;
  if (spec.keys == emit::Keys::runs) {
    // One map a sequence; where the mask knows heads, one for each.
    const std::vector<mods::Table> bound = tables(options.mask.graph(), in.bind);
    std::vector<tiles::Grid> grids;
    for (const Sequence& q : sequences) grids.push_back({q.q_offset, q.q_count, q.k_count, queries, spec.k_tile});
    const tiles::RunMaps maps(options.mask.graph(), bound, grids, f.heads_q);
    if (packed) {
      for (std::int64_t h = 0; h < (maps.per_head() ? f.heads_q : 1); ++h)
        for (std::int64_t b = 0; b < s.batch; ++b) add_runs(list, maps.at(b, h));
      f.runs_head = maps.per_head(), f.runs_tiles = f.tiles;
    } else {
      for (std::int64_t b = 0; b < s.batch; ++b)
        for (std::int64_t h = 0; h < (maps.per_head() ? f.heads_q : 1); ++h) add_runs(list, maps.at(b, h));
      f.runs_batch = maps.per_head() ? f.heads_q : 1, f.runs_head = maps.per_head();
      f.runs_tiles = ceil_div(s.tokens_q, queries);
    }
    f.run_ranges = list.ranges.data(), f.runs = list.runs.data();
  }
  f.splits = static_cast<int>(shape.splits);
  const std::int64_t items = f.tiles * units * f.splits;
  std::vector<float> partial_o, partial_lse;
  if (spec.split) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    partial_o.assign(static_cast<std::size_t>(items * spec.q_tile * spec.dim_v), nan);
    partial_lse.assign(static_cast<std::size_t>(items * spec.q_tile), nan);
    f.partial_o = partial_o.data(), f.partial_lse = partial_lse.data();
  }
  if (spec.sinks)
    f.sinks = in.sinks.data,
    f.sinks_dtype = in.sinks.dtype == f32    ? 0
                    : in.sinks.dtype == bf16 ? 1
                                             : 2,
    f.sinks_stride = static_cast<int>(in.sinks.stride[0]);

  std::vector<std::uint64_t> params(emit::forward_param_bytes(spec) / 8);
  std::memcpy(params.data(), &f, sizeof f);
  std::uint64_t* words = params.data() + sizeof f / 8;
  emit::pack_arguments(spec.score, tables(spec.score, in.bind), words, emit::mod_options(spec));
  words += emit::argument_words(spec.score);
  emit::pack_arguments(spec.mask, tables(spec.mask, in.bind), words, emit::mask_options(spec));
  if (items == 0) return;
  // All that the kernels may touch, and how; a checked machine reports what they touch beside it.
  std::vector<sim::Region> regions;
  const auto know = [&](const char* name, const void* data, std::size_t bytes, sim::Content content) {
    if (bytes) regions.emplace_back(name, data, bytes, content);
  };
  const auto know_all = [&](const char* name, const auto& x) {
    know(name, x.data(), x.size() * sizeof x[0], sim::Content::constant);
  };
  const auto know_tensor = [&](const char* name, const Tensor& t, sim::Content content) {
    if (t.defined()) know(name, t.data, static_cast<std::size_t>(*problem::reach_bytes(t)), content);
  };
  know_tensor("o", out.o, sim::Content::given), know_tensor("lse", out.lse, sim::Content::given);
  know_tensor("q", in.q, sim::Content::constant);
  if (!spec.paged) know_tensor("k", in.k, sim::Content::constant), know_tensor("v", in.v, sim::Content::constant);
  know_all("pages of k", pages.k), know_all("pages of v", pages.v), know_all("block table", pages.table);
  know_all("lengths", pages.lengths), know_all("offsets", offsets), know_all("tiles before", tiles_before);
  know_all("run ranges", list.ranges), know_all("runs", list.runs);
  know_tensor("cu_q", in.packed.cu_q, sim::Content::constant),
      know_tensor("cu_k", in.packed.cu_k, sim::Content::constant);
  know_tensor("sinks", in.sinks, sim::Content::constant);
  for (const Binding& b : in.bind) know_tensor(std::string(b.name).c_str(), b.tensor, sim::Content::constant);
  know("error word", &error, sizeof error, sim::Content::given);
  know("partial o", partial_o.data(), partial_o.size() * 4, sim::Content::nothing);
  know("partial lse", partial_lse.data(), partial_lse.size() * 4, sim::Content::nothing);

  const sim::Engine& machine = engine(shape.checked, shape.schedule);
  const auto launch = [&](const gpu::KernelText& text, std::int64_t blocks) {
    machine.launch(0, {}, machine.kernel(0, text), blocks, params.data(), params.size() * 8);
  };
  launch(emit::forward_text(spec), items);
  if (spec.split) launch(emit::combine_text(spec), items / f.splits);
  if (error) throw std::runtime_error("the kernel set error bits " + std::to_string(error));
}

}  // namespace

emit::ForwardSpec spec_of(const KernelShape& shape, const Inputs& in, const Outputs& out, const Options& options) {
  emit::ForwardSpec s;
  s.dtype = in.q.dtype, s.out_dtype = out.o.dtype;
  s.dim = static_cast<int>(conformance::dim_of(in.q)), s.dim_v = static_cast<int>(conformance::dim_of(in.v));
  s.q_tile = shape.q_tile, s.k_tile = shape.k_tile, s.warps = shape.warps, s.stages = shape.stages;
  s.q_registers = shape.q_registers, s.warps_n = shape.warps_n;
  const auto group = static_cast<int>(conformance::heads_of(in.q) / conformance::heads_of(in.k));
  for (int h = 1; h <= std::min(shape.heads, group); ++h)
    if (group % h == 0) s.heads = h;
  s.q_copy = copy_of(in.q, shape.copy), s.k_copy = copy_of(in.k, shape.copy), s.v_copy = copy_of(in.v, shape.copy);
  s.o_copy = copy_of(out.o, shape.copy);
  s.packed = in.packed.cu_q.defined();
  s.paged = shape.page > 0, s.lengths = s.paged;
  if (s.paged) {
    // Rows of pages lie as the copies above never do.
    s.k_copy = s.v_copy = 2;
    for (const int bytes : {4, 8, 16})
      if (bytes <= shape.copy && 2 * s.dim % bytes == 0 && 2 * s.dim_v % bytes == 0) s.k_copy = s.v_copy = bytes;
  }
  const TileMap map(options.mask);
  if (!map.decided()) {
    s.mask = options.mask.graph();
    const auto types = problem::table_dtypes(s.mask, in.bind);
    s.mask_dtypes.assign(types.begin(), types.end());
    const bool one_map = s.heads == 1;
    if (shape.runs && one_map) s.keys = emit::Keys::runs;
  } else if (!(map.bands().size() == 1 && map.bands()[0] == Band{})) {
    s.keys = emit::Keys::bands, s.bands = static_cast<int>(map.bands().size());
  }
  s.score = options.score.graph();
  const auto types = problem::table_dtypes(s.score, in.bind);
  s.score_dtypes.assign(types.begin(), types.end());
  s.split = shape.splits > 1, s.lse = out.lse.defined(), s.sinks = in.sinks.defined();
  s.fixed = shape.fixed && s.dtype == DType::bf16 && s.out_dtype == s.dtype && !(s.split && s.lse);
  return s;
}

conformance::Subject kernel_subject(const KernelShape& shape) {
  return {"kernel", [shape](const Inputs& in, const Outputs& out, const Options& options, const Exec&) {
            run(shape, in, out, options);
          }};
}

}  // namespace tessera::tests
