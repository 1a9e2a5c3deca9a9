// What a launch hands to the merge kernel. Host and device include this one text.
// Must not know: host types, instructions.
#pragma once
#include "params.cuh"

namespace tessera_kernels {

constexpr int merge_threads = 128;

// A partial result, or the merged one.
struct MergePart {
  Rows o;      // [batch, tokens, heads, dim] or [total, heads, dim]
  float* lse;  // [batch, heads, tokens] or [heads, total]; of the merged one null: not wanted
  i64 lse_batch, lse_head, lse_token;
};

struct MergeParams {
  MergePart a, b, out;
  i64 rows, tokens, heads, dim;  // rows: batch * tokens * heads
  int lanes_log2, unused;        // a row has 2^lanes_log2 lanes of one warp
};

}  // namespace tessera_kernels
