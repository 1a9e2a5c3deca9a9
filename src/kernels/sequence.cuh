// Which sequence, heads, queries and part of the keys a block works on, and the metadata that says so. What lies on the
// device cannot be refused before the launch: it is clamped to what the shapes allow, and an error bit is set.
// Must not know: tiles in shared memory, masks, softmax.
#pragma once
#include "layout.cuh"
#include "params.cuh"
#include "ptx/memory.cuh"
#include "ptx/warp.cuh"

namespace tessera_kernels {

constexpr i64 farthest_offset = 1LL << 60;  // positions beyond would overflow when tokens are added

constexpr i64 most_tokens = 0x7fffff00;  // of a sequence; the width of a block table may promise more

PTX i64 clamp(i64 x, i64 lo, i64 hi) { return x < lo ? lo : x > hi ? hi : x; }

PTX i64 number(const Numbers& n, i64 i) {
  return n.bytes == 8 ? static_cast<const i64*>(n.data)[i * n.stride] : static_cast<const i32*>(n.data)[i * n.stride];
}

PTX void report(const Sequences& s, u32 error, bool wrong) {
  if (wrong && threadIdx.x == 0 && s.error) ptx::atomic_or(s.error, error);
}

// A number within [lo, hi].
PTX i64 clamped(const Sequences& s, const Numbers& n, i64 i, i64 lo, i64 hi, u32 error) {
  const i64 x = number(n, i), y = clamp(x, lo, hi);
  report(s, error, x != y);
  return y;
}

struct Tokens {
  i64 begin;  // row in a packed tensor
  i32 count;
};
PTX Tokens tokens_of(const Sequences& s, const Numbers& cu, i64 sequence, i64 total) {
  if (cu.bytes == 0) return {0, (i32)(total < most_tokens ? total : most_tokens)};
  const i64 begin = clamped(s, cu, sequence, 0, total, error_prefix_sums);
  const i64 end = clamped(s, cu, sequence + 1, begin, total, error_prefix_sums);
  return {begin, (i32)(end - begin)};
}

// The work of a block.
struct alignas(16) Item {
  i64 sequence;
  i64 tile_of_all;       // the query tile, counted over all sequences
  i64 q_begin, k_begin;  // first rows in packed tensors
  i64 offset;            // logical position of the sequence's first query
  const void *k, *v;     // key 0 of the head; in pages: of page 0
  u32 tile, unit, split;
  i32 n_q, n_k;                // tokens of the sequence
  i32 first_query;             // of the tile
  i32 head, head_kv;           // the first of the tile's query heads, and their key head
  i32 tiles_begin, tiles_end;  // key tiles of this split
  float exponent;              // what leads from scores to exponents of 2
  bool any;                    // false: the launch has more blocks than there is work
};

static_assert(sizeof(Item) == item_bytes, "as layout.cuh counts it");

// The sequence of block `block`, one of `units` for each query tile: the largest s with tiles_before[s] * units <=
// block. All lanes look at once: one round for 32 sequences, two for 1024.
PTX i64 find_sequence(const i64* tiles_before, i64 batch, u32 units, u32 block) {
  i64 lo = 0, hi = batch;
  const i64 lane = threadIdx.x % 32;
  while (lo < hi) {
    const i64 step = (hi - lo + 31) / 32, at = lo + step * (lane + 1);
    u32 votes = ptx::ballot(at <= hi && tiles_before[at] * units <= block);
    i64 passed = 0;  // the votes are those of the first lanes
    for (u32 width = 16; width > 0; width /= 2)
      if ((votes & ((1u << width) - 1)) == (1u << width) - 1) passed += width, votes >>= width;
    passed += votes & 1;
    lo += step * passed;
    const i64 last = lo + step - 1;
    if (last < hi) hi = last;
  }
  return lo;
}

// `block`: one for each (query tile, unit) of each sequence; within a sequence the tiles of one unit stand together, so
// that they find its keys in L2. With masks, the last tiles come first: of a causal mask they are the longest.
template <class S>
PTX Item find_item(const ForwardParams& f, u32 block, u32 split) {
  constexpr u32 queries = S::q_tile / S::heads;
  const Sequences& s = f.sequences;
  const u32 units = (u32)f.heads_q / S::heads;
  Item item{};
  u32 tiles;
  i64 before;
  if constexpr (S::packed) {
    if (block >= f.tiles_before[s.batch] * units) return item;
    item.sequence = find_sequence(f.tiles_before, s.batch, units, block);
    before = f.tiles_before[item.sequence];
    tiles = (u32)(f.tiles_before[item.sequence + 1] - before);
  } else {
    tiles = ((u32)s.tokens_q + queries - 1) / queries;
    item.sequence = block / (tiles * units);
    before = item.sequence * tiles;
  }
  const u32 local = block - (u32)before * units;
  item.unit = local / tiles, item.tile = local % tiles;
  if (S::keys != Keys::all) item.tile = tiles - 1 - item.tile;
  item.split = split;
  item.tile_of_all = before + item.tile;
  item.first_query = (i32)(item.tile * queries);
  item.head = (i32)item.unit * S::heads;
  item.head_kv = item.head / (f.heads_q / f.heads_kv);

  const Tokens q = tokens_of(s, s.cu_q, item.sequence, s.tokens_q);
  Tokens k = tokens_of(s, s.cu_k, item.sequence, s.tokens_k);
  if constexpr (S::lengths) k.count = (i32)clamped(s, s.lengths, item.sequence, 0, k.count, error_lengths);
  item.q_begin = q.begin, item.k_begin = k.begin, item.n_q = q.count, item.n_k = k.count;
  if (s.q_offset.bytes) item.offset = clamp(number(s.q_offset, item.sequence), -farthest_offset, farthest_offset);
  else item.offset = s.has_offset ? s.q_offset_all : (i64)item.n_k - item.n_q;
  item.any = item.first_query < item.n_q;
  return item;
}

// Where the partial results of a row of the tile are.
template <class S>
PTX i64 partial_row(const ForwardParams& f, const Item& item, i32 split, i32 row) {
  const i64 units = f.heads_q / S::heads;
  return ((item.tile_of_all * units + item.unit) * f.splits + split) * S::q_tile + row;
}

}  // namespace tessera_kernels
