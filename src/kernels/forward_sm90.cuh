// Attention forward for Hopper: tensor copies into swizzled tiles, products of whole warpgroups. One block lives on
// each multiprocessor until all work is done; warps of its last warpgroup plan and load, the others consume, 64 rows
// each. Its story, floor and figures: docs/kernels/forward_sm90.md. Must not know: host types.
#pragma once
#include "mask.cuh"
#include "producers_sm90.cuh"
#include "ptx/barriers.cuh"
#include "ptx/roles.cuh"
#include "ptx/wgmma.cuh"
#include "results_sm90.cuh"

namespace tessera_kernels {

// A warpgroup with 64 rows of the tile.
template <class S>
struct Consumer {
  using Sh = SharedSm90<S>;
  using E = typename S::Element;
  static constexpr int scores = S::k_tile / 2, outputs = padded_dim(S::dim_v) / 2;
  static constexpr bool overlaps = S::q_buffers > 1;  // the next item's first product runs while O leaves

  const typename S::Params& p;
  Sh& s;
  const int w;  // which warpgroup
  u64 q_base, k_base, v_base;
  Ring<S::stages> k_ring;
  Ring<S::v_stages> v_ring;
  Ring<S::q_buffers> q_ring;
  Ring<item_places> items;
  float x[scores], o[outputs];    // scores, then probabilities; O
  u32 probabilities[scores / 2];  // as the product takes them
  SoftmaxSm90<S> softmax;
  i32 entry, next;           // key tiles, with their bit; no_tile: there is none
  float c;                   // leads from scores to exponents of 2
  i32 skip_from;             // tiles from here on are past all rows of the warpgroup
  i32 whole_from, whole_to;  // tiles that all of its rows see whole

  DEVICE Consumer(const typename S::Params& params, Sh& shared, int warpgroup) : p(params), s(shared), w(warpgroup) {
    q_base = ptx::wgmma_descriptor(s.q[0][w], 0);
    k_base = ptx::wgmma_descriptor(s.k, 0);
    v_base = ptx::wgmma_descriptor(s.v, sizeof s.v[0][0]);
    if (w == Sh::consumers - 1) pass_turn();  // the first turn is warpgroup 0's
  }

  // ---------------------------------------------------------------------------------------------- who waits for whom
  DEVICE void take_turn() {
    if constexpr (S::ping_pong) ptx::named_barrier_sync(turn_barrier + w, 256);
  }
  // As soon as the products are under way.
  DEVICE void pass_turn() {
    if constexpr (S::ping_pong) ptx::named_barrier_arrive(turn_barrier + (w + 1 == Sh::consumers ? 0 : w + 1), 256);
  }
  DEVICE void release(MBarrier& b) {
    if (lane() == 0) ptx::mbarrier_arrive(b);
  }
  // The tile of keys in hand is `entry` from now on, `next` the one after it.
  DEVICE void wait_keys() {
    ptx::mbarrier_wait(s.c.k_full[k_ring.at], k_ring.parity);
    entry = next;
    next = ptx::uniform(s.c.entries[k_ring.at].next);
  }
  // All lanes have read their entry: they have met since.
  DEVICE void done_keys() {
    release(s.c.k_empty[k_ring.at]);
    k_ring.advance();
  }
  DEVICE void wait_values() { ptx::mbarrier_wait(s.c.v_full[v_ring.at], v_ring.parity); }
  DEVICE void done_values() {
    release(s.c.v_empty[v_ring.at]);
    v_ring.advance();
  }
  DEVICE const ItemPlace& place() const { return s.c.items[items.at]; }
  DEVICE const Item& item() const { return place().item; }
  DEVICE bool wait_item() {
    ptx::mbarrier_wait(s.c.item_full[items.at], items.parity);
    return ptx::any(item().any);
  }
  DEVICE void done_item(Ring<item_places>& which) {
    __syncwarp();
    release(s.c.item_empty[which.at]);
    which.advance();
  }

  // ---------------------------------------------------------------------------------------------- products
  DEVICE u64 queries() const { return ptx::wgmma_advance(q_base, q_ring.at * (u32)sizeof s.q[0]); }
  DEVICE u64 keys(int place) const { return ptx::wgmma_advance(k_base, place * (u32)sizeof s.k[0]); }
  DEVICE void start_scores() { start_scores(queries(), keys(k_ring.at)); }
  DEVICE void start_scores(u64 q, u64 k) {  // x = Q K^T
#pragma unroll
    for (int step = 0; step < padded_dim(S::dim) / 16; ++step) {
      const int panel = step / 4, inside = step % 4 * 32;
      ptx::wgmma<E, ptx::Major::k>(x, ptx::wgmma_advance(q, panel * (u32)sizeof s.q[0][0][0] + inside),
                                   ptx::wgmma_advance(k, panel * (u32)sizeof s.k[0][0] + inside), step > 0);
    }
    ptx::wgmma_commit();
  }
  DEVICE void start_outputs() {  // o += P V
    const u64 v = ptx::wgmma_advance(v_base, v_ring.at * (u32)sizeof s.v[0]);
#pragma unroll
    for (int step = 0; step < S::k_tile / 16; ++step)
      ptx::wgmma<E, ptx::Major::mn>(o, probabilities + 4 * step, ptx::wgmma_advance(v, step * 16 * 2 * panel_columns),
                                    true);
    ptx::wgmma_commit();
  }

  // ---------------------------------------------------------------------------------------------- an item
  DEVICE void find_edges() {
    const Item& it = item();
    const i32 first = it.first_query + w * queries_of_warpgroup<S>, rows = rows_of_warpgroup<S>(it, w);
    skip_from = rows > 0 ? 0x7fffffff : 0;
    whole_from = whole_to = 0;
    if constexpr (S::keys == Keys::bands && S::bands == 1) {
      const i64 q_first = first + it.offset, q_last = q_first + (rows - 1) / S::heads, lo = p.f.band_lo[0],
                hi = p.f.band_hi[0];
      if (rows > 0) skip_from = ((i32)clamp(q_last + hi + 1, 0, it.n_k) + S::k_tile - 1) / S::k_tile;
      whole_from = ptx::uniform(((i32)clamp(q_last + lo, 0, it.n_k) + S::k_tile - 1) / S::k_tile);
      whole_to = ptx::uniform((i32)clamp(q_first + hi + 1, 0, it.n_k) / S::k_tile);
    }
    skip_from = ptx::uniform(skip_from);
  }
  DEVICE bool seen_whole(i32 entry) const {
    if (is_full(entry)) return true;
    if constexpr (S::keys == Keys::bands && S::bands == 1) {
      const i32 tile = tile_of(entry);
      return tile >= whole_from && tile < whole_to;
    }
    return false;
  }
  // To the item's first tile. The turn is this warpgroup's and still is.
  DEVICE void find_first_tile() {
    ptx::mbarrier_wait(s.c.k_full[k_ring.at], k_ring.parity);
    next = ptx::uniform(s.c.entries[k_ring.at].now);
    wait_keys();
  }
  DEVICE bool skips() const { return tile_of(entry) >= skip_from && next != no_tile; }
  // On to the first tile that some row sees, or the last one: each takes its turn, and no values are in use. (The
  // others may need the places of what is skipped before they can go on.)
  DEVICE void skip() {
#pragma unroll 1
    while (skips()) {
      pass_turn();
      __syncwarp();
      done_keys();
      wait_values();
      __syncwarp();  // no lane may miss the phase that the first one lets pass
      done_values();
      take_turn();
      wait_keys();
    }
  }
  DEVICE void wait_queries() { ptx::mbarrier_wait(s.c.q_full[q_ring.at][w], q_ring.parity); }

  // Of the tile whose scores stand in x, nothing being under way: to probabilities.
  DEVICE void finish_scores() {
    const Item& it = item();
    turn_scores();
    auto& table = reinterpret_cast<Scores<S>&>(x);
    const Place<S> at = Place<S>::make(it, tile_of(entry));
    if constexpr (S::scored) change_scores<S>(table, at, p);
    if (!seen_whole(entry)) mask_scores<S>(table, at, p);
    float shrink[2];
    const bool shrinks = softmax.exponentiate_carefully(x, c, shrink);
    if constexpr (S::turned) softmax.limit = -1.0f;
    convert();
    if (shrinks) {
#pragma unroll
      for (int e = 0; e < outputs; ++e) o[e] *= shrink[e >> 1 & 1];
    }
  }
  // The exponent grows with the score: where the scale is negative, scores change their sign; where it is 0, what is
  // finite becomes 0. Every tile then goes this way.
  DEVICE void turn_scores() {
    if constexpr (!S::turned) return;
    const float by = p.f.scale < 0 ? -1.0f : 0.0f;
#pragma unroll
    for (int e = 0; e < scores; ++e) x[e] = ptx::mul(x[e], by);
  }
  DEVICE void convert() {
#pragma unroll
    for (int i = 0; i < scores / 2; ++i) probabilities[i] = pack(x[2 * i], x[2 * i + 1], E{});
  }

  // One tile whose probabilities become ready while those of the one before are multiplied. False: x has the scores
  // once more, to be finished with care.
  DEVICE bool step() {
    take_turn();
    ptx::wgmma_fence();
    start_scores();
    wait_values();
    ptx::wgmma_fence();
    start_outputs();
    pass_turn();
    ptx::wgmma_wait<1>(x);
    if constexpr (S::scored)
      change_scores<S>(reinterpret_cast<Scores<S>&>(x), Place<S>::make(item(), tile_of(entry)), p);
    const bool good = softmax.exponentiate(x, c, vote_barrier + w);
    ptx::pin(x);
    ptx::wgmma_wait<0>(o);
    done_values();
    if (!good) {
      ptx::wgmma_fence();
      start_scores();
      ptx::wgmma_wait<0>(x);
      return false;
    }
    done_keys();
    convert();
    return true;
  }

  // ---------------------------------------------------------------------------------------------- all items
  DEVICE void open() {
    softmax.clear(place().pass == 2);
    c = item().exponent;
#pragma unroll
    for (int e = 0; e < outputs; ++e) o[e] = 0.0f;
  }

  // Through all items. Says which pass it was.
  DEVICE int run() {
    if (!wait_item()) return end();
    find_edges();
    wait_queries();
    take_turn();
    find_first_tile();
    skip();
    ptx::wgmma_fence();
    start_scores();
    pass_turn();
    ptx::wgmma_wait<0>(x);
    open();
#pragma unroll 1
    for (;;) {
      finish_scores();
      __syncwarp();
      done_keys();
      bool again = false;
      if constexpr (!SoftmaxSm90<S>::exact) {
#pragma unroll 1
        while (next != no_tile && seen_whole(next)) {
          wait_keys();
          again = !step();
          if (again) break;
        }
      }
      if (again) continue;
      if (next != no_tile) {  // a tile with an edge of the mask
        wait_keys();
        take_turn();
        ptx::wgmma_fence();
        start_scores();
        wait_values();
        ptx::wgmma_fence();
        start_outputs();
        pass_turn();
        ptx::wgmma_wait<0>(x);
        ptx::pin(o);
        done_values();
        continue;
      }
      if (!next_item()) return end();
    }
  }

  DEVICE int end() {
    const int pass = place().pass;
    done_item(items);
    return pass;
  }

  // The last product of an item, its results, and the scores of the next one's first tile. False: there is none.
  DEVICE bool next_item() {
    Ring<item_places> old = items;
    items.advance();
    const bool more = wait_item();
    const int buffer = q_ring.at;
    bool in_use = true;  // the values of the last tile
    take_turn();
    wait_values();
    ptx::wgmma_fence();
    start_outputs();
    if constexpr (overlaps) {
      // Without a next item there is a product all the same, of whatever stands still: one that there is or not would
      // make the assembler wait before each. The last tile's place of keys stands still.
      u64 k = keys((k_ring.at + S::stages - 1) % S::stages), q = k;
      if (more) {
        q_ring.advance();
        q = queries(), k = keys(k_ring.at);
        find_edges();
        wait_queries();
        find_first_tile();
        if (skips()) {
          ptx::wgmma_wait<0>(o);
          done_values();
          in_use = false;
          skip();
          k = keys(k_ring.at);
        }
      }
      ptx::wgmma_fence();
      start_scores(q, k);
      pass_turn();
      ptx::wgmma_wait<1>(o);
      if (in_use) done_values();
      close_item<S>(p.f, s, s.c.items[old.at], w, buffer, softmax, o);
      ptx::wgmma_wait<0>(x);
    } else {
      pass_turn();
      ptx::wgmma_wait<0>(o);
      done_values();
      close_item<S>(p.f, s, s.c.items[old.at], w, buffer, softmax, o);
      q_ring.advance();
      if (more) {
        find_edges();
        wait_queries();
        take_turn();
        find_first_tile();
        skip();
        ptx::wgmma_fence();
        start_scores();
        pass_turn();
        ptx::wgmma_wait<0>(x);
      }
    }
    done_item(old);
    if (more) {
      open();
    } else {
      if constexpr (overlaps) q_ring.advance();
    }
    return more;
  }
};

// Once all else is done: what is not finite among the values of items where O came out not finite, pair by pair.
template <class S>
PTX void add_all_not_finite(const typename S::Params& p, const Redo& redo) {
  const Share share = share_of<S>(p);
#pragma unroll 1
  for (i32 ordinal = redo.first; ordinal <= redo.last; ++ordinal) {
    const i64 at = place_of<S>(p, share, ordinal);
    if (at >= share.end) return;
    Item item{};
    find_work<S>(p, share, at, true, item);
    if (!item.any) continue;
    KeySource<S>::set(p.f, item);
    const i32 end = item.tiles_end * S::k_tile;
    add_not_finite<S>(p, item, KeySource<S>::make(p.f, item), item.tiles_begin * S::k_tile,
                      end < item.n_k ? end : item.n_k);
  }
}

template <class S>
PTX void forward_sm90(const typename S::Params& p) {
  static_assert(warpgroup_rows % S::heads == 0 && S::q_tile == 16 * S::warps && S::warps % 4 == 0);
  auto& s = ptx::shared_memory<SharedSm90<S>>();
  static_assert(sizeof(Control<S>) == control_bytes, "as layout_sm90.cuh counts it");
  const int warp = ptx::uniform((i32)threadIdx.x / 32);
  if (threadIdx.x == 0) make_barriers<S>(s);
  __syncthreads();
  if (warp < S::warps) {
    ptx::registers_raise<S::consumer_registers>();
    Consumer<S> consumer(p, s, warp / 4);
    const bool redone = in_passes<S>(s.c, [&] { return consumer.run(); });
    if (ptx::thread_here() < 128) consumer.take_turn();  // what the last one passed on
    if (redone) add_all_not_finite<S>(p, items_to_redo<S>(s.c, 0));
  } else {
    ptx::registers_lower<S::producer_registers>();
    produce<S>(p, s, warp - S::warps);
  }
}

}  // namespace tessera_kernels
