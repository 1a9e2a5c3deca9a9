// Attention forward for Ampere-class tensor cores and all later ones: cp.async, ldmatrix, mma.sync. A block holds a
// tile of queries; tiles of keys and values stream past it through `stages` places in shared memory. Its story, floor
// and figures: docs/kernels/forward_sm80.md. Must not know: host types.
#pragma once
#include "epilogue.cuh"
#include "key_tiles.cuh"
#include "mask.cuh"
#include "ptx/barriers.cuh"
#include "selecting.cuh"
#include "softmax.cuh"

namespace tessera_kernels {

// What a block is doing. Functions below are its steps.
template <class S>
struct Forward {
  const typename S::Params& p;
  const Item& item;
  Shared<S>& s;
  KeySource<S> keys;
  QueryFragments<S> queries;
  Softmax<S> softmax;
  Outputs<S> o;

  // Whether this is another pass, since there was something not finite.
  DEVICE bool selecting() const { return (softmax.careful & Softmax<S>::selecting) != 0; }
  DEVICE void clear() {
    softmax.clear();  // read behind the next barrier
#pragma unroll
    for (int m = 0; m < Shape<S>::row_groups; ++m) {
#pragma unroll
      for (int n = 0; n < Shape<S>::dim_groups; ++n) o[m][n][0] = o[m][n][1] = o[m][n][2] = o[m][n][3] = 0.0f;
    }
  }

  // From products of queries and keys to masked scores.
  DEVICE void score(Scores<S>& x, i32 entry) {
    const Place<S> at = Place<S>::make(item, tile_of(entry));
    if constexpr (S::scored) change_scores<S>(x, at, p);
    if (!is_full(entry)) mask_scores<S>(x, at, p);
    softmax.take_up(x, o, item.exponent);
  }
  DEVICE void add_values(const Scores<S>& x, u32 stage) {
    softmax.add_values(o, x, s.v[stage], item.exponent, [&] {
      if constexpr (kept_apart) select_values(stage);
    });
  }

  // While selecting, values that are not finite are left out. They have landed. Where the reference is running this
  // stands between exponentials and products, and its branch keeps the compiler from mixing them, for which there are
  // no registers then.
  static constexpr bool kept_apart = !is_reference_fixed<S>;
  DEVICE void select_values(u32 stage) {
    if (!selecting()) return;
    clear_not_finite<S>(s, stage);
    __syncthreads();
  }

  // After a pass: whether rows came out infinite or NaN that another pass may mend; all threads agree. Where the sum of
  // a fixed reference is so, the row runs from then on, and so it does where selecting has not helped; else it is V
  // that is not finite, or not for this row to see, and the block selects.
  DEVICE bool goes_again() {
    const int rows = rows_of<S>(item);
    u32 overflown = is_reference_fixed<S> ? rows_not_finite<S>(softmax.rounded_sum, rows) : 0;
    u32 lost = rows_not_finite<S>(o, rows) | overflown;
    softmax.join_votes(lost, overflown);
    const u32 runs = (selecting() ? lost : overflown) & ~softmax.careful;
    const bool select = !selecting() && (lost & ~runs) != 0;
    softmax.careful |= runs;
    if (!ptx::syncthreads_or(runs != 0 || select)) return false;
    if (ptx::syncthreads_or(select)) softmax.careful |= Softmax<S>::selecting;
    return true;
  }

  // The tile of a round, with its bit, or no_tile. Where they are walked: those of the first rounds, and those after,
  // by one thread; what it writes is read behind the next barrier.
  DEVICE i32 entry(int round) const {
    if constexpr (is_walked<S>) return s.entries[(u32)round % entry_ring];
    else return tile_of_round(item, round);
  }
  DEVICE void walk(int round) {
    if constexpr (is_walked<S>)
      if (threadIdx.x == 0) s.entries[(u32)round % entry_ring] = s.tiles.next(p.f, item);
  }
  DEVICE void start_walk(int rounds) {
    if constexpr (is_walked<S>) {
      if (threadIdx.x == 0) {
        s.tiles = KeyTiles<S>::start(p.f, item);
#pragma unroll 1
        for (int round = 0; round < rounds; ++round) s.entries[round] = s.tiles.next(p.f, item);
      }
      __syncthreads();
    }
  }

  // Pages: where the rows of the first tiles are, for all threads.
  DEVICE void look_up_now(int round) {
    if constexpr (S::paged) {
      keys.look_up(entry(round));
      if (entry(round) >= 0) keys.keep(s, round, tile_of(entry(round)));
      __syncthreads();
    }
  }

  // Several stages: a tile is loaded while those before it are worked on; one barrier a tile. Copies, exponentials and
  // the factors of O stand in one stretch without branches: each has a unit of its own, and the compiler mixes them.
  DEVICE void stream() {
    constexpr int ahead = S::stages - 1;
    start_walk(ahead + 2);
    look_up_now(0);
    for (int round = 0; round < ahead; ++round) {
      load((u32)round, round);
      look_up_now(round + 1);
    }
    for (int round = 0; entry(round) >= 0; ++round) {
      const u32 stage = (u32)round % S::stages;
      const MatrixRows rows = matrix_rows<S>();
      ptx::cp_async_wait<ahead - 1>();
      __syncthreads();  // this tile has landed, for everyone; everyone has left the one before
      walk(round + ahead + 2);
      if constexpr (!kept_apart) select_values(stage);
      load((u32)(round + ahead) % S::stages, round + ahead);  // where the tile before was
      if (S::q_registers && round == 0) queries.read(s.q);
      Scores<S> x;
      multiply_keys<S>(x, queries, s.q, s.k[stage], rows);
      score(x, entry(round));
      keys.look_up(entry(round + ahead + 1));
      add_values(x, stage);
      keys.keep(s, round + ahead + 1, tile_of(entry(round + ahead + 1)));
    }
  }
  DEVICE void load(u32 stage, int round) {
    keys.load_k(s, stage, round, entry(round));
    keys.load_v(s, stage, round, entry(round));
    ptx::cp_async_commit();
  }

  // One stage: values are loaded while keys are multiplied, the next keys while values are; two barriers a tile.
  DEVICE void stream_single() {
    start_walk(2);
    look_up_now(0);
    keys.load_k(s, 0, 0, entry(0));
    ptx::cp_async_commit();
    for (int round = 0; entry(round) >= 0; ++round) {
      const MatrixRows rows = matrix_rows<S>();
      ptx::cp_async_wait<0>();
      __syncthreads();  // the keys have landed; everyone has left the values before
      walk(round + 2);
      keys.load_v(s, 0, round, entry(round));
      ptx::cp_async_commit();
      keys.look_up(entry(round + 1));
      if (S::q_registers && round == 0) queries.read(s.q);
      Scores<S> x;
      multiply_keys<S>(x, queries, s.q, s.k[0], rows);
      score(x, entry(round));
      keys.keep(s, round + 1, tile_of(entry(round + 1)));
      ptx::cp_async_wait<0>();
      __syncthreads();  // the values have landed; everyone has left the keys
      if constexpr (!kept_apart) select_values(0);
      keys.load_k(s, 0, round + 1, entry(round + 1));
      ptx::cp_async_commit();
      add_values(x, 0);
    }
  }
};

// The exponent of the softmax grows with the score: where the scale is negative, Q changes its sign, which is exact;
// where it is 0, what is finite in Q becomes 0.
template <class S>
PTX void turn_queries(Shared<S>& s, float scale) {
  using E = typename S::Element;
  constexpr u32 bits = exponent_bits(E{});
  for (int i = (int)threadIdx.x; i < S::q_tile * padded_dim(S::dim); i += Shape<S>::threads) {
    E& x = s.q[tile_index(i / padded_dim(S::dim), i % padded_dim(S::dim), Shape<S>::q_pitch)];
    if (scale < 0) x.bits = (u16)(x.bits ^ 0x8000u);
    else x.bits = (x.bits & bits) == bits ? (u16)0x7fffu : (u16)0;
  }
}

template <class S>
PTX void forward_sm80(const typename S::Params& p) {
  Shared<S>& s = ptx::shared_memory<Shared<S>>();
  {
    const u32 splits = S::split ? (u32)p.f.splits : 1;
    Item item = find_item<S>(p.f, blockIdx.x / splits, blockIdx.x % splits);
    if (!item.any) return;
    set_tiles<S>(p.f, item);
    KeySource<S>::set(p.f, item);
    const float scale = p.f.scale;
    item.exponent = S::scored || scale == 0 ? log2_e : ptx::mul(scale < 0 ? -scale : scale, log2_e);
    if (threadIdx.x == 0) s.item = item;
    __syncthreads();
  }
  const Item& item = s.item;
  const float scale = p.f.scale;
  Forward<S> work{p, item, s, KeySource<S>::make(p.f, item), {}, {s, s.reference + warp_row<S>()}};

  load_queries<S>(s, p.f, item);
  if (!S::scored && scale <= 0) {
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    __syncthreads();
    turn_queries<S>(s, scale);
    __syncthreads();
  }
  for (;;) {
    work.clear();
    if constexpr (S::stages > 1) work.stream();
    else work.stream_single();
    // Queries without keys: what they are made of may still be on its way where O is to leave.
    ptx::cp_async_wait<0>();
    if (!work.goes_again()) break;
  }
  store_results<S>(work.o, work.softmax, s, p.f, item);
  if (work.selecting()) {
    __syncthreads();
    const i32 end = item.tiles_end * S::k_tile;
    add_not_finite<S>(p, item, work.keys, item.tiles_begin * S::k_tile, end < item.n_k ? end : item.n_k);
  }
}

}  // namespace tessera_kernels
