// What a block of the sm_90 kernel has in shared memory, and who waits for whom there.
//   work items:   planner -> item_full -> everyone -> item_empty -> planner
//   keys, values: loader -> full -> consumers -> empty -> loader
//   queries, O:   loader -> q_full -> one consumer -> o_ready -> the same loader, which stores O and loads the next Q
// Must not know: masks, softmax.
#pragma once
#include "layout_sm90.cuh"
#include "ptx/bulk.cuh"
#include "tile.cuh"
#include "tiles_sm90.cuh"

namespace tessera_kernels {

using ptx::MBarrier;

// A place in a ring of buffers, and the parity of its barrier.
template <int Size>
struct Ring {
  int at = 0;
  u32 parity = 0;
  DEVICE void advance() {
    if (++at == Size) at = 0, parity ^= 1;
  }
};

struct alignas(16) ItemPlace {
  Item item;    // item.any: false: the list has come to its end
  i32 ordinal;  // which one of the block's
  int pass;     // the second and third time: values that are not finite are left out (producers_sm90.cuh)
};

// Which tile of keys is in a place, with its bit, and which one comes after it: no_tile if none does.
struct alignas(8) Entry {
  i32 now, next;
};

template <class S>
struct alignas(16) Control {
  MBarrier k_full[most_stages], k_empty[most_stages], v_full[most_stages], v_empty[most_stages];
  MBarrier v_landed[most_stages];  // values that have to be mended before consumers may see them
  MBarrier q_full[2][most_consumers], o_ready[2][most_consumers];
  MBarrier item_full[item_places], item_empty[item_places];
  ItemPlace items[item_places];
  TilesDown<S> walks[2];  // of keys, of values
  Entry entries[most_stages];
  // The first and the last of the block's items in which a consumer warp found something not finite, in each pass.
  i32 redo_first[2][4 * most_consumers], redo_last[2][4 * most_consumers];
};

template <class S>
struct alignas(1024) SharedSm90 {
  using E = typename S::Element;
  static constexpr int consumers = S::warps / 4;
  static constexpr int panels = panels_of(S::dim), panels_v = panels_of(S::dim_v);
  static constexpr int q_panels = panels > panels_v ? panels : panels_v;
  E k[S::stages][panels][S::k_tile][panel_columns];
  E v[S::v_stages][panels_v][S::k_tile][panel_columns];
  E q[S::q_buffers][consumers][q_panels][warpgroup_rows][panel_columns];  // becomes O
  Control<S> c;
};

// By one thread.
template <class S>
PTX void make_barriers(SharedSm90<S>& s) {
  Control<S>& c = s.c;
  for (int i = 0; i < most_stages; ++i) {
    ptx::mbarrier_init(c.k_full[i], 1), ptx::mbarrier_init(c.k_empty[i], S::warps);
    ptx::mbarrier_init(c.v_full[i], 1), ptx::mbarrier_init(c.v_empty[i], S::warps);
    ptx::mbarrier_init(c.v_landed[i], 1);
  }
  for (int i = 0; i < S::q_buffers; ++i)
    for (int w = 0; w < S::warps / 4; ++w)
      ptx::mbarrier_init(c.q_full[i][w], 1), ptx::mbarrier_init(c.o_ready[i][w], 128);
  for (int i = 0; i < item_places; ++i)
    ptx::mbarrier_init(c.item_full[i], 1), ptx::mbarrier_init(c.item_empty[i], S::warps + 3);
  for (int i = 0; i < 2 * S::warps; ++i) c.redo_first[i & 1][i / 2] = 0x7fffffff, c.redo_last[i & 1][i / 2] = -1;
  ptx::mbarrier_init_fence();
}

// Where a piece of 8 columns of a row lies in a panel.
PTX int swizzled(int row, int piece) { return (piece ^ (row % 8)) * 8; }

// How O leaves: through the memory of Q by tensor copies (rows of 16-byte pieces), or from the registers.
template <class S>
PTX constexpr bool leaves_through_shared() {
  return !S::split && sizeof(typename S::Output) == 2 && S::o_copy == 16;
}
// Heads of a group that share a tile divide 64: each warpgroup has whole queries.
template <class S>
constexpr i32 queries_of_warpgroup = warpgroup_rows / S::heads;
// Rows of warpgroup w's part of the tile that are there.
template <class S>
PTX i32 rows_of_warpgroup(const Item& item, int w) {
  i32 queries = item.n_q - item.first_query;
  if constexpr (S::heads > 1) queries = (queries < S::q_tile / S::heads ? queries : S::q_tile / S::heads) * S::heads;
  const i32 left = queries - w * warpgroup_rows;
  return left < 0 ? 0 : left < warpgroup_rows ? left : warpgroup_rows;
}

}  // namespace tessera_kernels
