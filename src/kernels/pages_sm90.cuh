// Keys and values in pages on their way into the tiles of the sm_90 kernel. A tile is made of boxes of S::page_box
// rows, each within one page: as many as divide both the tile and the page, a multiple of 8, which is what the swizzle
// repeats after. A lane for each box looks its page up before it waits for the tile's place, so that the number has
// come when the place is free. Must not know: products, masks, softmax.
#pragma once
#include "loader.cuh"
#include "params_sm90.cuh"
#include "ptx/roles.cuh"
#include "shared_sm90.cuh"

namespace tessera_kernels {

// The lane, asked for where it is needed: those who load have few registers.
PTX i32 lane_here() { return (i32)(ptx::thread_here() % 32); }

// Where a lane's box begins: a page, and a row in it.
struct PageBox {
  i32 page, row;
};

// By a whole warp. Boxes beyond the keys lie outside of the tensor: they become zeros, and nothing is read.
template <class S>
PTX PageBox find_box(const ForwardParams& f, const Item& item, i32 tile) {
  const i32 first = lane_here() * S::page_box, key = tile * S::k_tile + first;
  if (first >= S::k_tile || key >= item.n_k) return {0, (i32)item.page_size.by};
  const u32 number = item.page_size.divide((u32)key);
  const i32 page = f.block_table[item.sequence * f.table_stride + number];
  const bool there = page >= 0 && page < f.pages;
  if (!there && f.sequences.error) ptx::atomic_or(f.sequences.error, error_block_table);
  return {there ? page : 0, key - (i32)(number * item.page_size.by)};
}

// By a whole warp, whose first lane has told the barrier how many bytes will come. `by`: 0 where all pages are one.
template <class S, int Panels>
PTX void load_box(typename S::Element (*to)[S::k_tile][panel_columns], const ptx::TensorMap& map, MBarrier& full,
                  const PageBox& box, i32 head, i32 by) {
  static_assert(S::page_box % 8 == 0 && S::k_tile % S::page_box == 0 && S::k_tile / S::page_box <= 32);
  __syncwarp();
  const i32 box_of_tile = lane_here();
  if (box_of_tile < S::k_tile / S::page_box) {
#pragma unroll
    for (int panel = 0; panel < Panels; ++panel)
      ptx::tensor_load(to[panel][box_of_tile * S::page_box], map, full, panel * panel_columns, box.row, head,
                       box.page * by);
  }
}

// By a whole warp: the keys of an item.
template <class S>
PTX void load_pages(const typename S::Params& p, SharedSm90<S>& s, const Item& item, Ring<S::stages>& ring) {
  Control<S>& c = s.c;
  TilesDown<S>& walk = c.walks[0];
  if (lane() == 0) walk.start(p.f, item);
  i32 entry = 0, ahead = 0;
#pragma unroll 1
  do {
    if (lane() == 0) entry = walk.next(p.f, item);
    entry = ptx::uniform(entry);
    const PageBox box = find_box<S>(p.f, item, tile_of(entry));
    ptx::mbarrier_wait(c.k_empty[ring.at], ring.parity ^ 1);
    if (lane() == 0) {
      ahead = walk.ahead;
      c.entries[ring.at] = {entry, ahead};
      ptx::mbarrier_arrive_expect(c.k_full[ring.at], sizeof s.k[0]);
    }
    load_box<S, SharedSm90<S>::panels>(s.k[ring.at], p.k_map, c.k_full[ring.at], box, item.head_kv * p.deal.k_head,
                                       p.deal.k_batch);
    ring.advance();
    ahead = ptx::uniform(ahead);
  } while (ahead != no_tile);
}

}  // namespace tessera_kernels
