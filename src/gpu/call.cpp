#include "gpu/call.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "emit/mod_text.hpp"
#include "problem/bindings.hpp"
#include "problem/layout.hpp"
#include "problem/validate.hpp"

namespace tessera::gpu {
namespace {

using tessera_kernels::ForwardParams;
using tessera_kernels::Numbers;
using tessera_kernels::Rows;

// Positions are exact within 2^48 of 0 (docs/contracts.md); beyond, sums of them only must not overflow.
constexpr std::int64_t farthest_position = std::int64_t{1} << 60, farthest_band = std::int64_t{1} << 61;

// ------------------------------------------------------------------------------------------------ where tensors are
void check_place(const Engine& engine, const Device& device, const char* name, const Tensor& t) {
  if (!t.defined() || !t.data || problem::is_empty(t)) return;
  const Engine::Place place = engine.place(t.data);
  if (place.device == device.index) return;
  const std::string here = place.device < 0 ? std::string(place.what) : "memory of device " + std::to_string(place.device);
  throw Error(Code::invalid_device, std::string(name) + " is said to be on device " + std::to_string(device.index) +
                                        ", its address is " + here + ": give each tensor the device that it is on");
}
void check_metadata_place(const Engine& engine, const Device& device, const char* name, const Tensor& t) {
  if (t.device.type == device.type) check_place(engine, device, name, t);
}

// ------------------------------------------------------------------------------------------------ metadata
// Lists of integers that are gathered on the host and uploaded as one piece.
class Gathered {
 public:
  explicit Gathered(std::vector<std::int64_t>& memory) : memory_(memory) { memory_.clear(); }
  std::size_t begin() const { return memory_.size(); }
  void add(std::int64_t value) { memory_.push_back(value); }
  const void* data() const { return memory_.data(); }
  std::size_t bytes() const { return memory_.size() * sizeof(std::int64_t); }

 private:
  std::vector<std::int64_t>& memory_;
};

bool on_host(const Tensor& t) { return t.device.type == DeviceType::cpu; }

Numbers on_device(const Tensor& t) {
  return {t.data, static_cast<int>(size_bytes(t.dtype)), static_cast<int>(t.stride[0])};
}

// The numbers of a tensor, from where they are; on the host they are gathered, and lie at `memory` once uploaded.
Numbers numbers(const Tensor& t, Gathered& gathered, const char* memory) {
  if (!on_host(t)) return on_device(t);
  const std::size_t at = gathered.begin();
  for (std::int64_t i = 0; i < t.shape[0]; ++i)
    gathered.add(std::clamp(problem::integer_at(t, i), -farthest_position, farthest_position));
  return {memory + at * sizeof(std::int64_t), static_cast<int>(sizeof(std::int64_t)), 1};
}

// Query tiles of the sequences before each; their number in all.
std::int64_t count_tiles(const Tensor& cu_q, std::int64_t batch, std::int64_t queries, Gathered& gathered) {
  std::int64_t tiles = 0;
  for (std::int64_t i = 0;; ++i) {
    gathered.add(tiles);
    if (i == batch) return tiles;
    const std::int64_t length = problem::integer_at(cu_q, i + 1) - problem::integer_at(cu_q, i);
    tiles += (length + queries - 1) / queries;
  }
}

void set_sequences(ForwardParams& f, const Problem& p, const Decision& d, const Inputs& in, Gathered& gathered,
                   const char* memory) {
  auto& s = f.sequences;
  s.batch = p.batch, s.tokens_q = p.tokens_q, s.tokens_k = p.tokens_kv;
  f.tiles = d.tiles;
  if (p.packed) {
    s.cu_q = numbers(in.packed.cu_q, gathered, memory), s.cu_k = numbers(in.packed.cu_k, gathered, memory);
    f.tiles_before = reinterpret_cast<const tessera_kernels::i64*>(memory + gathered.begin() * sizeof(std::int64_t));
    f.tiles = count_tiles(in.packed.cu_q, p.batch, d.queries, gathered);
  }
  if (p.offset_per_sequence) s.q_offset = numbers(in.q_offset, gathered, memory);
  s.has_offset = p.q_offset.has_value();
  s.q_offset_all = std::clamp(p.q_offset.value_or(0), -farthest_position, farthest_position);
}

// ------------------------------------------------------------------------------------------------ tensors
Rows rows(const Tensor& t, bool packed) {
  if (packed) return {t.data, 0, t.stride[0], t.stride[1]};
  return {t.data, t.stride[0], t.stride[1], t.stride[2]};
}

int sinks_dtype(DType dtype) { return dtype == DType::f32 ? 0 : dtype == DType::bf16 ? 1 : 2; }

void set_tensors(ForwardParams& f, const Problem& p, const Inputs& in, const Outputs& out) {
  f.q = rows(in.q, p.packed), f.k = rows(in.k, p.packed), f.v = rows(in.v, p.packed), f.o = rows(out.o, p.packed);
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

std::size_t mod_words(const Problem& p) {
  return emit::argument_words(p.score.graph()) + emit::argument_words(p.mask.graph());
}

std::uint64_t* pack(const Graph& graph, const Bindings& bind, std::uint64_t* words) {
  std::array<mods::Table, Bindings::most> tables{};
  problem::bind_tables(graph, bind, tables.data());
  emit::pack_arguments(graph, {tables.data(), graph.captures.size()}, words);
  return words + emit::argument_words(graph);
}

// Memory that a thread keeps: a repeated call allocates nothing.
struct Kept {
  std::vector<std::uint64_t> params;
  std::vector<std::int64_t> gathered;
};
Kept& kept() {
  thread_local Kept memory;
  return memory;
}

}  // namespace

void check_places(const Engine& engine, const Problem& p, const Inputs& in, const Outputs& out,
                  const Workspace& workspace) {
  const auto check = [&](const char* name, const Tensor& t) { check_place(engine, p.device, name, t); };
  check("q", in.q), check("k", in.k), check("v", in.v), check("o", out.o), check("lse", out.lse);
  check("sinks", in.sinks);
  check_metadata_place(engine, p.device, "packed.cu_q", in.packed.cu_q);
  check_metadata_place(engine, p.device, "packed.cu_k", in.packed.cu_k);
  check_metadata_place(engine, p.device, "q_offset", in.q_offset);
  for (const Graph* graph : {&p.mask.graph(), &p.score.graph()})
    for (const Capture& capture : graph->captures)
      check(capture.name.data(), problem::find_binding(in.bind, capture)->tensor);
  if (workspace.data && workspace.bytes > 0) {
    const std::int64_t bytes = 1;
    check("the workspace", tensor(workspace.data, DType::u8, {bytes}, {}, p.device));
  }
}

LaunchParams::LaunchParams(const Engine& engine, const Problem& p, const TileMap& tiles, const Decision& d,
                           const DeviceRuns& runs, const Inputs& in, const Outputs& out, Stream stream, char* memory) {
  static_assert(sizeof(ForwardParams) % sizeof(std::uint64_t) == 0);
  constexpr std::size_t forward_words = sizeof(ForwardParams) / sizeof(std::uint64_t);
  Kept& own = kept();
  own.params.assign(forward_words + mod_words(p), 0);
  std::uint64_t* const words = own.params.data();
  bytes_ = {reinterpret_cast<std::byte*>(words), own.params.size() * sizeof(std::uint64_t)};
  ForwardParams& f = *(forward_ = new (words) ForwardParams{});

  Gathered gathered(own.gathered);
  set_tensors(f, p, in, out);
  set_sequences(f, p, d, in, gathered, memory + d.layout.metadata.at);
  if (gathered.bytes() > 0)
    engine.upload(p.device.index, stream, memory + d.layout.metadata.at, gathered.data(), gathered.bytes());
  for (std::size_t i = 0; i < tiles.bands().size() && d.spec.keys == emit::Keys::bands; ++i) {
    f.band_lo[i] = std::clamp(tiles.bands()[i].lo, -farthest_band, farthest_band);
    f.band_hi[i] = std::clamp(tiles.bands()[i].hi, -farthest_band, farthest_band);
  }
  f.run_ranges = runs.ranges, f.runs = runs.runs;
  f.runs_batch = runs.batch, f.runs_head = runs.head, f.runs_tiles = runs.tiles;
  f.splits = static_cast<int>(d.splits), f.kv_split = d.kv_split;
  if (d.spec.split) {
    f.partial_o = reinterpret_cast<float*>(memory + d.layout.partial_o.at);
    f.partial_lse = reinterpret_cast<float*>(memory + d.layout.partial_lse.at);
  }
  pack(p.mask.graph(), in.bind, pack(p.score.graph(), in.bind, words + forward_words));
}

}  // namespace tessera::gpu
