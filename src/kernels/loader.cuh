// Rows of queries, keys and values on their way into shared memory: dense, strided in whatever alignment, or in pages.
// What lies beyond a sequence or beyond the head dim is filled with zeros, so that nothing of it reaches a product.
// Must not know: masks, softmax.
#pragma once
#include "ptx/copies.cuh"
#include "sequence.cuh"
#include "tile.cuh"

namespace tessera_kernels {

// Copies of `Bytes` bytes, the first `elements` elements of it, 0 to Bytes / 2; zeros for the rest.
template <int Bytes, class E>
PTX void copy(E* to, const E* from, int elements) {
  if constexpr (Bytes == 16) ptx::cp_async16(to, from, (u32)elements * 2);
  else if constexpr (Bytes == 8) ptx::cp_async8(to, from, (u32)elements * 2);
  else if constexpr (Bytes == 4) ptx::cp_async4(to, from, (u32)elements * 2);
  else *to = elements ? E{ptx::load2(from)} : E{0};
}

// How a block shares the copies of a tile of Rows rows: `lanes` threads side by side along a row, the same ones for
// each row, so that a thread's places are constants away from its first.
template <int Rows, int Dim, int Pitch, int Threads, int Bytes>
struct TileCopy {
  static constexpr int width = Bytes / 2, copies = padded_dim(Dim) / width;  // elements of a copy, copies of a row
  static constexpr int lanes = (copies & -copies) < 32 ? (copies & -copies) : 32;
  static constexpr int rows_at_once = Threads / lanes;

  // row_of(r): where row r < rows begins.
  template <class E, class RowOf>
  static DEVICE void run(E* tile, int rows, const RowOf& row_of) {
    if (rows >= Rows) some<true>(tile, rows, row_of);
    else some<false>(tile, rows, row_of);
  }
  template <bool Whole, class E, class RowOf>
  static DEVICE void some(E* tile, int rows, const RowOf& row_of) {
    const int lane = (int)threadIdx.x % lanes, first = (int)threadIdx.x / lanes;
#pragma unroll
    for (int pass = 0; pass < Rows; pass += rows_at_once) {
      const int r = first + pass;
      if (Rows % rows_at_once == 0 || r < Rows) {
        const bool there = Whole || r < rows;
        const E* const from = row_of(Whole || there ? r : 0) + lane * width;
#pragma unroll
        for (int c = 0; c < copies; c += lanes) {
          int elements = width;
          if ((c + lanes) * width > Dim) {  // may reach beyond the dim
            const int left = Dim - (c + lane) * width;
            elements = left < 0 ? 0 : left < width ? left : width;
          }
          copy<Bytes>(tile + r * Pitch + (c + lane) * width, from + (elements ? c * width : 0), there ? elements : 0);
        }
      }
    }
  }
};

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

// The keys and values of one sequence and head. Tiles are counted from key 0.
template <class S, bool Paged = S::paged>
struct KeySource {
  using E = typename S::Element;
  const E *k, *v;  // of key 0
  i64 k_token, v_token;
  i32 n_k;

  static DEVICE KeySource make(const ForwardParams& f, const Item& item) {
    const i64 token = item.k_begin, head = item.head_kv, batch = S::packed && !S::lengths ? 0 : item.sequence;
    return {static_cast<const E*>(f.k.data) + batch * f.k.batch + token * f.k.token + head * f.k.head,
            static_cast<const E*>(f.v.data) + batch * f.v.batch + token * f.v.token + head * f.v.head, f.k.token,
            f.v.token, item.n_k};
  }
  // Pages alone have to be looked up.
  DEVICE void look_up(i32) {}
  DEVICE void keep(Shared<S>&, u32, i32) const {}
  DEVICE void load_k(Shared<S>& s, int stage, u32, i32 tile) const {
    const E* const first = k + (i64)tile * S::k_tile * k_token;
    TileCopy<S::k_tile, S::dim, Shape<S>::k_pitch, Shape<S>::threads, S::k_copy>::run(
        s.k[stage], n_k - tile * S::k_tile, [&](int r) { return first + r * k_token; });
  }
  DEVICE void load_v(Shared<S>& s, int stage, u32, i32 tile) const {
    const E* const first = v + (i64)tile * S::k_tile * v_token;
    TileCopy<S::k_tile, S::dim_v, Shape<S>::v_pitch, Shape<S>::threads, S::v_copy>::run(
        s.v[stage], n_k - tile * S::k_tile, [&](int r) { return first + r * v_token; });
  }
  DEVICE void load(Shared<S>& s, int stage, u32 parity, i32 tile) const {
    load_k(s, stage, parity, tile), load_v(s, stage, parity, tile);
  }
  // Of a key: where it has come from.
  DEVICE const E* value(i32 key) const { return v + key * v_token; }
};

// Pages of any size: where each row of a tile lies is written to shared memory before the tile is loaded. The numbers
// of the pages are read a tile earlier still (look_up), and kept when they have come (keep): `parity` 0 and 1 in turn.
template <class S>
struct KeySource<S, true> {
  using E = typename S::Element;
  static constexpr int own = (S::k_tile + Shape<S>::threads - 1) / Shape<S>::threads;  // rows that a thread looks up
  const ForwardParams* f;
  const E *k, *v;    // of page 0
  const i32* table;  // of the sequence
  Divider page_size;
  i32 n_k;
  i32 pages[own];

  static DEVICE KeySource make(const ForwardParams& f, const Item& item) {
    KeySource source{};
    source.f = &f;
    source.k = static_cast<const E*>(f.k.data) + item.head_kv * f.k.head;
    source.v = static_cast<const E*>(f.v.data) + item.head_kv * f.v.head;
    source.table = f.block_table + item.sequence * f.table_stride;
    source.page_size = Divider::make(f.page_size < 0x7fffffff ? (u32)f.page_size : 0x7fffffffu);
    source.n_k = item.n_k;
    return source;
  }
  DEVICE void look_up(i32 entry) {
    const i32 tile = entry & 0x3fffffff;
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const i32 r = (i32)threadIdx.x + i * Shape<S>::threads, key = tile * S::k_tile + r;
      pages[i] = entry >= 0 && r < S::k_tile && key < n_k ? table[page_size.divide((u32)key)] : 0;
    }
  }
  DEVICE void keep(Shared<S>& s, u32 parity, i32 tile) const {
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const i32 r = (i32)threadIdx.x + i * Shape<S>::threads;
      if (r >= S::k_tile) continue;
      const u32 key = (u32)(tile * S::k_tile + r), in_page = key - page_size.divide(key) * page_size.by;
      const bool there = pages[i] >= 0 && pages[i] < f->pages;
      if (!there && key < (u32)n_k && f->sequences.error) ptx::atomic_or(f->sequences.error, error_block_table);
      const i64 page = there ? pages[i] : 0;
      s.rows[parity][r] = {page * f->k.batch + in_page * f->k.token, page * f->v.batch + in_page * f->v.token};
    }
  }
  DEVICE void load_k(Shared<S>& s, int stage, u32 parity, i32 tile) const {
    TileCopy<S::k_tile, S::dim, Shape<S>::k_pitch, Shape<S>::threads, S::k_copy>::run(
        s.k[stage], n_k - tile * S::k_tile, [&](int r) { return k + s.rows[parity][r].k; });
  }
  DEVICE void load_v(Shared<S>& s, int stage, u32 parity, i32 tile) const {
    TileCopy<S::k_tile, S::dim_v, Shape<S>::v_pitch, Shape<S>::threads, S::v_copy>::run(
        s.v[stage], n_k - tile * S::k_tile, [&](int r) { return v + s.rows[parity][r].v; });
  }
  DEVICE void load(Shared<S>& s, int stage, u32 parity, i32 tile) const {
    load_k(s, stage, parity, tile), load_v(s, stage, parity, tile);
  }
  DEVICE const E* value(i32 key) const {
    const u32 number = page_size.divide((u32)key), in_page = (u32)key - number * page_size.by;
    const i32 page = table[number];
    return v + (page >= 0 && page < f->pages ? page : 0) * f->v.batch + in_page * f->v.token;
  }
};

// Row r of the tile is query r / heads, head r % heads.
template <class S>
PTX const typename S::Element* query_row(const ForwardParams& f, const Item& item, int r) {
  const i64 token = item.q_begin + item.first_query + r / S::heads, head = item.head + r % S::heads;
  return static_cast<const typename S::Element*>(f.q.data) + (S::packed ? 0 : item.sequence * f.q.batch) +
         token * f.q.token + head * f.q.head;
}
// Rows of the tile that are there.
template <class S>
PTX int rows_of(const Item& item) {
  const i32 left = item.n_q - item.first_query;
  return (left < Shape<S>::queries ? left : Shape<S>::queries) * S::heads;
}
template <class S>
PTX void load_queries(Shared<S>& s, const ForwardParams& f, const Item& item) {
  TileCopy<S::q_tile, S::dim, Shape<S>::q_pitch, Shape<S>::threads, S::q_copy>::run(
      s.q, rows_of<S>(item), [&](int r) { return query_row<S>(f, item, r); });
}

}  // namespace tessera_kernels
