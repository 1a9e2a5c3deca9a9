// What a launch hands to the kernels: one struct by value each. Host and device include this one text (the host to fill
// it in, src/gpu; NVRTC and the emulated GPU with the kernel), so it uses plain types only.
// Must not know: host types, instructions.
#pragma once

namespace tessera_kernels {

using i64 = long long;

// A [batch, tokens, heads, dim] tensor whose last stride is 1; packed: [total, heads, dim], batch stride 0; paged (k
// and v): [pages, page_size, heads, dim], `batch` is the stride of a page. Strides in elements.
struct Rows {
  void* data;
  i64 batch, token, head;
};

// int32 or int64 numbers on the device; bytes 0: there are none.
struct Numbers {
  const void* data;
  int bytes;
  int stride;  // in elements
};

// Key tiles [begin, end): as tiles::Run, the high bit of `end` says full.
struct KeyRun {
  unsigned begin, end_full;
};
// The runs of one query tile: runs[begin, end).
struct RunRange {
  unsigned begin, end;
};

constexpr int max_bands = 8;
// Error bits that a kernel sets where the host can't refuse: metadata on the device was out of range and was clamped.
// As MetadataError (problem.hpp).
constexpr unsigned error_prefix_sums = 1, error_lengths = 2, error_block_table = 4;

// The shapes, and which tokens belong to which sequence. In every kernel's parameters.
struct Sequences {
  i64 batch, tokens_q, tokens_k;  // tokens of each sequence; packed: totals; paged: block table width * page_size
  Numbers cu_q, cu_k;             // packed: prefix sums [batch + 1]
  Numbers lengths;                // used keys of each sequence [batch] (paged, or dense with a shorter use)
  Numbers q_offset;               // logical position of each first query [batch]
  i64 q_offset_all;               // if there are none of them, and has_offset
  int has_offset;                 // else keys - queries
  unsigned* error;                // one word, into which error bits go; or null
};

struct ForwardParams {
  Rows q, k, v, o;
  float* lse;  // null: not wanted
  i64 lse_batch, lse_head, lse_token;
  Sequences sequences;
  int heads_q, heads_kv;
  float scale;
  const int* block_table;  // paged: [batch, width], page numbers
  i64 table_stride, page_size, pages;
  i64 band_lo[max_bands], band_hi[max_bands];  // lo <= k - q <= hi, logical positions
  const RunRange* run_ranges;                  // [maps, query tiles]
  const KeyRun* runs;
  // The map of (b, h) starts at (b * runs_batch + h * runs_head) * runs_tiles, h the first head of the tile. Packed:
  // runs_batch is 0, and a query tile has its number over all sequences, tiles_before[b] + tile.
  i64 runs_batch, runs_head, runs_tiles;
  const i64* tiles_before;  // packed: [batch + 1], query tiles of the sequences before
  i64 tiles;                // query tiles of one unit of heads, over all sequences; packed: at most
  // A query tile: q_tile / heads queries, whose row is query * heads + head. The launch has tiles * units * splits
  // blocks, units = heads_q / heads; fewer than 2^31, and so are the tokens of each sequence.
  int splits;        // of the keys that a query tile attends to, in equal parts; 1: none
  float* partial_o;  // [items, rows, dim_v], item = (tile * units + unit) * splits + split; normalised by their own sum
  float* partial_lse;             // [items, rows], base 2; -inf: nothing there, and no partial_o written
  const void* sinks;              // [heads_q], or null
  int sinks_dtype, sinks_stride;  // 0 f32, 1 bf16, 2 f16
};

}  // namespace tessera_kernels
