// Which work items a block of the sm_90 kernel has, and in which order: by a list that the plan has dealt, by an order
// of the query tiles that the call has made, or going round. Items are counted as blocks of the Ampere-class kernel.
// Must not know: who waits for whom, products, masks.
#pragma once
#include "loader.cuh"
#include "params_sm90.cuh"

namespace tessera_kernels {

// The block's items: [first, end) by steps, of the list where there is one.
struct Share {
  const unsigned* list;
  i64 first, end, step;
};
template <class S>
PTX Share share_of(const typename S::Params& p) {
  if (p.deal.list) return {p.deal.list, p.deal.begin[blockIdx.x], p.deal.begin[blockIdx.x + 1], 1};
  const i64 splits = S::split ? p.f.splits : 1;
  return {nullptr, blockIdx.x, p.f.tiles * (p.f.heads_q / S::heads) * splits, gridDim.x};
}
// The block of the Ampere-class kernel that stands at a place of the order.
template <class S>
PTX u32 block_in_order(const typename S::Params& p, u32 place) {
  const u32 units = (u32)p.f.heads_q / S::heads, tiles = (u32)p.f.tiles, at_once = p.deal.units;
  const u32 round = place / (tiles * at_once), in_round = place % (tiles * at_once);
  const u32 unit = round * at_once + in_round % at_once;
  const i64 tile = p.deal.order[in_round / at_once];
  i64 before, after;
  if constexpr (S::packed) {
    const i64 sequence = find_sequence(p.f.tiles_before, p.f.sequences.batch, 1, (u32)tile);
    before = p.f.tiles_before[sequence], after = p.f.tiles_before[sequence + 1];
  } else {
    constexpr i64 queries = S::q_tile / S::heads;
    const i64 each = (p.f.sequences.tokens_q + queries - 1) / queries;
    before = tile / each * each, after = before + each;
  }
  return (u32)(before * units + unit * (after - before) + (tile - before));
}
// The place of a block's work: it goes round, where there is an order to and fro, so that nobody has always the
// longest.
template <class S>
PTX i64 place_of(const typename S::Params& p, const Share& share, i32 ordinal) {
  if constexpr (S::packed || S::lengths)
    if (p.deal.order && ordinal % 2 == 1) return ((i64)ordinal + 1) * share.step - 1 - share.first;
  return share.first + ordinal * share.step;
}
// By a whole warp, to shared memory that one lane writes, or to a thread's own.
template <class S>
PTX void find_work(const typename S::Params& p, const Share& share, i64 at, bool mine, Item& item) {
  const u32 number = share.list ? share.list[at] : (u32)at;
  u32 block = number, split = 0;
  if constexpr (S::split) block = number / (u32)p.f.splits, split = number % (u32)p.f.splits;
  if constexpr (S::packed || S::lengths)
    if (p.deal.order) block = block_in_order<S>(p, block);
  const i64 sequence = sequence_of_block<S>(p.f, block);
  if (!mine) return;
  fill_item<S>(p.f, block, split, sequence, item);
  if (!item.any) return;
  set_tiles<S>(p.f, item);
  if constexpr (S::paged) KeySource<S>::set(p.f, item);
  const float scale = p.f.scale;
  item.exponent = S::scored || scale == 0 ? log2_e : ptx::mul(scale < 0 ? -scale : scale, log2_e);
}

}  // namespace tessera_kernels
