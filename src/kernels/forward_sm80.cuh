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
  float c;         // from scores to exponents of 2
  bool selecting;  // the second pass, where there was something not finite

  DEVICE void clear() {
    softmax.clear();
#pragma unroll
    for (int m = 0; m < Shape<S>::row_groups; ++m) {
#pragma unroll
      for (int n = 0; n < Shape<S>::dim_groups; ++n) o[m][n][0] = o[m][n][1] = o[m][n][2] = o[m][n][3] = 0.0f;
    }
  }

  // From products of queries and keys to masked scores, and the running maximum.
  DEVICE void score(Scores<S>& x, i32 entry) {
    const Place<S> at = Place<S>::make(item, tile_of(entry));
    if constexpr (S::scored) change_scores<S>(x, at, p);
    if (!is_full(entry)) mask_scores<S>(x, at, p);
    softmax.raise(x, c);
  }

  // O += P V. While selecting, what is not finite goes another way.
  DEVICE void add_values(const Scores<S>& x, i32 entry, int stage) {
    if (selecting) {
      clear_not_finite<S>(s, stage);
      __syncthreads();
      add_not_finite<S>(o, x, s, keys, tile_of(entry));
    }
    softmax.add_values(o, x, s.v[stage], c);
  }

  // Pages: where the rows of the first tiles are, for all threads.
  DEVICE void look_up_now(u32 parity, i32 entry) {
    if constexpr (S::paged) {
      keys.look_up(entry);
      if (entry >= 0) keys.keep(s, parity, tile_of(entry));
      __syncthreads();
    }
  }

  // Several stages: a tile is loaded while those before it are worked on; one barrier a tile.
  DEVICE void stream() {
    constexpr int ahead = S::stages - 1;
    i32 entry[S::stages + 1];  // of the tile in hand and of those to come
    u32 parity = 0;            // of the rows of entry[ahead], where pages are
    KeyTiles<S> tiles = KeyTiles<S>::start(p.f, item);
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      entry[i] = tiles.next(p.f, item);
      look_up_now(parity, entry[i]);
      if (entry[i] >= 0) keys.load(s, i, parity, tile_of(entry[i]));
      ptx::cp_async_commit();
      parity ^= 1;
    }
    entry[ahead] = tiles.next(p.f, item);
    look_up_now(parity, entry[ahead]);
    if constexpr (S::q_registers) {
      ptx::cp_async_wait<ahead - 1>();
      __syncthreads();
      queries.read();
    }
    for (int stage = 0; entry[0] >= 0; stage = stage + 1 == S::stages ? 0 : stage + 1) {
      ptx::cp_async_wait<ahead - 1>();
      __syncthreads();  // this tile has landed, for everyone; everyone has left the one before
      if (entry[ahead] >= 0) keys.load(s, stage == 0 ? ahead : stage - 1, parity, tile_of(entry[ahead]));
      ptx::cp_async_commit();
      entry[S::stages] = tiles.next(p.f, item);
      keys.look_up(entry[S::stages]);
      Scores<S> x;
      multiply_keys<S>(x, queries, s.k[stage]);
      score(x, entry[0]);
      add_values(x, entry[0], stage);
      if (entry[S::stages] >= 0) keys.keep(s, parity ^ 1, tile_of(entry[S::stages]));
      parity ^= 1;
#pragma unroll
      for (int i = 0; i < S::stages; ++i) entry[i] = entry[i + 1];
    }
  }

  // One stage: values are loaded while keys are multiplied, the next keys while values are; two barriers a tile.
  DEVICE void stream_single() {
    u32 parity = 0;  // of the rows of `entry`
    KeyTiles<S> tiles = KeyTiles<S>::start(p.f, item);
    i32 entry = tiles.next(p.f, item);
    look_up_now(parity, entry);
    if (entry >= 0) keys.load_k(s, 0, parity, tile_of(entry));
    ptx::cp_async_commit();
    if constexpr (S::q_registers) {
      ptx::cp_async_wait<0>();
      __syncthreads();
      queries.read();
    }
    while (entry >= 0) {
      ptx::cp_async_wait<0>();
      __syncthreads();  // the keys have landed; everyone has left the values before
      keys.load_v(s, 0, parity, tile_of(entry));
      ptx::cp_async_commit();
      const i32 next = tiles.next(p.f, item);
      keys.look_up(next);
      Scores<S> x;
      multiply_keys<S>(x, queries, s.k[0]);
      score(x, entry);
      if (next >= 0) keys.keep(s, parity ^ 1, tile_of(next));
      ptx::cp_async_wait<0>();
      __syncthreads();  // the values have landed; everyone has left the keys
      if (next >= 0) keys.load_k(s, 0, parity ^ 1, tile_of(next));
      ptx::cp_async_commit();
      add_values(x, entry, 0);
      entry = next, parity ^= 1;
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
    E& x = s.q[i / padded_dim(S::dim) * Shape<S>::q_pitch + i % padded_dim(S::dim)];
    if (scale < 0) x.bits = (u16)(x.bits ^ 0x8000u);
    else x.bits = (x.bits & bits) == bits ? (u16)0x7fffu : (u16)0;
  }
}

template <class S>
PTX void forward_sm80(const typename S::Params& p) {
  const u32 splits = S::split ? (u32)p.f.splits : 1;
  const Item item = find_item<S>(p.f, blockIdx.x / splits, blockIdx.x % splits);
  if (!item.any) return;
  Shared<S>& s = ptx::shared_memory<Shared<S>>();
  Forward<S> work{p, item, s};
  work.keys = KeySource<S>::make(p.f, item);
  work.queries = QueryFragments<S>::make(s.q);
  work.selecting = false;
  const float scale = p.f.scale;
  work.c = S::scored || scale == 0 ? log2_e : ptx::mul(scale < 0 ? -scale : scale, log2_e);

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
    if (!ptx::syncthreads_or(!work.selecting && any_not_finite<S>(work.o, rows_of<S>(item)))) break;
    work.selecting = true;
  }
  store_results<S>(work.o, work.softmax, s, p.f, item, work.c);
}

}  // namespace tessera_kernels
