#include "gpu/decision.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "emit/kernel_text.hpp"
#include "emit/mod_errors.hpp"
#include "emit/mod_text.hpp"
#include "gpu/tile_table_sm90.hpp"
#include "kernels/params.cuh"
#include "mods/bounds.hpp"

namespace tessera::gpu {
namespace {

constexpr std::int64_t most_partial_bytes = std::int64_t{256} << 20;
constexpr std::int64_t most_run_tiles = std::int64_t{1} << 20;  // query tiles of all maps: beyond, the mask does alone

std::size_t padded(std::size_t bytes) {
  return (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
}

// Few queries: as many heads of the group as fit share a tile, and with it every load of keys and values. Class 90 has
// more rows, of which a warpgroup's 64 are whole queries.
int heads_of_tile(const Problem& p, std::int64_t queries, int arch) {
  const std::int64_t rows = arch == 90 ? 128 : 64, most = 64;
  int heads = 1;
  for (std::int64_t h = 1; h <= std::min(p.group(), most); ++h)
    if (p.group() % h == 0 && h * queries <= rows && (arch != 90 || most % h == 0)) heads = static_cast<int>(h);
  return heads;
}

std::int64_t tiles_of_all(const Problem& p, std::int64_t queries) {
  // Each sequence wastes at most one tile, and has none if it has no queries.
  if (p.packed) return std::min(ceil_div(p.tokens_q, queries) + p.batch, p.tokens_q);
  std::int64_t tiles = 0;
  return __builtin_mul_overflow(p.batch, ceil_div(p.tokens_q, queries), &tiles) ? most_blocks + 1 : tiles;
}

// Query tiles of one map of the work list.
std::int64_t map_tiles(const Problem& p, const Decision& d) {
  return p.packed ? d.tiles : ceil_div(p.tokens_q, d.queries);
}

bool is_everything(const TileMap& tiles) {
  return tiles.decided() && tiles.bands().size() == 1 && tiles.bands()[0] == Band{};
}

// As usual_queries().
std::int64_t usual_keys(const Problem& p) {
  return p.packed ? ceil_div(p.tokens_kv, std::max<std::int64_t>(1, p.batch)) : p.tokens_kv;
}

// Keys that a query attends to, on average over some of them; without a mask that bands describe, all.
std::int64_t usually_attended(const Problem& p) {
  const TileMap map(p.mask);
  const std::int64_t keys = usual_keys(p), queries = usual_queries(p), offset = keys - queries;
  if (!map.decided() || queries == 0) return keys;
  constexpr std::int64_t looks = 8;
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < looks; ++i) {
    const std::int64_t q = offset + (queries - 1) * i / (looks - 1);
    const Cover seen = map.cover(q, q + 1, 0, keys);
    if (seen.coverage != Coverage::empty) sum += seen.k_end - seen.k_begin;
  }
  return sum / looks;
}

// Rows that tiles of class 80 are given, of those that there are. Where tiles are read from end to end few times, those
// of 64 rows have less to skip at the edge of a mask, and their beginnings and ends hide behind each other: two of them
// have a multiprocessor together, or three of dim 64. There functions of scores keep the tensor core waiting besides.
// docs/kernels/forward_sm80.md has the measurements.
std::int64_t wanted_rows(const Problem& p, std::int64_t rows) {
  const std::int64_t dim = std::max(p.dim, p.dim_v), keys = usually_attended(p);
  const bool few_keys = dim > 192 && (is_everything(TileMap(p.mask)) ? keys < 1024 : keys <= 2048);
  const auto& nodes = p.score.graph().nodes;
  const bool functions = dim <= 64 && std::any_of(nodes.begin(), nodes.end(), [](const Node& node) {
                           return node.op == Op::tanh || node.op == Op::exp || node.op == Op::exp2 ||
                                  node.op == Op::log || node.op == Op::sigmoid || node.op == Op::erf ||
                                  node.op == Op::pow;
                         });
  return !p.batch_invariant && (few_keys || functions) ? std::min<std::int64_t>(rows, 64) : rows;
}

// `rows` of queries that a tile should have room for. Null: there is no such tile on this device.
const Tile* tile_for(const Problem& p, const Caps& caps, int arch, std::span<const Tile> table, std::int64_t rows) {
  const auto dim = static_cast<int>(p.dim), dim_v = static_cast<int>(p.dim_v);
  if (arch != 90)
    return find_tile(table, caps, dim, dim_v, p.paged, wanted_rows(p, rows),
                     p.batch_invariant || p.out_dtype == DType::f32);
  const bool decided = TileMap(p.mask).decided();
  TileUse use{dim, dim_v, !decided || !is_everything(TileMap(p.mask)), !decided || !p.score.graph().nodes.empty(), 0};
  use.keys = p.batch_invariant ? std::numeric_limits<std::int64_t>::max() : usual_keys(p);
  return find_tile_sm90(table, caps, use);
}

// Whether coordinates fit in 32 bits: what is known before any data, the position of the first query among it. A tile
// may reach beyond the last query or key.
bool is_narrow(const Problem& p) {
  constexpr std::int64_t most = emit::nearby - 512;
  if (p.offset_per_sequence || std::max({p.tokens_q, p.tokens_kv, p.batch, p.heads_q}) > most) return false;
  const std::int64_t offset = p.q_offset.value_or(0);  // else keys - queries, which lies within their numbers
  return offset >= -most && offset <= most - p.tokens_q && emit::fits_narrow(p.mask.graph()) &&
         emit::fits_narrow(p.score.graph());
}

// Tensor copies: what they ask of tensors and devices.
void reasons_sm90(const Problem& p, const Caps& caps, std::vector<std::string>& all) {
  if (caps.arch >= 90 && caps.arch != 90)
    all.push_back("the kernels are for compute capability 9.0 alone, " + caps.name + " has " +
                  std::to_string(caps.arch / 10) + "." + std::to_string(caps.arch % 10));
  if (caps.arch == 90 && !caps.tensor_maps) all.push_back("the driver of " + caps.name + " makes no tensor maps");
  const auto aligned = [&](const char* which, std::int64_t bytes) {
    if (bytes < 16)
      all.push_back(std::string(which) + " has rows at multiples of " + std::to_string(bytes) +
                    " bytes: tensor copies need multiples of 16");
  };
  if (p.shared_rows)
    all.push_back("tokens, or query heads, share rows by a stride of 0: tensor copies take rows of their own");
  aligned("q", p.align.q), aligned("k", p.align.k), aligned("v", p.align.v);
}

int copy_bytes(std::int64_t align_bytes) { return static_cast<int>(std::min<std::int64_t>(align_bytes, 16)); }

// ------------------------------------------------------------------------------------------------ masks
// Whether the work list of a mask that bands do not describe is worth its making: there are keys to be skipped, the
// heads of a tile attend to the same ones, and the list stays small beside the attention itself.
bool worth_mapping(const Problem& p, const Decision& d) {
  if (p.tokens_q == 0 || p.batch == 0 || p.tokens_kv < 2 * d.spec.k_tile) return false;
  const mods::Dependence sees = mods::dependence(p.mask.graph());
  if (sees.head && d.spec.heads > 1) return false;
  const double maps = sees.head ? static_cast<double>(p.heads_q) : 1;
  return maps * static_cast<double>(d.tiles) <= static_cast<double>(most_run_tiles);
}

// The same in every call: made now.
std::shared_ptr<const tiles::RunMaps> fixed_runs(const Problem& p, const Decision& d) {
  const Graph& mask = p.mask.graph();
  const std::int64_t offset = p.q_offset.value_or(p.tokens_kv - p.tokens_q);
  if (offset > mods::farthest / 2 || offset < -mods::farthest / 2) return {};
  const std::vector<tiles::Grid> grids(mods::dependence(mask).batch ? static_cast<std::size_t>(p.batch) : 1,
                                       {offset, p.tokens_q, p.tokens_kv, d.queries, d.spec.k_tile});
  return std::make_shared<const tiles::RunMaps>(mask, std::span<const mods::Table>{}, grids, p.heads_q);
}

// Maps that a kernel makes on the device, in memory that must be there for the most runs that they can have. False:
// they would be too large, and the mask does alone.
bool choose_maps(const Problem& p, Decision& d) {
  const mods::Dependence sees = mods::dependence(p.mask.graph());
  d.map_batch = !p.packed && (sees.batch || p.lengths || p.offset_per_sequence) ? p.batch : 1;
  d.map_heads = sees.head ? p.heads_q : 1;
  d.run_limit = emit::run_limit(ceil_div(p.tokens_kv, d.spec.k_tile));
  const std::int64_t run_bytes = d.run_limit * static_cast<std::int64_t>(sizeof(tessera_kernels::KeyRun));
  return map_tiles(p, d) * d.map_batch * d.map_heads <= most_partial_bytes / run_bytes;
}

// Everything that decides which tiles matter lies where the host sees it.
bool host_sees_all(const Problem& p) {
  const OnDevice& there = p.on_device;
  return !there.cu_q && !there.cu_k && !there.lengths && !there.q_offset && !there.mask;
}

void choose_keys(const Problem& p, const TileMap& tiles, Decision& d) {
  emit::ForwardSpec& spec = d.spec;
  if (is_everything(tiles)) return;
  if (tiles.decided()) {
    spec.keys = emit::Keys::bands, spec.bands = static_cast<int>(tiles.bands().size());
    spec.left_open = spec.bands == 1 && tiles.bands()[0].lo == Band{}.lo;
    return;
  }
  spec.mask = p.mask.graph();
  spec.mask_dtypes.assign(p.mask_tables.begin(), p.mask_tables.end());
  if (!worth_mapping(p, d)) return;
  if (tiles::runs_are_fixed(p.mask.graph()) && p.keys_known() && !p.offset_per_sequence) d.runs = fixed_runs(p, d);
  else d.runs_of_call = host_sees_all(p);
  const bool on_device = !d.runs && !d.runs_of_call && choose_maps(p, d);
  if (d.runs || d.runs_of_call || on_device) spec.keys = emit::Keys::runs;
}

void choose_prepare(const Problem& p, Decision& d) {
  const bool runs = d.spec.keys == emit::Keys::runs && !d.runs && !d.runs_of_call;
  if (!runs && !(p.packed && p.on_device.cu_q)) return;
  emit::PrepareSpec& spec = d.prepare.emplace();
  spec.packed = p.packed, spec.queries = static_cast<int>(d.queries), spec.runs = runs;
  if (runs) spec.k_tile = d.spec.k_tile, spec.mask = d.spec.mask, spec.mask_dtypes = d.spec.mask_dtypes;
}

// ------------------------------------------------------------------------------------------------ splits
// Keys that some query of a tile attends to, at most.
std::int64_t attended_keys(const Problem& p, const TileMap& tiles, std::int64_t queries) {
  if (!tiles.decided() || p.tokens_kv == 0) return p.tokens_kv;
  if (tiles.bands().empty()) return 0;
  const std::int64_t lo = tiles.bands().front().lo, hi = tiles.bands().back().hi;
  std::int64_t span = 0;
  if (__builtin_sub_overflow(hi, lo, &span) || __builtin_add_overflow(span, queries, &span)) return p.tokens_kv;
  return std::clamp<std::int64_t>(span, 1, p.tokens_kv);
}

// Key tiles in which they lie, at most: they may begin anywhere in a tile.
std::int64_t attended_tiles(const Problem& p, const TileMap& map, const Decision& d) {
  const std::int64_t keys = attended_keys(p, map, d.queries), k_tile = d.spec.k_tile;
  return keys == 0 ? 0 : std::min(ceil_div(p.tokens_kv, k_tile), ceil_div(keys + k_tile - 1, k_tile));
}

// When there are too few tiles to fill the device, their keys are split: into as many parts as make it busy for the
// shortest time, counted in key tiles. A part costs two tiles more than its keys (start and end of a block); merging
// costs about three, and an eighth for each part.
std::int64_t choose_splits(const Problem& p, const TileMap& map, const Caps& caps, const Decision& d, int resident) {
  if (p.batch_invariant) return 1;  // a row's keys are then added up in one order, whatever else is there
  const std::int64_t items = d.tiles * d.units, slots = std::int64_t{std::max(1, caps.sms)} * std::max(1, resident);
  if (items == 0 || items >= slots) return 1;
  const std::int64_t key_tiles = attended_tiles(p, map, d);
  const std::int64_t bytes_of_one = items * d.spec.q_tile * (p.dim_v + 1) * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t most = std::min({key_tiles / 2, std::int64_t{128}, most_partial_bytes / bytes_of_one});
  const auto cost = [&](std::int64_t n) {
    const double each = static_cast<double>(ceil_div(key_tiles, n)) + 2;
    return static_cast<double>(ceil_div(items * n, slots)) * each + (n > 1 ? 3 + static_cast<double>(n) / 8 : 0);
  };
  std::int64_t best = 1;
  for (std::int64_t n = 2; n <= most; ++n)
    if (cost(n) < cost(best)) best = n;
  return best;
}

void split_keys(const Problem& p, const TileMap& map, const Caps& caps, Decision& d) {
  Tile tile{0, d.spec.q_tile, d.spec.k_tile, d.spec.warps, d.spec.stages};
  tile.warps_n = d.spec.warps_n;
  const int resident = resident_blocks(
      caps, tile_smem_bytes(tile, static_cast<int>(p.dim), static_cast<int>(p.dim_v), p.paged), 32 * d.spec.warps);
  const std::int64_t wanted = choose_splits(p, map, caps, d, d.persistent() ? 1 : resident);
  if (wanted <= 1) return;
  // The kernel shares out what each query tile attends to: as many splits, of so many keys at most.
  const std::int64_t tiles = attended_tiles(p, map, d), each = ceil_div(tiles, wanted);
  d.kv_split = each * d.spec.k_tile, d.splits = ceil_div(tiles, each);
  const std::int64_t bytes = d.items() * d.spec.q_tile * (p.dim_v + 1) * static_cast<std::int64_t>(sizeof(float));
  if (d.splits <= 1 || bytes > most_partial_bytes || d.items() > most_blocks) d.splits = 1, d.kv_split = 0;
  d.spec.split = d.splits > 1;
}

// ------------------------------------------------------------------------------------------------ who does what
// Sequences that differ in length, and are known to the host in each call alone.
bool orders_tiles(const Problem& p, const Caps& caps, const Decision& d) {
  constexpr std::int64_t most_tiles = std::int64_t{1} << 16;
  const OnDevice& there = p.on_device;
  const bool seen = !there.cu_q && !there.cu_k && !there.lengths && !there.q_offset;
  return d.persistent() && !d.spec.split && (p.packed || p.lengths) && seen && p.tokens_kv > 0 &&
         d.tiles <= most_tiles && d.items() > persistent_blocks(caps, d.items()) &&
         (d.spec.keys != emit::Keys::runs || d.runs_of_call);
}

void deal_items(const Problem& p, const TileMap& map, const Caps& caps, Decision& d) {
  d.ordered = orders_tiles(p, caps, d);
  constexpr std::int64_t most_items = std::int64_t{1} << 20, most_runs = std::int64_t{1} << 22;
  const bool known = d.persistent() && !p.packed && !p.lengths && !p.offset_per_sequence && !d.spec.split;
  if (!known || d.spec.keys == emit::Keys::all || d.items() > most_items || p.tokens_kv == 0) return;
  if (d.spec.keys == emit::Keys::runs && (!d.runs || d.items() > most_runs)) return;
  Work work;
  work.heads = p.batch * d.units, work.tiles = ceil_div(p.tokens_q, d.queries);
  work.group = p.group() / d.spec.heads;
  work.bytes_of_keys = static_cast<double>(p.tokens_kv * (p.dim + p.dim_v)) * 2;
  const std::int64_t offset = p.q_offset.value_or(p.tokens_kv - p.tokens_q);
  if (offset > mods::farthest / 2 || offset < -mods::farthest / 2) return;
  for (std::int64_t i = 0; i < work.tiles; ++i) {  // the kernel counts them from the end
    const std::int64_t tile = work.tiles - 1 - i, first = tile * d.queries;
    double keys = 0;
    if (d.runs) {
      for (const tiles::Run& run : d.runs->at(0, 0)[static_cast<std::size_t>(tile)]) keys += run.end - run.begin;
    } else {
      const Cover cover = map.cover(offset + first, offset + std::min(p.tokens_q, first + d.queries), 0, p.tokens_kv);
      if (cover.coverage != Coverage::empty)
        keys = static_cast<double>(ceil_div(cover.k_end, d.spec.k_tile) - cover.k_begin / d.spec.k_tile);
    }
    work.cost.push_back(keys);
  }
  d.dealt = std::make_shared<const DealList>(deal(work, persistent_blocks(caps, d.items()), cache_of_keys(caps)));
}

// Whether what a score change adds by the place of the key may lead far from what it adds in the tile that a row meets
// first, its last one: by ALiBi for keys behind the query it does not, for keys before it, it does. Looked at for some
// queries and keys of score 0 and with captured reals of 1, for where they lead the plan cannot know: a row that is
// taken too far is done again (kernels/softmax.cuh), and costs twice its time. In units of a score.
bool stays_near(const Problem& p, const TileMap& map) {
  constexpr double far = 60;  // 86 powers of two, of 127
  const Graph& score = p.score.graph();
  if (!mods::dependence(score).key) return true;
  if (!map.decided()) return false;
  static constexpr float one = 1;
  std::vector<mods::Table> tables;
  for (const Capture& capture : score.captures) {
    if (capture.type != Type::real) return false;
    mods::Table table{&one, DType::f32, {}, {}};
    table.extent.fill(1);
    tables.push_back(table);
  }
  const std::int64_t offset = p.q_offset.value_or(p.tokens_kv - p.tokens_q);
  if (offset > mods::farthest / 2 || offset < -mods::farthest / 2) return false;
  for (const std::int64_t head : {std::int64_t{0}, p.heads_q / 2, p.heads_q - 1}) {
    for (const std::int64_t query : {std::int64_t{0}, p.tokens_q / 2, p.tokens_q - 1}) {
      const Cover keys = map.cover(offset + query, offset + query + 1, 0, p.tokens_kv);
      if (keys.coverage == Coverage::empty) continue;
      const auto at = [&](std::int64_t key) {
        return mods::evaluate_score(score, {0, head, offset + query, key, 0}, tables);
      };
      const double first = at(keys.k_end - 1);
      for (std::int64_t i = 0; i < 32; ++i)
        if (!(at(keys.k_begin + (keys.k_end - 1 - keys.k_begin) * i / 32) <= first + far)) return false;
    }
  }
  return true;
}

// Whether the reference of the softmax is fixed: 8 to 15 % faster, within the accuracy rule where errors are averaged
// over many keys, and not one row's alone. With batch_invariant a row has the same bits whatever its shape.
bool fixes_reference(const Problem& p, const TileMap& map, const emit::ForwardSpec& spec) {
  constexpr std::int64_t many_queries = 128, many_keys = 256;
  return spec.arch < 90 && p.dtype == DType::bf16 && p.out_dtype != DType::f32 && !p.batch_invariant &&
         usual_queries(p) >= many_queries && p.tokens_kv >= many_keys && !(spec.split && spec.lse) &&
         stays_near(p, map);
}

Layout lay_out(const Problem& p, const Decision& d) {
  Layout l;
  const auto piece = [&](std::size_t bytes) {
    const Layout::Piece made{l.bytes, bytes};
    l.bytes += padded(bytes);
    return made;
  };
  const auto numbers = static_cast<std::size_t>(p.batch + 1) * sizeof(std::int64_t);
  // On the device they stay where they are.
  const std::size_t lists = std::size_t{p.packed && !d.prepare} + std::size_t{p.packed && !p.on_device.cu_q} +
                            std::size_t{p.packed_keys() && !p.on_device.cu_k} +
                            std::size_t{p.lengths && !p.on_device.lengths} +
                            std::size_t{p.offset_per_sequence && !p.on_device.q_offset};
  l.metadata = piece(lists * numbers + (d.ordered ? static_cast<std::size_t>(d.tiles) * sizeof(std::int64_t) : 0));
  if (p.paged && !p.on_device.block_table)
    l.block_table = piece(static_cast<std::size_t>(p.batch * (p.tokens_kv / p.page_size)) * sizeof(std::int32_t));
  if (d.prepare) {
    l.tiles_before = piece(p.packed ? numbers : 0);
    const auto items = static_cast<std::size_t>(map_tiles(p, d) * d.map_batch * d.map_heads);
    if (d.prepare->runs) {
      l.run_ranges = piece(items * sizeof(tessera_kernels::RunRange));
      l.runs = piece(items * static_cast<std::size_t>(d.run_limit) * sizeof(tessera_kernels::KeyRun));
    }
  }
  if (d.spec.split) {
    const auto rows = static_cast<std::size_t>(d.items() * d.spec.q_tile);
    l.partial_o = piece(rows * static_cast<std::size_t>(p.dim_v) * sizeof(float));
    l.partial_lse = piece(rows * sizeof(float));
  }
  return l;
}

}  // namespace

std::int64_t usual_queries(const Problem& p) {
  return p.packed ? ceil_div(p.tokens_q, std::max<std::int64_t>(1, p.batch)) : p.tokens_q;
}

std::span<const Tile> tiles_of(int arch) { return arch == 90 ? tile_table_sm90() : tile_table(); }

int persistent_blocks(const Caps& caps, std::int64_t items) {
  return static_cast<int>(std::clamp<std::int64_t>(items, 1, std::max(1, caps.sms)));
}

int resident_blocks(const Caps& caps, std::int64_t smem_bytes, int threads) {
  const std::int64_t by_smem = caps.smem_sm_bytes / std::max<std::int64_t>(1, smem_bytes + caps.smem_reserved_bytes);
  return static_cast<int>(std::clamp<std::int64_t>(by_smem, 1, std::max(1, caps.threads_sm / threads)));
}

std::vector<std::string> reasons(const Problem& p, const Caps& caps, int arch, std::span<const Tile> table) {
  std::vector<std::string> all;
  if (caps.arch < arch)
    all.push_back("the kernels need compute capability " + std::to_string(arch / 10) + "." + std::to_string(arch % 10) +
                  ", " + caps.name + " has " + std::to_string(caps.arch / 10) + "." + std::to_string(caps.arch % 10));
  if (p.dtype != DType::bf16 && p.dtype != DType::f16)
    all.push_back("q, k and v are " + std::string(name(p.dtype)) + ": tensor cores take bf16 and f16");
  const auto dim = [&](const char* which, std::int64_t value) {
    if (value <= max_dim) return true;
    all.push_back(std::string("the head dim of ") + which + " is " + std::to_string(value) +
                  ": the gpu kernels take 1 to " + std::to_string(max_dim));
    return false;
  };
  const auto tokens = [&](const char* which, std::int64_t value) {
    if (value > most_blocks)
      all.push_back(std::string(which) + " has " + std::to_string(value) + " tokens: the gpu kernels take up to " +
                    std::to_string(most_blocks));
  };
  tokens("q", p.tokens_q), tokens("k", p.tokens_kv);
  const bool fits_q = dim("q and k", p.dim), fits_v = dim("v", p.dim_v);
  emit::ForwardSpec mods;
  mods.arch = arch, mods.score = p.score.graph(), mods.mask = p.mask.graph();
  if (const std::size_t bytes = emit::forward_param_bytes(mods); bytes > most_param_bytes)
    all.push_back("the mask's and the score change's run-time values make a launch of " + std::to_string(bytes) +
                  " bytes: " + std::to_string(most_param_bytes) + " are allowed");
  if (!fits_q || !fits_v) return all;
  if (arch == 90) reasons_sm90(p, caps, all);
  const int heads = heads_of_tile(p, usual_queries(p), arch);
  const Tile* const tile = tile_for(p, caps, arch, table, heads * usual_queries(p));
  if (!tile) {
    all.push_back("no tile of dims " + std::to_string(p.dim) + " and " + std::to_string(p.dim_v) + " fits the " +
                  std::to_string(caps.smem_block_bytes) + " bytes of shared memory of " + caps.name);
    return all;
  }
  const std::int64_t tiles = tiles_of_all(p, tile->q_tile / heads);
  std::int64_t blocks = 0;
  if (__builtin_mul_overflow(tiles, p.heads_q / heads, &blocks) || blocks > most_blocks)
    all.push_back("there are " + std::to_string(tiles) + " tiles of queries for each of " +
                  std::to_string(p.heads_q / heads) + " units of heads: a launch has at most " +
                  std::to_string(most_blocks) + " blocks");
  return all;
}

Decision decide(const Problem& p, const TileMap& map, const Caps& caps, int arch, std::span<const Tile> table) {
  Decision d;
  emit::ForwardSpec& spec = d.spec;
  spec.arch = arch, spec.dtype = p.dtype, spec.out_dtype = p.out_dtype;
  spec.dim = static_cast<int>(p.dim), spec.dim_v = static_cast<int>(p.dim_v);
  spec.heads = heads_of_tile(p, usual_queries(p), arch);
  const Tile tile = *tile_for(p, caps, arch, table, spec.heads * usual_queries(p));
  spec.q_tile = tile.q_tile, spec.k_tile = tile.k_tile, spec.warps = tile.warps, spec.stages = tile.stages;
  spec.blocks = tile.blocks, spec.early = tile.early, spec.q_registers = tile.q_registers;
  spec.warps_n = tile.warps_n;
  if (arch == 90)
    spec.v_stages = tile.v_stages, spec.q_buffers = tile.q_buffers, spec.ping_pong = tile.ping_pong,
    spec.turned = p.scale <= 0 && p.score.graph().nodes.empty(),
    spec.page_box = !p.paged               ? 0
                    : p.page_size % 8 == 0 ? static_cast<int>(std::gcd(std::int64_t{tile.k_tile}, p.page_size))
                                           : 1;
  spec.q_copy = copy_bytes(p.align.q), spec.k_copy = copy_bytes(p.align.k);
  spec.v_copy = copy_bytes(p.align.v), spec.o_copy = copy_bytes(p.align.o);
  // A tensor store on an H200 wrote beyond rows that are no multiple of 16 bytes.
  if (arch == 90 && p.dim_v % 8 != 0) spec.o_copy = std::min(spec.o_copy, 8);
  spec.packed = p.packed, spec.paged = p.paged, spec.lengths = p.lengths;
  spec.lse = p.wants_lse, spec.sinks = p.sinks;
  spec.narrow = is_narrow(p);
  spec.score = p.score.graph();
  spec.absolute_tanh = !p.wants_lse && p.out_dtype != DType::f32 && emit::takes_absolute_tanh(spec.score);
  spec.score_dtypes.assign(p.score_tables.begin(), p.score_tables.end());
  d.queries = spec.q_tile / spec.heads;
  d.units = p.heads_q / spec.heads;
  d.tiles = tiles_of_all(p, d.queries);
  choose_keys(p, map, d);
  choose_prepare(p, d);
  split_keys(p, map, caps, d);
  spec.fixed = fixes_reference(p, map, spec);
  deal_items(p, map, caps, d);
  d.layout = lay_out(p, d);
  return d;
}

}  // namespace tessera::gpu
