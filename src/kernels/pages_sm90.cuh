// Keys and values in pages on their way into the tiles of the sm_90 kernel. Where 8 divides the size of a page, a tile
// is made of boxes of S::page_box rows, each within one page: as many as divide both the tile and the page, a multiple
// of 8, which is what the swizzle repeats after. A lane for each box looks its page up before it waits for the tile's
// place, so that the number has come when the place is free. Pages of other sizes are copied row by row, 16 bytes a
// lane, to where a tensor copy would put them. Must not know: products, masks, softmax.
#pragma once
#include "loader.cuh"
#include "params_sm90.cuh"
#include "ptx/roles.cuh"
#include "shared_sm90.cuh"

namespace tessera_kernels {

// The lane, asked for where it is needed: those who load have few registers.
PTX i32 lane_here() { return (i32)(ptx::thread_here() % 32); }

// Where a lane's box begins, or its row: a page, and a row in it.
struct PageBox {
  i32 page, row;
};
// Of a key that is there.
PTX PageBox find_key(const ForwardParams& f, const Item& item, i32 key) {
  const u32 number = item.page_size.divide((u32)key);
  const i32 page = f.block_table[item.sequence * f.table_stride + number];
  const bool there = page >= 0 && page < f.pages;
  if (!there && f.sequences.error) ptx::atomic_or(f.sequences.error, error_block_table);
  return {there ? page : 0, key - (i32)(number * item.page_size.by)};
}

// By a whole warp. Boxes beyond the keys lie outside of the tensor: they become zeros, and nothing is read.
template <class S>
PTX PageBox find_box(const ForwardParams& f, const Item& item, i32 tile) {
  const i32 first = lane_here() * S::page_box, key = tile * S::k_tile + first;
  if (first >= S::k_tile || key >= item.n_k) return {0, (i32)item.page_size.by};
  return find_key(f, item, key);
}

template <class S>
constexpr bool copies_rows = S::paged&& S::page_box < 8;

// By a whole warp: the rows of a tile that are there, from `from`, the head's first row of page 0; the others become
// zeros. All of it has landed when this returns, for products too, once the lanes have met.
template <class S, int Dim>
PTX void copy_rows(typename S::Element (*to)[S::k_tile][panel_columns], const ForwardParams& f, const Item& item,
                   i32 tile, const void* from, const Rows& rows) {
  using E = typename S::Element;
  constexpr int pieces = panels_of(Dim) * 8;  // of 16 bytes
#pragma unroll 1
  for (int group = 0; group < S::k_tile; group += 32) {
    const i32 key = tile * S::k_tile + group + lane_here();
    const PageBox own = key < item.n_k ? find_key(f, item, key) : PageBox{-1, 0};
#pragma unroll 1
    for (int i = lane_here(); i < 32 * pieces; i += 32) {
      const int r = i / pieces, piece = i % pieces;
      const i32 page = ptx::shfl_idx(own.page, (u32)r), row = ptx::shfl_idx(own.row, (u32)r);
      if (S::k_tile % 32 != 0 && group + r >= S::k_tile) continue;
      const int left = page < 0 ? 0 : Dim - piece * 8;
      const E* const at =
          static_cast<const E*>(from) + (left > 0 ? page * rows.batch + row * rows.token + piece * 8 : 0);
      ptx::cp_async16(&to[piece / 8][group + r][swizzled(group + r, piece % 8)], at,
                      left < 0   ? 0
                      : left < 8 ? (u32)left * 2
                                 : 16);
    }
  }
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  ptx::fence_async();
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
    [[maybe_unused]] PageBox box{};
    if constexpr (!copies_rows<S>) box = find_box<S>(p.f, item, tile_of(entry));
    ptx::mbarrier_wait(c.k_empty[ring.at], ring.parity ^ 1);
    if constexpr (copies_rows<S>) {
      copy_rows<S, S::dim>(s.k[ring.at], p.f, item, tile_of(entry), item.k, p.f.k);
      __syncwarp();
    }
    if (lane() == 0) {
      ahead = walk.ahead;
      c.entries[ring.at] = {entry, ahead};
      if constexpr (copies_rows<S>) ptx::mbarrier_arrive(c.k_full[ring.at]);
      else ptx::mbarrier_arrive_expect(c.k_full[ring.at], sizeof s.k[0]);
    }
    if constexpr (!copies_rows<S>)
      load_box<S, SharedSm90<S>::panels>(s.k[ring.at], p.k_map, c.k_full[ring.at], box, item.head_kv * p.deal.k_head,
                                         p.deal.k_batch);
    ring.advance();
    ahead = ptx::uniform(ahead);
  } while (ahead != no_tile);
}

}  // namespace tessera_kernels
