#include "gpu/call.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "emit/kernel_text.hpp"
#include "emit/mod_text.hpp"
#include "gpu/order.hpp"
#include "gpu/work_list.hpp"
#include "kernels/layout_sm90.cuh"
#include "kernels/params_sm90.cuh"
#include "kernels/prepare_params.cuh"
#include "problem/bindings.hpp"
#include "problem/layout.hpp"
#include "problem/validate.hpp"

namespace tessera::gpu {
namespace {

using tessera_kernels::Deal;
using tessera_kernels::ForwardParams;
using tessera_kernels::Numbers;
using tessera_kernels::PrepareParams;
using tessera_kernels::Rows;

// Positions are exact within 2^48 of 0 (docs/contracts.md); beyond, sums of them only must not overflow.
constexpr std::int64_t farthest_position = std::int64_t{1} << 60, farthest_band = std::int64_t{1} << 61;

// ------------------------------------------------------------------------------------------------ metadata
bool on_host(const Tensor& t) { return t.device.type == DeviceType::cpu; }
std::size_t padded(std::size_t bytes) {
  return (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
}

// Lists of integers that are gathered on the host and uploaded as one piece, to `memory`.
class Gathered {
 public:
  Gathered(std::vector<std::int64_t>& list, const char* memory) : list_(list), memory_(memory) { list_.clear(); }
  const void* next() const { return memory_ + bytes(); }  // where the next number will be
  void add(std::int64_t value) { list_.push_back(value); }
  const void* data() const { return list_.data(); }
  std::size_t bytes() const { return list_.size() * sizeof(std::int64_t); }

 private:
  std::vector<std::int64_t>& list_;
  const char* const memory_;
};

// The numbers of a tensor, from where they are; those on the host are gathered.
Numbers numbers(const Tensor& t, Gathered& gathered) {
  if (!on_host(t)) return {t.data, static_cast<int>(size_bytes(t.dtype)), static_cast<int>(t.stride[0])};
  const Numbers made{gathered.next(), static_cast<int>(sizeof(std::int64_t)), 1};
  for (std::int64_t i = 0; i < t.shape[0]; ++i)
    gathered.add(std::clamp(problem::integer_at(t, i), -farthest_position, farthest_position));
  return made;
}

// Query tiles of all sequences; those before each are gathered where they are asked for.
std::int64_t count_tiles(const Tensor& cu_q, std::int64_t batch, std::int64_t queries, Gathered* before) {
  std::int64_t tiles = 0;
  for (std::int64_t i = 0;; ++i) {
    if (before) before->add(tiles);
    if (i == batch) return tiles;
    const std::int64_t length = problem::integer_at(cu_q, i + 1) - problem::integer_at(cu_q, i);
    tiles += (length + queries - 1) / queries;
  }
}

void set_sequences(ForwardParams& f, const Problem& p, const Decision& d, const Inputs& in, const Outputs& out,
                   Gathered& gathered, const char* tiles_before) {
  static_assert(tessera_kernels::error_prefix_sums == static_cast<unsigned>(MetadataError::prefix_sums) &&
                tessera_kernels::error_lengths == static_cast<unsigned>(MetadataError::lengths) &&
                tessera_kernels::error_block_table == static_cast<unsigned>(MetadataError::block_table));
  auto& s = f.sequences;
  s.error = out.errors.as<unsigned>();
  s.batch = p.batch, s.tokens_q = p.tokens_q, s.tokens_k = p.tokens_kv;
  f.tiles = d.tiles;
  if (p.packed) s.cu_q = numbers(in.packed.cu_q, gathered);
  if (p.packed_keys()) s.cu_k = numbers(in.packed.cu_k, gathered);
  if (p.lengths) s.lengths = numbers(in.pages.lengths, gathered);
  if (p.offset_per_sequence) s.q_offset = numbers(in.q_offset, gathered);
  if (p.packed) {  // the prepare kernel counts them, or the host does
    f.tiles_before =
        static_cast<const tessera_kernels::i64*>(d.prepare ? static_cast<const void*>(tiles_before) : gathered.next());
    if (on_host(in.packed.cu_q))
      f.tiles = count_tiles(in.packed.cu_q, p.batch, d.queries, d.prepare ? nullptr : &gathered);
  }
  s.has_offset = p.q_offset.has_value();
  s.q_offset_all = std::clamp(p.q_offset.value_or(0), -farthest_position, farthest_position);
}

// The sequences as a mask sees them; all numbers about them lie on the host.
void measure(const Problem& p, const Inputs& in, std::vector<Extent>& sequences) {
  sequences.clear();
  const auto length = [](const Tensor& sums, std::int64_t i) {
    return problem::integer_at(sums, i + 1) - problem::integer_at(sums, i);
  };
  for (std::int64_t i = 0; i < p.batch; ++i) {
    Extent e{p.tokens_q, p.tokens_kv, 0};
    if (p.packed) e.queries = length(in.packed.cu_q, i);
    if (p.packed_keys()) e.keys = length(in.packed.cu_k, i);
    if (p.lengths) e.keys = problem::integer_at(in.pages.lengths, i);
    e.q_offset = p.offset_per_sequence ? problem::integer_at(in.q_offset, i) : p.q_offset.value_or(e.keys - e.queries);
    sequences.push_back(e);
  }
}

// ------------------------------------------------------------------------------------------------ tensors
// [batch, tokens, heads, dim], packed [total, heads, dim], or pages [pages, page size, heads, dim].
Rows rows(const Tensor& t) {
  if (t.rank == 3) return {t.data, 0, t.stride[0], t.stride[1]};
  return {t.data, t.stride[0], t.stride[1], t.stride[2]};
}

int sinks_dtype(DType dtype) { return dtype == DType::f32 ? 0 : dtype == DType::bf16 ? 1 : 2; }

void set_tensors(ForwardParams& f, const Problem& p, const Inputs& in, const Outputs& out) {
  f.q = rows(in.q), f.k = rows(in.k), f.v = rows(in.v), f.o = rows(out.o);
  if (p.wants_lse) {
    const Tensor& lse = out.lse;  // [batch, heads, tokens], packed [heads, total]
    const int head = p.packed ? 0 : 1;
    f.lse = lse.as<float>();
    f.lse_batch = p.packed ? 0 : lse.stride[0], f.lse_head = lse.stride[head], f.lse_token = lse.stride[head + 1];
  }
  if (p.sinks)
    f.sinks = in.sinks.data, f.sinks_dtype = sinks_dtype(in.sinks.dtype),
    f.sinks_stride = static_cast<int>(in.sinks.stride[0]);
  f.heads_q = static_cast<int>(p.heads_q), f.heads_kv = static_cast<int>(p.heads_kv);
  f.scale = p.scale;
}

// Captured tensors as the kernel reads them: those on the host lie one after the other at `memory`.
struct Tables {
  std::array<mods::Table, Bindings::most> there{}, here{};
  std::size_t bytes = 0;

  Tables(const Graph& graph, const Bindings& bind) {
    problem::bind_tables(graph, bind, here.data());
    there = here;
    for (std::size_t i = 0; i < graph.captures.size(); ++i) {
      const Tensor& t = problem::find_binding(bind, graph.captures[i])->tensor;
      if (!on_host(t)) continue;
      uploads_[count_++] = {i, static_cast<std::size_t>(problem::reach_bytes(t).value_or(0))};
      bytes += padded(uploads_[count_ - 1].bytes);
    }
  }
  void upload(const Engine& engine, int device, Stream stream, char* memory) {
    for (std::size_t i = 0; i < count_; ++i) {
      const auto [table, size] = uploads_[i];
      engine.upload(device, stream, memory, here[table].data, size);
      there[table].data = memory, memory += padded(size);
    }
  }

 private:
  struct Upload {
    std::size_t table = 0, bytes = 0;
  };
  std::array<Upload, Bindings::most> uploads_{};
  std::size_t count_ = 0;
};

std::uint64_t* pack(const Graph& graph, const Tables& tables, const emit::ModOptions& options, std::uint64_t* words) {
  emit::pack_arguments(graph, {tables.there.data(), graph.captures.size()}, words, options);
  return words + emit::argument_words(graph);
}

// Memory that a thread keeps: a repeated call allocates nothing.
struct Kept {
  std::vector<std::uint64_t> params, prepare;
  std::vector<std::int64_t> gathered;
  std::vector<std::int32_t> block_table;
  std::vector<Extent> sequences;
  WorkList work;
};
Kept& kept() {
  thread_local Kept memory;
  return memory;
}

void set_pages(ForwardParams& f, const Engine& engine, const Problem& p, const Decision& d, const Inputs& in,
               Stream stream, char* memory) {
  if (!p.paged) return;
  const Tensor& table = in.pages.block_table;
  f.page_size = p.page_size, f.pages = in.k.shape[0];
  f.block_table = table.as<const int>(), f.table_stride = table.stride[0];
  if (!on_host(table) || d.layout.block_table.bytes == 0) return;
  std::vector<std::int32_t>& rows = kept().block_table;
  rows.clear();
  for (std::int64_t b = 0; b < table.shape[0]; ++b) {
    const auto* row = table.as<const std::int32_t>() + b * table.stride[0];
    rows.insert(rows.end(), row, row + table.shape[1]);
  }
  char* const to = memory + d.layout.block_table.at;
  engine.upload(p.device.index, stream, to, rows.data(), rows.size() * sizeof(std::int32_t));
  f.block_table = reinterpret_cast<const int*>(to), f.table_stride = table.shape[1];
}

// ------------------------------------------------------------------------------------------------ tensor copies
// A tensor as boxes of `rows` rows and a panel of columns: of so many tokens, or of `heads` heads of each of fewer
// tokens, the heads side by side. What all heads or sequences share stands in it once.
struct TensorView {
  TensorMapSpec map;
  int head = 1, batch = 1;  // what the coordinates are multiplied with
};
TensorView view_of(const Tensor& t, const void* elsewhere, int rows, int heads = 1) {
  TensorView view;
  TensorMapSpec& map = view.map;
  const bool whole = t.rank == 4;
  const int token = whole ? 1 : 0;
  const auto set = [&](int at, std::int64_t extent, std::int64_t stride) {
    const bool once = extent <= 1 || stride == 0;
    map.dims[at] = once ? 1 : static_cast<std::uint64_t>(extent);
    map.strides[at] = extent <= 1 || stride == 0 ? 16 : static_cast<std::uint64_t>(stride) * 2;
    return once ? 0 : 1;
  };
  const bool nothing = problem::is_empty(t);
  map.data = nothing ? elsewhere : t.data, map.type = t.dtype, map.rank = 4, map.swizzle = TensorSwizzle::b128;
  map.dims[0] = static_cast<std::uint64_t>(t.shape[t.rank - 1]);
  set(1, nothing ? 1 : t.shape[token], t.stride[token]);
  view.head = set(2, nothing ? 1 : t.shape[token + 1], t.stride[token + 1]);
  view.batch = set(3, whole && !nothing ? t.shape[0] : 1, whole ? t.stride[0] : 0);
  map.box[0] = tessera_kernels::panel_columns, map.box[1] = static_cast<std::uint32_t>(rows / heads);
  map.box[2] = static_cast<std::uint32_t>(heads), map.box[3] = 1;
  if (heads > 1)
    std::swap(map.dims[1], map.dims[2]), std::swap(map.strides[1], map.strides[2]), std::swap(map.box[1], map.box[2]);
  return view;
}

void set_tensor_maps(const Engine& engine, const emit::ForwardSpec& spec, const Deal& deal, const Inputs& in,
                     const Outputs& out, char* params) {
  constexpr int q_rows = tessera_kernels::warpgroup_rows;
  const int key_rows = spec.paged ? spec.page_box : spec.k_tile;
  const TensorView q = view_of(in.q, in.q.data, q_rows, spec.heads), k = view_of(in.k, in.q.data, key_rows),
                   v = view_of(in.v, in.q.data, key_rows);
  new (params + emit::deal_param_at(spec))
      Deal{deal.list, deal.begin, deal.order, deal.units, q.head, q.batch, k.head, k.batch, v.head, v.batch};
  char* map = params + emit::map_params_at(spec);
  for (const TensorView* view : {&q, &k, &v}) engine.tensor_map(view->map, map), map += tensor_map_bytes;
  // O leaves by tensor copies where its rows are of 16-byte pieces, and of a half's type.
  if (spec.o_copy == 16 && spec.out_dtype == spec.dtype && !spec.split)
    engine.tensor_map(view_of(out.o, nullptr, q_rows, spec.heads).map, map);
}

}  // namespace

void check_place(const Engine& engine, const Device& device, const char* name, const Tensor& t) {
  if (!t.defined() || !t.data || problem::is_empty(t)) return;
  const Engine::Place place = engine.place(t.data);
  if (place.device == device.index) return;
  const std::string here =
      place.device < 0 ? std::string(place.what) : "memory of device " + std::to_string(place.device);
  throw Error(Code::invalid_device, std::string(name) + " is said to be on device " + std::to_string(device.index) +
                                        ", its address is " + here + ": give each tensor the device that it is on");
}

void check_places(const Engine& engine, const Problem& p, const Inputs& in, const Outputs& out,
                  const Workspace& workspace) {
  const auto check = [&](const char* name, const Tensor& t) {
    if (!on_host(t)) check_place(engine, p.device, name, t);
  };
  check("q", in.q), check("k", in.k), check("v", in.v), check("o", out.o), check("lse", out.lse);
  check("errors", out.errors), check("sinks", in.sinks), check("packed.cu_q", in.packed.cu_q),
      check("packed.cu_k", in.packed.cu_k);
  check("pages.block_table", in.pages.block_table), check("pages.lengths", in.pages.lengths);
  check("q_offset", in.q_offset);
  for (const Graph* graph : {&p.mask.graph(), &p.score.graph()})
    for (const Capture& capture : graph->captures)
      check(capture.name.data(), problem::find_binding(in.bind, capture)->tensor);
  if (workspace.data && workspace.bytes > 0)
    check("the workspace", tensor(workspace.data, DType::u8, {1}, {}, p.device));
}

LaunchParams::LaunchParams(const Engine& engine, const Problem& p, const TileMap& tiles, const Decision& d,
                           const DeviceRuns& runs, const DeviceDeal& dealt, const Inputs& in, const Outputs& out,
                           const Exec& exec) {
  static_assert(sizeof(ForwardParams) % sizeof(std::uint64_t) == 0);
  constexpr std::size_t forward_words = sizeof(ForwardParams) / sizeof(std::uint64_t);
  const Graph &score = d.spec.score, &mask = d.spec.mask;  // what bands describe, the kernel does not evaluate
  const int device = p.device.index;
  Kept& own = kept();
  own.params.assign(emit::forward_param_bytes(d.spec) / sizeof(std::uint64_t), 0);
  std::uint64_t* const words = own.params.data();
  bytes_ = {reinterpret_cast<std::byte*>(words), own.params.size() * sizeof(std::uint64_t)};
  ForwardParams& f = *(forward_ = new (words) ForwardParams{});

  // What the plan cannot know the size of: tables on the host, and the work list that comes from their values.
  Tables score_tables(score, in.bind), mask_tables(mask, in.bind);
  own.work.clear();
  if (d.runs_of_call || d.ordered) measure(p, in, own.sequences);
  if (d.runs_of_call) {
    work_list_of(p, d, own.sequences, {mask_tables.here.data(), mask.captures.size()}, own.work);
  }
  const std::size_t range_bytes = padded(own.work.ranges.size() * sizeof(tessera_kernels::RunRange));
  const std::size_t run_bytes = padded(own.work.runs.size() * sizeof(tessera_kernels::KeyRun));
  const bool prepared_runs = d.prepare && d.prepare->runs;
  std::array<std::size_t, tessera_kernels::most_captures> summaries{};
  std::size_t summary_bytes = 0;
  for (std::size_t i = 0; prepared_runs && i < mask.captures.size(); ++i) {
    summaries[i] = emit::summary_bytes(mask.captures[i], mask_tables.here[i]);
    summary_bytes += padded(summaries[i]);
  }
  const std::size_t more = score_tables.bytes + mask_tables.bytes + range_bytes + run_bytes + summary_bytes;
  char* memory = static_cast<char*>(exec.workspace.data);
  const std::size_t planned = memory ? 0 : d.layout.bytes;
  char* extra = nullptr;
  if (planned + more > 0) {
    char* const from_engine = static_cast<char*>(engine.workspace(device, exec.stream, planned + more));
    if (!memory) memory = from_engine;
    extra = from_engine + planned;
  }

  set_tensors(f, p, in, out);
  Gathered gathered(own.gathered, memory + d.layout.metadata.at);
  set_sequences(f, p, d, in, out, gathered, memory + d.layout.tiles_before.at);
  Deal deal{dealt.list, dealt.begin, nullptr, 0, 0, 0, 0, 0, 0, 0};
  if (d.ordered) {
    deal.order = static_cast<const tessera_kernels::i64*>(gathered.next());
    deal.units = static_cast<unsigned>(units_at_once(p, d, own.sequences, engine.caps(device)));
    order_tiles(p, tiles, d, own.sequences, own.work, own.gathered);
  }
  if (gathered.bytes() > 0)
    engine.upload(device, exec.stream, memory + d.layout.metadata.at, gathered.data(), gathered.bytes());
  set_pages(f, engine, p, d, in, exec.stream, memory);
  score_tables.upload(engine, device, exec.stream, extra);
  mask_tables.upload(engine, device, exec.stream, extra + score_tables.bytes);
  for (std::size_t i = 0; i < tiles.bands().size() && d.spec.keys == emit::Keys::bands; ++i) {
    f.band_lo[i] = std::clamp(tiles.bands()[i].lo, -farthest_band, farthest_band);
    f.band_hi[i] = std::clamp(tiles.bands()[i].hi, -farthest_band, farthest_band);
  }
  f.run_ranges = runs.ranges, f.runs = runs.runs;
  f.runs_batch = runs.batch, f.runs_head = runs.head, f.runs_tiles = runs.tiles;
  if (d.runs_of_call) {
    char* const at = extra + score_tables.bytes + mask_tables.bytes;
    const auto bytes_of = [](const auto& list) { return list.size() * sizeof(list[0]); };
    if (!own.work.ranges.empty())
      engine.upload(device, exec.stream, at, own.work.ranges.data(), bytes_of(own.work.ranges));
    if (!own.work.runs.empty())
      engine.upload(device, exec.stream, at + range_bytes, own.work.runs.data(), bytes_of(own.work.runs));
    f.run_ranges = reinterpret_cast<const tessera_kernels::RunRange*>(at);
    f.runs = reinterpret_cast<const tessera_kernels::KeyRun*>(at + range_bytes);
    f.runs_batch = own.work.batch, f.runs_head = own.work.head, f.runs_tiles = own.work.tiles;
  }
  f.splits = static_cast<int>(d.splits);
  if (d.spec.split) {
    f.partial_o = reinterpret_cast<float*>(memory + d.layout.partial_o.at);
    f.partial_lse = reinterpret_cast<float*>(memory + d.layout.partial_lse.at);
  }
  pack(mask, mask_tables, emit::mask_options(d.spec),
       pack(score, score_tables, emit::mod_options(d.spec), words + forward_words));
  if (d.persistent()) set_tensor_maps(engine, d.spec, deal, in, out, reinterpret_cast<char*>(words));
  if (!d.prepare) return;

  static_assert(sizeof(PrepareParams) % sizeof(std::uint64_t) == 0);
  own.prepare.assign(emit::prepare_param_bytes(*d.prepare) / sizeof(std::uint64_t), 0);
  prepare_bytes_ = {reinterpret_cast<std::byte*>(own.prepare.data()), own.prepare.size() * sizeof(std::uint64_t)};
  PrepareParams& prepare = *new (own.prepare.data()) PrepareParams{};
  prepare.sequences = f.sequences;
  prepare.tiles_before = reinterpret_cast<tessera_kernels::i64*>(memory + d.layout.tiles_before.at);
  prepare.tiles = p.packed ? f.tiles : (p.tokens_q + d.queries - 1) / d.queries;
  prepare.map_batch = d.map_batch, prepare.map_heads = d.map_heads, prepare.run_limit = d.run_limit;
  const std::span<const mods::Table> there{mask_tables.there.data(), mask.captures.size()};
  if (prepared_runs) {
    prepare.run_ranges = reinterpret_cast<tessera_kernels::RunRange*>(memory + d.layout.run_ranges.at);
    prepare.runs = reinterpret_cast<tessera_kernels::KeyRun*>(memory + d.layout.runs.at);
    char* at = extra + score_tables.bytes + mask_tables.bytes;
    for (std::size_t i = 0; i < mask.captures.size(); ++i) {
      if (summaries[i] > 0) prepare.entries[i] = at;
      at += padded(summaries[i]);
    }
    emit::pack_prepare_arguments(*d.prepare, there, own.prepare.data() + sizeof(PrepareParams) / sizeof(std::uint64_t));
    f.run_ranges = prepare.run_ranges, f.runs = prepare.runs;
    f.runs_batch = d.map_batch > 1 ? d.map_heads : 0, f.runs_head = d.map_heads > 1 ? 1 : 0;
    f.runs_tiles = prepare.tiles;
  }
  prepare_launches_ =
      emit::prepare_launches(*d.prepare, there, prepared_runs ? prepare.tiles * d.map_batch * d.map_heads : 0);
}

void LaunchParams::prepare(const Engine& engine, const Kernel& kernel, int device, Stream stream) const {
  auto& params = *reinterpret_cast<PrepareParams*>(prepare_bytes_.data());
  for (const emit::PrepareLaunch& launch : prepare_launches_) {
    params.stage = launch.stage, params.pass = launch.pass;
    engine.launch(device, stream, kernel, launch.blocks, prepare_bytes_.data(), prepare_bytes_.size());
  }
}

}  // namespace tessera::gpu
