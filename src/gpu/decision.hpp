// How a problem is cut for a GPU: which kernel, which tiles, which splits, which workspace. A pure function of
// (Problem, TileMap, Caps); everything that a run needs and that does not change from one to the next.
// Must not know: engines, drivers, addresses, data.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emit/kernel_spec.hpp"
#include "emit/prepare_text.hpp"
#include "gpu/deal.hpp"
#include "gpu/engine.hpp"
#include "gpu/tile_table.hpp"
#include "tessera/plan.hpp"
#include "tiles/run_maps.hpp"

namespace tessera::gpu {

inline constexpr std::int64_t max_dim = 256;
inline constexpr std::int64_t most_blocks = 0x7fffffff;  // of a launch
inline constexpr std::size_t most_param_bytes = 4096;    // of a launch, on every driver
inline constexpr std::size_t workspace_alignment = 64;

// Where the pieces of a call's workspace begin, in bytes, and how many there are. What is not needed has no bytes.
struct Layout {
  struct Piece {
    std::size_t at = 0, bytes = 0;
    bool operator==(const Piece&) const = default;
  };
  Piece metadata;  // what lies on the host is uploaded here: prefix sums, lengths, offsets, tiles_before
  Piece block_table;
  Piece tiles_before, run_ranges, runs;  // of a prepare kernel
  Piece partial_o, partial_lse;          // [items, rows, dim_v] and [items, rows]
  std::size_t bytes = 0;
  bool operator==(const Layout&) const = default;
};

// The library's table for a class of kernels.
std::span<const Tile> tiles_of(int arch);

struct Decision {
  emit::ForwardSpec spec;
  std::int64_t queries = 0;   // of a tile: its rows are queries x spec.heads
  std::int64_t units = 0;     // of heads that share a tile
  std::int64_t tiles = 0;     // query tiles of one unit over all sequences; packed: at most
  std::int64_t splits = 1;    // of the keys
  std::int64_t kv_split = 0;  // keys of a split, at most
  Layout layout;
  std::shared_ptr<const tiles::RunMaps> runs;  // the work list of a mask, the same in every call
  bool runs_of_call = false;                   // the host makes it in each call, from what that call's tensors hold
  // What a kernel finds on the device before the forward kernel starts, from numbers and tables that the host does not
  // see: the tiles before each packed sequence, and the work list, of so many maps and at most so many runs a tile.
  std::optional<emit::PrepareSpec> prepare{};
  std::int64_t map_batch = 1, map_heads = 1, run_limit = 0;
  // Persistent kernels: what each block does, where items differ and the same in every call; else they go round.
  std::shared_ptr<const DealList> dealt{};
  bool ordered = false;  // or in each call, from what it says of its sequences, in the order that order.hpp makes

  std::int64_t items() const { return tiles * units * splits; }
  bool persistent() const { return spec.arch == 90; }
};

// Every reason why a kernel of class `arch` cannot run the problem on such a device; empty: it can.
std::vector<std::string> reasons(const Problem& problem, const Caps& caps, int arch, std::span<const Tile> table);

// The problem has no reasons against it.
Decision decide(const Problem& problem, const TileMap& tiles, const Caps& caps, int arch, std::span<const Tile> table);
inline std::vector<std::string> reasons(const Problem& problem, const Caps& caps, int arch) {
  return reasons(problem, caps, arch, tiles_of(arch));
}
inline Decision decide(const Problem& problem, const TileMap& tiles, const Caps& caps, int arch) {
  return decide(problem, tiles, caps, arch, tiles_of(arch));
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

// Bytes of keys and values that heads which are worked on at once may have: half of L2.
inline double cache_of_keys(const Caps& caps) { return 0.5 * static_cast<double>(caps.l2_bytes); }

// Queries of a sequence, on average where they are packed: what a tile is likely to be filled with.
std::int64_t usual_queries(const Problem& problem);

// Blocks of such a kernel that one multiprocessor holds, by shared memory and threads; what registers allow is known
// once it is compiled.
int resident_blocks(const Caps& caps, std::int64_t smem_bytes, int threads);
// Blocks of a launch that live until all work is done: one on each multiprocessor.
int persistent_blocks(const Caps& caps, std::int64_t items);

}  // namespace tessera::gpu
