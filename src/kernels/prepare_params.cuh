// What a launch hands to the prepare kernel. Host and device include this one text.
// Must not know: host types, instructions.
#pragma once
#include "params.cuh"

namespace tessera_kernels {

constexpr int prepare_threads = 256, prepare_warps = prepare_threads / 32;

// What the launches of a call do, in this order; those that are not needed are left out.
enum PrepareStage {
  prepare_entries,  // one pass over the summaries of all captured tensors; many blocks
  prepare_rest,     // the passes that are left, and tiles_before; one block
  prepare_runs,     // the runs; a warp for each query tile of each map
};
constexpr int most_captures = 8;

struct PrepareParams {
  Sequences sequences;
  i64* tiles_before;             // packed: [batch + 1], written
  i64 tiles;                     // query tiles of a map: of a sequence; packed: of all of them, at most
  RunRange* run_ranges;          // [maps, tiles], written
  KeyRun* runs;                  // [maps, tiles, run_limit], written
  i64 run_limit;                 // runs of a query tile, 1 or more
  i64 map_batch, map_heads;      // maps of sequences (packed: 1, its tiles are those of all) and of heads; else 1
  void* entries[most_captures];  // of each captured tensor its summary, written; null: it has no elements
  int stage, pass;               // pass: of prepare_entries; of prepare_rest the first that is left
};

}  // namespace tessera_kernels
