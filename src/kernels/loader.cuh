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

PTX constexpr int lowest_bit(int x) { return x & -x; }
PTX constexpr int highest_bit(int x) { return x < 2 ? x : 2 * highest_bit(x / 2); }

// How a block shares the copies of a tile of Rows rows: `lanes` threads side by side along a row, the same ones for
// each row, so that a thread's places are constants away from its first. As many as are eight or more, for few of them
// meet each other in shared memory; what they leave of a row comes after, the copies from number From on.
template <int Rows, int Dim, int Pitch, int Threads, int Bytes, int Columns = padded_dim(Dim), int From = 0>
struct TileCopy {
 public:
  static constexpr int width = Bytes / 2, copies = Columns / width - From;  // elements of a copy; copies of a row
  static constexpr int here = copies >= 8 ? copies / 8 * 8 : highest_bit(copies);
  static constexpr u32 lanes = lowest_bit(here) < 32 ? lowest_bit(here) : 32;
  static constexpr int rows_at_once = Threads / lanes;
  using Rest = TileCopy<Rows, Dim, Pitch, Threads, Bytes, Columns, From + here>;

  // row_of(r): where row r < rows begins. Rows that are not there become zeros.
  template <class E, class RowOf>
  static DEVICE void run(E* tile, int rows, const RowOf& row_of) {
    const u32 thread = ptx::thread_here();
    const int first = (int)(thread / lanes), column = (From + (int)(thread % lanes)) * width;
#pragma unroll
    for (int pass = 0; pass < Rows; pass += rows_at_once) {
      const int r = first + pass;
      if (Rows % rows_at_once == 0 || r < Rows)
        copy_row(tile, place(first, column, pass), row_of(r < rows ? r : 0) + column, column, r < rows);
    }
    if constexpr (here < copies) Rest::run(tile, rows, row_of);
  }
  // Rows `stride` apart. No branch, so that the compiler may put the copies between other instructions. The address of
  // a row that is not there is never read from.
  template <class E>
  static DEVICE void dense(E* tile, int rows, const E* row, i64 stride) {
    // Copies of nothing, too, want an aligned address, and a tensor of one row may have any stride, one of none any
    // address.
    stride = rows > 1 ? ptx::made_here(stride) : 0;
    row = reinterpret_cast<const E*>(reinterpret_cast<u64>(row) & ~(u64)(Bytes - 1));
    const u32 thread = ptx::thread_here();
    const int first = (int)(thread / lanes), column = (From + (int)(thread % lanes)) * width;
    const E* from = row + first * stride + column;
    const int left = rows - first;  // of them from this thread's first one on
#pragma unroll
    for (int pass = 0; pass < Rows; pass += rows_at_once, from += rows_at_once * stride)
      if (Rows % rows_at_once == 0 || first + pass < Rows)
        copy_row(tile, place(first, column, pass), from, column, pass < left);
    if constexpr (here < copies) Rest::dense(tile, rows, row, stride);
  }

 private:
  static DEVICE int place(int first, int column, int pass) {
    if constexpr (rows_at_once % 8 == 0) return tile_index(first, column, Pitch) + pass * Pitch;
    else return tile_index(first + pass, column, Pitch);
  }
  // From this thread's first column on.
  template <class E>
  static DEVICE void copy_row(E* tile, int to, const E* from, int column, bool there) {
#pragma unroll
    for (int c = 0; c < here; c += (int)lanes) {
      int elements = width;
      const E* at = from + c * width;
      if ((From + c + (int)lanes) * width > Dim) {  // may reach beyond the dim
        const int left = Dim - c * width - column;
        elements = left < 0 ? 0 : left < width ? left : width;
        if (left <= 0) at = from - column;
      }
      copy<Bytes>(tile + columns_on(to, c * width), at, there ? elements : 0);
    }
  }
};

// Of the tile that a round has: its first key, and how many of its keys are there; none where there is no tile.
template <class S>
PTX i32 first_key(i32 entry) {
  return entry >= 0 ? tile_of(entry) * S::k_tile : 0;
}
template <class S>
PTX i32 rows_of_entry(const Item& item, i32 entry) {
  return entry >= 0 ? item.n_k - tile_of(entry) * S::k_tile : 0;
}

// The keys and values of one sequence and head. Tiles are counted from key 0; of no tile, the copies are zeros.
template <class S, bool Paged = S::paged>
struct KeySource {
  using E = typename S::Element;
  const ForwardParams& f;
  const Item& item;

  static DEVICE void set(const ForwardParams& f, Item& item) {
    const i64 token = item.k_begin, head = item.head_kv, batch = S::packed && !S::lengths ? 0 : item.sequence;
    item.k = static_cast<const E*>(f.k.data) + batch * f.k.batch + token * f.k.token + head * f.k.head;
    item.v = static_cast<const E*>(f.v.data) + batch * f.v.batch + token * f.v.token + head * f.v.head;
  }
  static DEVICE KeySource make(const ForwardParams& f, const Item& item) { return {f, item}; }
  // Pages alone have to be looked up.
  DEVICE void look_up(i32) {}
  DEVICE void keep(Shared<S>&, int, i32) const {}
  DEVICE void load_k(Shared<S>& s, u32 stage, int, i32 entry) const {
    TileCopy<S::k_tile, S::dim, Shape<S>::k_pitch, Shape<S>::threads, S::k_copy>::dense(
        s.k[stage], rows_of_entry<S>(item, entry), key(first_key<S>(entry)), f.k.token);
  }
  DEVICE void load_v(Shared<S>& s, u32 stage, int, i32 entry) const {
    TileCopy<S::k_tile, S::dim_v, Shape<S>::v_pitch, Shape<S>::threads, S::v_copy, Shape<S>::columns_v>::dense(
        s.v[stage], rows_of_entry<S>(item, entry), value(first_key<S>(entry)), f.v.token);
  }
  // Of a key: where it has come from.
  DEVICE const E* key(i32 i) const { return static_cast<const E*>(item.k) + i * f.k.token; }
  DEVICE const E* value(i32 i) const { return static_cast<const E*>(item.v) + i * f.v.token; }
};

// Pages of any size: where each row of a tile lies is written to shared memory before the tile is loaded. The numbers
// of the pages are read a tile earlier still (look_up), and kept when they have come (keep). Rounds have one of two
// places in turn.
template <class S>
struct KeySource<S, true> {
  using E = typename S::Element;
  static constexpr int own = (S::k_tile + Shape<S>::threads - 1) / Shape<S>::threads;  // rows that a thread looks up
  const ForwardParams& f;
  const Item& item;
  const Divider& page_size;
  i32 pages[own];

  static DEVICE void set(const ForwardParams& f, Item& item) {
    item.k = static_cast<const E*>(f.k.data) + item.head_kv * f.k.head;
    item.v = static_cast<const E*>(f.v.data) + item.head_kv * f.v.head;
    item.page_size = Divider::make(f.page_size < 0x7fffffff ? (u32)f.page_size : 0x7fffffffu);
  }
  static DEVICE KeySource make(const ForwardParams& f, const Item& item) { return {f, item, item.page_size, {}}; }
  DEVICE i32 page(u32 number) const { return f.block_table[item.sequence * f.table_stride + number]; }
  DEVICE void look_up(i32 entry) {
    const i32 tile = tile_of(entry), thread = (i32)ptx::thread_here();
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const i32 r = thread + i * Shape<S>::threads, key = tile * S::k_tile + r;
      pages[i] = entry >= 0 && r < S::k_tile && key < item.n_k ? page(page_size.divide((u32)key)) : 0;
    }
  }
  DEVICE void keep(Shared<S>& s, int round, i32 tile) const {
    const i32 thread = (i32)ptx::thread_here();
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const i32 r = thread + i * Shape<S>::threads;
      if (r >= S::k_tile) continue;
      const u32 key = (u32)(tile * S::k_tile + r), in_page = key - page_size.divide(key) * page_size.by;
      const bool there = pages[i] >= 0 && pages[i] < f.pages;
      if (!there && key < (u32)item.n_k && f.sequences.error) ptx::atomic_or(f.sequences.error, error_block_table);
      const i64 page = there ? pages[i] : 0;
      s.rows[round % 2][r] = {page * f.k.batch + in_page * f.k.token, page * f.v.batch + in_page * f.v.token};
    }
  }
  DEVICE void load_k(Shared<S>& s, u32 stage, int round, i32 entry) const {
    if (entry < 0) return;
    TileCopy<S::k_tile, S::dim, Shape<S>::k_pitch, Shape<S>::threads, S::k_copy>::run(
        s.k[stage], rows_of_entry<S>(item, entry),
        [&](int r) { return static_cast<const E*>(item.k) + s.rows[round % 2][r].k; });
  }
  DEVICE void load_v(Shared<S>& s, u32 stage, int round, i32 entry) const {
    if (entry < 0) return;
    TileCopy<S::k_tile, S::dim_v, Shape<S>::v_pitch, Shape<S>::threads, S::v_copy, Shape<S>::columns_v>::run(
        s.v[stage], rows_of_entry<S>(item, entry),
        [&](int r) { return static_cast<const E*>(item.v) + s.rows[round % 2][r].v; });
  }
  // Of a key: where it has come from.
  DEVICE PagedRow row(i32 i) const {
    const u32 number = page_size.divide((u32)i), in_page = (u32)i - number * page_size.by;
    const i32 entry = page(number);
    const i64 page = entry >= 0 && entry < f.pages ? entry : 0;
    return {page * f.k.batch + in_page * f.k.token, page * f.v.batch + in_page * f.v.token};
  }
  DEVICE const E* key(i32 i) const { return static_cast<const E*>(item.k) + row(i).k; }
  DEVICE const E* value(i32 i) const { return static_cast<const E*>(item.v) + row(i).v; }
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
  using Copy = TileCopy<S::q_tile, S::dim, Shape<S>::q_pitch, Shape<S>::threads, S::q_copy>;
  if constexpr (S::heads == 1) Copy::dense(s.q, rows_of<S>(item), query_row<S>(f, item, 0), f.q.token);
  else Copy::run(s.q, rows_of<S>(item), [&](int r) { return query_row<S>(f, item, r); });
}

}  // namespace tessera_kernels
