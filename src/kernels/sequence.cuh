// Which sequence, heads, queries and part of the keys a block works on. What of the metadata on the device is out of
// range was clamped (metadata.cuh), and an error bit is set.
// Must not know: tiles in shared memory, masks, softmax.
#pragma once
#include "layout.cuh"
#include "metadata.cuh"
#include "params.cuh"
#include "ptx/memory.cuh"
#include "ptx/warp.cuh"

namespace tessera_kernels {

// Division of an index below 2^31 by a number that is the same for the whole launch: a product with its inverse.
struct Divider {
  u32 by, inverse, shift;
  static DEVICE Divider make(u32 by) {
    u32 shift = 0;
    while ((1u << shift) < by && shift < 31) ++shift;  // 2^shift >= by
    return {by, (u32)((((u64)1 << (31 + shift)) + by - 1) / by), shift};
  }
  DEVICE u32 divide(u32 x) const { return (u32)(((u64)x * inverse) >> (31 + shift)); }
};

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
  i32 tiles_begin, tiles_end;  // key tiles of this split, where one band does: of the band in it
  i32 whole_begin, whole_end;  // of them, those that need no mask: of all keys and of one band
  Divider page_size;
  float exponent;  // what leads from scores to exponents of 2
  bool any;        // false: the launch has more blocks than there is work
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

// The sequence of block `block`. By a whole warp.
template <class S>
PTX i64 sequence_of_block(const ForwardParams& f, u32 block) {
  const u32 units = (u32)f.heads_q / S::heads;
  if constexpr (S::packed) {
    if (block >= f.tiles_before[f.sequences.batch] * units) return -1;
    return find_sequence(f.tiles_before, f.sequences.batch, units, block);
  }
  constexpr u32 queries = S::q_tile / S::heads;
  return block / (((u32)f.sequences.tokens_q + queries - 1) / queries * units);
}

// `block`: one for each (query tile, unit) of each sequence; within a sequence the tiles of one unit stand together, so
// that they find its keys in L2. With masks, the last tiles come first: of a causal mask they are the longest.
// By any thread; `item` may be in shared memory.
template <class S>
PTX void fill_item(const ForwardParams& f, u32 block, u32 split, i64 sequence, Item& item) {
  constexpr u32 queries = S::q_tile / S::heads;
  item.any = false;
  if (sequence < 0) return;
  const Sequences& s = f.sequences;
  const u32 units = (u32)f.heads_q / S::heads;
  {
    u32 tiles;
    i64 before;
    if constexpr (S::packed) {
      before = f.tiles_before[sequence];
      tiles = (u32)(f.tiles_before[sequence + 1] - before);
    } else {
      tiles = ((u32)s.tokens_q + queries - 1) / queries;
      before = sequence * tiles;
    }
    const u32 local = block - (u32)before * units, unit = local / tiles;
    u32 tile = local % tiles;
    if (S::keys != Keys::all) tile = tiles - 1 - tile;
    item.sequence = sequence, item.unit = unit, item.tile = tile, item.split = split;
    item.tile_of_all = before + tile;
    item.first_query = (i32)(tile * queries);
    item.head = (i32)unit * S::heads;
    item.head_kv = (i32)unit * S::heads / (f.heads_q / f.heads_kv);
  }
  const Sequence at = sequence_of(s, sequence);
  if (at.errors != 0 && threadIdx.x % 32 == 0 && s.error) ptx::atomic_or(s.error, at.errors);
  item.q_begin = at.q_begin, item.k_begin = at.k_begin;
  item.n_q = (i32)at.queries, item.n_k = (i32)at.keys, item.offset = at.q_offset;
  item.any = item.first_query < item.n_q;
}

template <class S>
PTX Item find_item(const ForwardParams& f, u32 block, u32 split) {
  Item item{};
  fill_item<S>(f, block, split, sequence_of_block<S>(f, block), item);
  return item;
}

// Where the partial results of a row of the tile are.
template <class S>
PTX i64 partial_row(const ForwardParams& f, const Item& item, i32 split, i32 row) {
  const i64 units = f.heads_q / S::heads;
  return ((item.tile_of_all * units + item.unit) * f.splits + split) * S::q_tile + row;
}

}  // namespace tessera_kernels
