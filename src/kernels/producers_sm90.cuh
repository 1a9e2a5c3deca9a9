// The warps of the sm_90 kernel that bring work to the consumers: one plans, one loads keys, one values, one queries,
// and stores O. They run ahead of the consumers as far as there are places, across work items.
// Must not know: products, masks, softmax.
#pragma once
#include "pages_sm90.cuh"
#include "params_sm90.cuh"
#include "ptx/memory.cuh"
#include "ptx/roles.cuh"
#include "results_sm90.cuh"
#include "work_sm90.cuh"

namespace tessera_kernels {

// ------------------------------------------------------------------------------------------------ work items
// Where O is not finite, an item is done again. In the second pass what is not finite among the values counts as zero:
// it may belong to a key that is masked for the row. Rows that are not finite even then are done a third time, with the
// running maximum as their reference: their sums may have been too large for fp32, which those of probabilities up to 1
// would not be. Only such rows take the new result; to all others nothing has happened.
// The items in which something was not finite lie in [first, last]; first > last: there are none.
struct Redo {
  i32 first, last;
};
template <class S>
PTX Redo items_to_redo(const Control<S>& c, int pass) {
  Redo redo{0x7fffffff, -1};
#pragma unroll 1
  for (int i = 0; i < S::warps; ++i) {
    if (c.redo_first[pass][i] < redo.first) redo.first = c.redo_first[pass][i];
    if (c.redo_last[pass][i] > redo.last) redo.last = c.redo_last[pass][i];
  }
  return redo;
}
// What every role does: once through all items of the block, then through those that have to be done again; work() says
// which pass it was. After each all threads of the block meet. Whether there was a second one.
template <class S>
PTX constexpr int last_pass() {
  return sizeof(typename S::Output) == 4 ? 1 : 2;  // for outputs in fp32 the reference is the running maximum anyway
}
template <class S, class Work>
PTX bool in_passes(const Control<S>& c, const Work& work) {
#pragma unroll 1
  for (;;) {
    const int pass = work();
    __syncwarp();
    __syncthreads();
    if (pass == last_pass<S>()) return true;
    const Redo redo = items_to_redo<S>(c, pass);
    if (redo.first > redo.last) return pass > 0;
  }
}

// Hands out the items of a pass, then the end.
template <class S>
PTX void plan_items(const typename S::Params& p, Control<S>& c, Ring<item_places>& ring, int pass) {
  const Redo range = pass > 0 ? items_to_redo<S>(c, pass - 1) : Redo{0, 0x7fffffff};
  const Share share = share_of<S>(p);
#pragma unroll 1
  for (i32 ordinal = range.first;; ++ordinal) {
    ptx::mbarrier_wait(c.item_empty[ring.at], ring.parity ^ 1);
    const i64 at = place_of<S>(p, share, ordinal);
    const bool ends = ordinal > range.last || at >= share.end;
    ItemPlace& place = c.items[ring.at];
    if (!ends) {
      find_work<S>(p, share, at, lane() == 0, place.item);
      if (!ptx::any(lane() == 0 && place.item.any)) continue;
    }
    if (lane() == 0) {
      if (ends) place.item.any = false;
      place.ordinal = ordinal, place.pass = pass;
      ptx::mbarrier_arrive(c.item_full[ring.at]);
    }
    __syncwarp();
    ring.advance();
    if (ends) return;
  }
}

// What every role does with each item; `work` takes it. Ends at the end of the list, and says which pass it was.
template <class S, class Work>
PTX int for_each_item(Control<S>& c, Ring<item_places>& ring, const Work& work) {
#pragma unroll 1
  for (;;) {
    ptx::mbarrier_wait(c.item_full[ring.at], ring.parity);
    const bool any = c.items[ring.at].item.any;
    int pass = 0;
    if (any) work(c.items[ring.at]);
    else pass = c.items[ring.at].pass;
    __syncwarp();
    if (lane() == 0) ptx::mbarrier_arrive(c.item_empty[ring.at]);
    ring.advance();
    if (!any) return pass;
  }
}

// ------------------------------------------------------------------------------------------------ keys, values
template <class E, int Panels, int Rows>
PTX void load_panels(E (*to)[Rows][panel_columns], const ptx::TensorMap& map, MBarrier& full, i32 token, i32 head,
                     i32 batch) {
#pragma unroll
  for (int panel = 0; panel < Panels; ++panel)
    ptx::tensor_load(to[panel], map, full, panel * panel_columns, token, head, batch);
}

// Which of the sequences' keys: packed, they are all one.
template <class S>
PTX i32 key_batch(const Item& item) {
  return S::packed && !S::lengths ? 0 : (i32)item.sequence;
}

// By one lane; of pages, by a whole warp.
template <class S>
PTX void load_keys(const typename S::Params& p, SharedSm90<S>& s, const ItemPlace& place, Ring<S::stages>& ring) {
  using Sh = SharedSm90<S>;
  Control<S>& c = s.c;
  const Item& item = place.item;
  TilesDown<S>& walk = c.walks[0];
  if constexpr (S::paged) return load_pages<S>(p, s, item, ring);
  walk.start(p.f, item);
  i32 entry;
#pragma unroll 1
  do {
    entry = walk.next(p.f, item);
    ptx::mbarrier_wait(c.k_empty[ring.at], ring.parity ^ 1);
    c.entries[ring.at] = {entry, walk.ahead};
    ptx::mbarrier_arrive_expect(c.k_full[ring.at], sizeof s.k[0]);
    load_panels<typename S::Element, Sh::panels, S::k_tile>(
        s.k[ring.at], p.k_map, c.k_full[ring.at], (i32)item.k_begin + tile_of(entry) * S::k_tile,
        item.head_kv * p.deal.k_head, key_batch<S>(item) * p.deal.k_batch);
    ring.advance();
  } while (walk.ahead != no_tile);
}

// Zeros for the rows from `there` on, which belong to someone else, and for what is not finite before them.
template <class S>
PTX void mend_values(typename S::Element (*tile)[S::k_tile][panel_columns], i32 there, bool selecting) {
  using E = typename S::Element;
  if (there < 0) there = 0;
#pragma unroll 1
  for (int panel = 0; panel < panels_of(S::dim_v); ++panel) {
    auto* const row = tile[panel];
#pragma unroll 1
    for (int i = there * 8 + lane(); i < S::k_tile * 8; i += 32)
      *reinterpret_cast<uint4*>(&row[i / 8][i % 8 * 8]) = uint4{0, 0, 0, 0};
    if (!selecting) continue;
#pragma unroll 1
    for (int i = lane(); i < there * panel_columns; i += 32) {
      E& x = row[i / panel_columns][i % panel_columns];
      if (!is_finite(x)) x = E{0};
    }
  }
  ptx::fence_async();
  __syncwarp();
}

// By a whole warp. A tile that holds rows of others, which may be anything, is mended before it is handed on: zeros in
// P do not keep NaN away.
template <class S>
PTX void load_values(const typename S::Params& p, SharedSm90<S>& s, const ItemPlace& place, Ring<S::v_stages>& ring,
                     u32& landed) {
  using Sh = SharedSm90<S>;
  Control<S>& c = s.c;
  const Item& item = place.item;
  TilesDown<S>& walk = c.walks[1];
  if (lane() == 0) walk.start(p.f, item);
  constexpr i32 last_bit = 1 << 29;
  i32 entry = 0;
#pragma unroll 1
  do {
    if (lane() == 0) {
      entry = tile_of(walk.next(p.f, item));
      if (walk.ahead == no_tile) entry |= last_bit;
    }
    entry = ptx::uniform(entry);
    [[maybe_unused]] PageBox box{};
    if constexpr (S::paged && !copies_rows<S>) box = find_box<S>(p.f, item, entry & ~last_bit);
    ptx::mbarrier_wait(c.v_empty[ring.at], ring.parity ^ 1);
    const i32 tile = entry & ~last_bit, there = item.n_k - tile * S::k_tile;
    if constexpr (copies_rows<S>) {
      copy_rows<S, S::dim_v>(s.v[ring.at], p.f, item, tile, item.v, p.f.v);
      __syncwarp();
      if (place.pass > 0) mend_values<S>(s.v[ring.at], there < S::k_tile ? there : S::k_tile, true);
      if (lane() == 0) ptx::mbarrier_arrive(c.v_full[ring.at]);
      ring.advance();
      continue;
    }
    const bool mend = place.pass > 0 || ((S::packed || S::lengths || item.n_k == 0) && there < S::k_tile);
    MBarrier& full = mend ? c.v_landed[ring.at] : c.v_full[ring.at];
    if (lane() == 0) {
      ptx::mbarrier_arrive_expect(full, sizeof s.v[0]);
      if constexpr (!S::paged)
        load_panels<typename S::Element, Sh::panels_v, S::k_tile>(
            s.v[ring.at], p.v_map, full, (i32)item.k_begin + tile * S::k_tile, item.head_kv * p.deal.v_head,
            key_batch<S>(item) * p.deal.v_batch);
    }
    if constexpr (S::paged && !copies_rows<S>)
      load_box<S, Sh::panels_v>(s.v[ring.at], p.v_map, full, box, item.head_kv * p.deal.v_head, p.deal.v_batch);
    if (mend) {
      ptx::mbarrier_wait(full, landed >> ring.at & 1);
      landed ^= 1u << ring.at;
      mend_values<S>(s.v[ring.at], there < S::k_tile ? there : S::k_tile, place.pass > 0);
      if (lane() == 0) ptx::mbarrier_arrive(c.v_full[ring.at]);
    }
    __syncwarp();
    ring.advance();
  } while (!(entry & last_bit));
}

// ------------------------------------------------------------------------------------------------ queries, O
// O of a warpgroup that has fewer rows than its tile, and whose neighbours in memory belong to another sequence; and in
// the third pass, where only rows that are not finite are replaced.
template <class S>
PTX void store_rows(const ForwardParams& f, const Item& item, int w, i32 rows, int pass,
                    const typename S::Element (*o)[warpgroup_rows][panel_columns]) {
  constexpr int pieces = (S::dim_v + 7) / 8;
  u64 wanted = ~0ull;
  if (pass == 2) {
    wanted = 0;
#pragma unroll 1
    for (int r = 0; r < rows; ++r) {
      bool finite = true;
#pragma unroll 1
      for (int i = lane(); i < S::dim_v; i += 32)
        finite = finite && is_finite(output_row<S>(f, item, w * warpgroup_rows + r)[i]);
      if (!ptx::all(finite)) wanted |= 1ull << r;
    }
    __syncwarp();
  }
#pragma unroll 1
  for (int i = lane(); i < rows * pieces; i += 32) {
    const int r = i / pieces, piece = i % pieces;
    if (!(wanted >> r & 1)) continue;
    const auto* const from = &o[piece / 8][r][swizzled(r, piece % 8)];
    auto* const to = output_row<S>(f, item, w * warpgroup_rows + r) + piece * 8;
    if (S::dim_v % 8 == 0 || (piece + 1) * 8 <= S::dim_v) ptx::store16(to, *reinterpret_cast<const uint4*>(from));
    else
      for (int e = 0; e < S::dim_v % 8; ++e) to[e] = {from[e].bits};
  }
}

// By a whole warp: O of an item leaves from its place.
template <class S>
PTX void take_outputs(const typename S::Params& p, SharedSm90<S>& s, const ItemPlace& at, int place, int w) {
  using Sh = SharedSm90<S>;
  if constexpr (leaves_through_shared<S>()) {
    const Item& done = at.item;
    const i32 rows = rows_of_warpgroup<S>(done, w);
    if ((S::packed && rows < warpgroup_rows) || at.pass == 2) {
      store_rows<S>(p.f, done, w, rows, at.pass, s.q[place][w]);
      ptx::fence_async();
    } else if (rows > 0 && lane() == 0) {
      const i32 token = (i32)done.q_begin + done.first_query + w * queries_of_warpgroup<S>;
#pragma unroll
      for (int panel = 0; panel < Sh::panels_v; ++panel)
        ptx::tensor_store(p.o_map, s.q[place][w][panel], panel * panel_columns, S::heads > 1 ? done.head : token,
                          S::heads > 1 ? token : done.head, S::packed ? 0 : (i32)done.sequence);
      ptx::bulk_commit();
      ptx::bulk_wait_read<0>();
    }
    __syncwarp();
  }
}

// By a whole warp: loads the queries of each item, once O of the item that had the place before has left.
template <class S>
PTX int exchange_queries(const typename S::Params& p, SharedSm90<S>& s, Ring<item_places>& items,
                         Ring<S::q_buffers>& ring) {
  using Sh = SharedSm90<S>;
  using E = typename S::Element;
  Control<S>& c = s.c;
  Ring<item_places> old = items;  // the items whose O is still to leave: `held` of them
  Ring<S::q_buffers> old_place = ring;
  int held = 0;
  int pass = 0;
#pragma unroll 1
  for (bool any = true; any || held > 0;) {
    const ItemPlace& coming = c.items[items.at];
    if (any) {
      ptx::mbarrier_wait(c.item_full[items.at], items.parity);
      any = coming.item.any;
      if (!any) {
        pass = coming.pass;
        __syncwarp();
        if (lane() == 0) ptx::mbarrier_arrive(c.item_empty[items.at]);
        items.advance();
      }
    }
    const bool leaves = held == S::q_buffers || (!any && held > 0);
#pragma unroll 1
    for (int w = 0; w < Sh::consumers; ++w) {  // the first to finish gets its next queries first
      if (leaves) {
        ptx::mbarrier_wait(c.o_ready[old_place.at][w], old_place.parity);
        take_outputs<S>(p, s, c.items[old.at], old_place.at, w);
      }
      if (any && lane() == 0) {
        const Item& item = coming.item;
        ptx::mbarrier_arrive_expect(c.q_full[ring.at][w], sizeof(E) * Sh::panels * warpgroup_rows * panel_columns);
        const i32 token = (i32)item.q_begin + item.first_query + w * queries_of_warpgroup<S>;
        const i32 head = item.head * p.deal.q_head;
        load_panels<E, Sh::panels, warpgroup_rows>(s.q[ring.at][w], p.q_map, c.q_full[ring.at][w],
                                                   S::heads > 1 ? head : token, S::heads > 1 ? token : head,
                                                   S::packed ? 0 : (i32)item.sequence * p.deal.q_batch);
      }
    }
    if (leaves) {
      __syncwarp();
      if (lane() == 0) ptx::mbarrier_arrive(c.item_empty[old.at]);
      old.advance(), old_place.advance(), --held;
    }
    if (any) items.advance(), ring.advance(), ++held;
  }
  if (lane() == 0) ptx::bulk_wait<0>();
  return pass;
}

// One of the four warps. Each has its own loops and its own few registers.
template <class S>
PTX void produce(const typename S::Params& p, SharedSm90<S>& s, int role) {
  Ring<item_places> items;
  if (role == 0) {
    int next = 0;
    in_passes<S>(s.c, [&] {
      plan_items<S>(p, s.c, items, next);
      return next++;
    });
  } else if (role == 1) {
    Ring<S::stages> ring;
    ptx::tensor_prefetch(p.k_map);
    in_passes<S>(s.c, [&] {
      return for_each_item<S>(s.c, items, [&](const ItemPlace& at) {
        if (S::paged || lane() == 0) load_keys<S>(p, s, at, ring);
      });
    });
  } else if (role == 2) {
    Ring<S::v_stages> ring;
    u32 landed = 0;
    ptx::tensor_prefetch(p.v_map);
    in_passes<S>(s.c, [&] {
      return for_each_item<S>(s.c, items, [&](const ItemPlace& at) { load_values<S>(p, s, at, ring, landed); });
    });
  } else {
    Ring<S::q_buffers> ring;
    ptx::tensor_prefetch(p.q_map);
    if constexpr (leaves_through_shared<S>()) ptx::tensor_prefetch(p.o_map);
    in_passes<S>(s.c, [&] { return exchange_queries<S>(p, s, items, ring); });
  }
}

}  // namespace tessera_kernels
