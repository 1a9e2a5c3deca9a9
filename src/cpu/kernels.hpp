// What the CPU backend and its kernels say to each other: one work item, the scratch it needs, one table of functions
// per instruction set.
// Must not know: plans, threads, batches.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cpu/mod_slots.hpp"
#include "tessera/tensor.hpp"
#include "tessera/tile_map.hpp"
#include "tiles/runs.hpp"

namespace tessera::cpu {

// Where the keys (or values) of one head lie, from key 0 of the sequence on. Strides count elements.
struct Source {
  const void* data = nullptr;
  std::int64_t token_stride = 0, page_stride = 0;
};

// Rows of a work item are (head, query) pairs of one key head: row r is query r % queries of head r / queries.
// Strides count elements.
struct Tile {
  const void* q = nullptr;  // [heads][queries][dim]
  std::int64_t q_head_stride = 0, q_token_stride = 0;
  Source k, v;  // [keys][dim], [keys][dim_v]
  // Key n lies in page pages[n / page_size], at place n % page_size. Null: all rows are a token stride apart.
  const std::int32_t* pages = nullptr;
  std::int64_t page_size = 0;
  void* o = nullptr;  // [heads][queries][dim_v]
  std::int64_t o_head_stride = 0, o_token_stride = 0;
  float* lse = nullptr;  // [heads][queries], natural logarithm; or null
  std::int64_t lse_head_stride = 0, lse_token_stride = 0;
  const float* sinks = nullptr;  // [heads], or null: exp(sink) joins the denominator of finished rows
  DType dtype = DType::none, out_dtype = DType::none;
  std::int64_t queries = 0, heads = 0;
  std::int64_t dim = 0, dim_v = 0;
  float scale = 0;
  std::int64_t q_position = 0;          // logical position of query 0
  std::int64_t k_begin = 0, k_end = 0;  // keys of this item; k_begin is a multiple of kv_split
  std::int64_t kv_split = 0;            // a partial result is closed and merged every so many keys
  float* partial = nullptr;             // null: finish the rows. Else: leave the panels' states here for combine()
  const TileMap* tiles = nullptr;
  const tiles::Runs* runs = nullptr;       // of a mask that bands do not describe; null: nothing is known of it
  std::int64_t first_run_tile = 0;         // of query 0 in the grid of the runs
  Mod score;                               // what the scaled scores become; none: they stay
  Mod mask;                                // evaluated where the tile map is undecided
  std::int64_t batch = 0, first_head = 0;  // coordinates of row 0 for the mods

  std::int64_t rows() const { return heads * queries; }
};

// The state of a panel of `panel` rows, rows in the lanes: o [dim_v][panel], m [panel] (reference of the exponent: the
// largest raw product so far), l [panel] (sum of exp(scale (s - m))). Unnormalised; m is the lowest float while nothing
// is attended to.
inline std::int64_t state_floats(std::int64_t panel, std::int64_t dim_v) { return (dim_v + 2) * panel; }

// The grid of the runs: finer than items and key blocks, or documents of a few hundred tokens would be mostly padding.
// A panel's rows lie in one tile; register blocks of keys do not cross one.
inline constexpr std::int64_t run_queries = 32, run_keys = 24;
// What of keys [begin, end) lies in the first run of the row's tile that reaches into them.
Cover first_run(const Tile& tile, std::int64_t row, std::int64_t begin, std::int64_t end);
// The first key from `key` on, itself the first of a block, whose block some query of the tile attends to; or past the
// last key.
std::int64_t next_block(const Tile& tile, std::int64_t key, std::int64_t k_block);

struct Kernels {
  const char* name;      // "avx2"
  std::int64_t panel;    // rows in the lanes of one inner loop
  std::int64_t k_block;  // keys between two rescalings
  // Floats of scratch for one thread, for tiles of these dims and mods and up to `rows` rows.
  std::int64_t (*scratch_floats)(const Tile& tile, std::int64_t rows);
  void (*forward)(const Tile& tile, float* scratch);
  // Merges `splits` partial results, `split_stride` floats apart, in order, and finishes the rows of the tile.
  void (*combine)(const Tile& tile, std::int64_t splits, std::int64_t split_stride, float* scratch);
};

const Kernels& kernels_scalar();
const Kernels& kernels_avx2();    // x86-64 only
const Kernels& kernels_avx512();  // x86-64 only

}  // namespace tessera::cpu
