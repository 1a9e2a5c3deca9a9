// A block's tiles: their shape, how they lie in shared memory, and the products of them on the tensor core.
// A warp has 16 or 32 rows, so that each fragment of keys or values that it reads meets one or two fragments of
// queries: with 32 rows the tensor core needs half the shared-memory bandwidth. Where the output of 32 rows is too wide
// for a warp's registers, two warps have them together: each multiplies half of a tile's keys, hands its probabilities
// to the other through shared memory, and has half of the output's columns.
// Must not know: masks, softmax, where tiles come from.
#pragma once
#include "key_tiles.cuh"
#include "layout.cuh"
#include "ptx/arithmetic.cuh"
#include "ptx/barriers.cuh"
#include "ptx/matrix.cuh"
#include "ptx/warp.cuh"

namespace tessera_kernels {

template <class S>
struct Shape {
  static constexpr int threads = S::warps * 32;
  static constexpr int warps_n = S::warps_n;                              // warps that have the same rows: 1 or 2
  static constexpr int row_groups = S::q_tile * warps_n / S::warps / 16;  // of 16 rows, of a warp
  static constexpr int keys = S::k_tile / warps_n;                        // of a tile, that the warp has the scores of
  static constexpr int dim_steps = padded_dim(S::dim) / 16;               // of a product of queries and keys
  static constexpr int key_steps = keys / 16;  // of a product of the warp's probabilities and values
  static constexpr int key_groups = keys / 8;  // columns of scores, 8 a fragment
  static constexpr int columns_v = columns_of_v(S::dim_v, warps_n);
  static constexpr int dim_groups = columns_v / warps_n / 8;  // the warp's columns of the output, 8 a fragment
  static constexpr int q_pitch = row_pitch(S::dim > S::dim_v ? S::dim : S::dim_v);  // O leaves through Q's rows
  static constexpr int k_pitch = row_pitch(S::dim), v_pitch = row_pitch(S::dim_v);
  static constexpr int queries = S::q_tile / S::heads;  // rows queries * heads to q_tile are idle
};

// A row of a page: how far from the tensor's start, in elements.
struct PagedRow {
  i64 k, v;
};
template <int Rows, bool Paged>
struct PagedRows {};
template <int Rows>
struct PagedRows<Rows, true> {
  PagedRow rows[2][Rows];  // of this tile and of the next
};

// Probabilities on their way from one warp to another, and what the two know of a row.
template <class S, bool Shared = (S::warps_n > 1)>
struct Exchange {};
template <class S>
struct Exchange<S, true> {
  typename S::Element p[S::q_tile * row_pitch(S::k_tile)];
  float rows[2][S::q_tile];
};

template <class S>
struct alignas(16) Shared : PagedRows<S::k_tile, S::paged>, Exchange<S> {
  typename S::Element q[S::q_tile * Shape<S>::q_pitch];
  typename S::Element k[S::stages][S::k_tile * Shape<S>::k_pitch];
  typename S::Element v[S::stages][S::k_tile * Shape<S>::v_pitch];
  // What a score of each row is relative to, and what the block works on: here and not in registers, of which the loop
  // has none to spare.
  float reference[S::q_tile];
  Item item;
  i32 entries[entry_ring];  // the key tile of each round, a few rounds ahead
  KeyTiles<S> tiles;        // thread 0's
};

// What a thread keeps of its warp's rows. Of group m it has rows g and g + 8, g = lane / 4: half 0 and 1.
template <class S>
using Scores = float[Shape<S>::row_groups][Shape<S>::key_groups][4];
template <class S>
using Outputs = float[Shape<S>::row_groups][Shape<S>::dim_groups][4];

PTX void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, bf16) { ptx::mma_m16n8k16_bf16(d, a, b0, b1); }
PTX void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, f16) { ptx::mma_m16n8k16_f16(d, a, b0, b1); }
PTX u32 pack(float lo, float hi, bf16) { return ptx::pack_bf16(lo, hi); }
PTX u32 pack(float lo, float hi, f16) { return ptx::pack_f16(lo, hi); }
PTX bf16 rounded(float x, bf16) { return ptx::to_bf16(x); }
PTX f16 rounded(float x, f16) { return ptx::to_f16(x); }
PTX float rounded(float x, float) { return x; }
// The bits of a half that are set where it is infinite or NaN.
PTX constexpr u32 exponent_bits(bf16) { return 0x7f80u; }
PTX constexpr u32 exponent_bits(f16) { return 0x7c00u; }
PTX constexpr u32 pair_of_ones(bf16) { return 0x3f803f80u; }
PTX constexpr u32 pair_of_ones(f16) { return 0x3c003c00u; }

PTX int lane() { return (int)(threadIdx.x % 32); }
PTX int warp() { return (int)(threadIdx.x / 32); }
// Of element e (0 to 3) of a fragment: its row within 16 and its column within 8.
PTX int fragment_row(int half) { return (int)(threadIdx.x % 32 / 4) + half * 8; }
PTX int fragment_column() { return (int)(threadIdx.x % 4 * 2); }
// Where a lane's row of the four matrices of an ldmatrix lies: rows 0 to 15, then the same ones eight columns on.
template <int Pitch>
PTX int matrix_row() {
  const u32 lane = ptx::thread_here() % 32;
  return tile_index((int)(lane % 16), (int)(lane / 16 * 8), Pitch);
}
template <class S>
PTX int warp_row() {
  return warp() / S::warps_n * Shape<S>::row_groups * 16;
}
// Of warps that have the same rows: which one this is. They are neighbours, on different parts of the multiprocessor.
template <class S>
PTX int part() {
  return S::warps_n == 1 ? 0 : warp() % S::warps_n;
}
// They wait for each other, for what they have written to shared memory.
template <class S>
PTX void sync_rows() {
  if constexpr (S::warps_n == 1) __syncwarp();
  else ptx::named_barrier_sync(1 + (u32)warp() / S::warps_n, 32 * S::warps_n);
}
// The output's columns that fragment n of a warp has: the first of all, or from here on. Two warps have halves of each
// panel of 64.
template <class S>
PTX constexpr int column_of(int n) {
  return S::warps_n == 1 ? n * 8 : n / 4 * 64 + n % 4 * 8;
}
template <class S>
PTX int first_column() {
  return part<S>() * 32;
}

// A step's fragments of the warp's queries. `row`: matrix_row of them.
template <class S>
PTX void read_queries(u32 (&a)[Shape<S>::row_groups][4], const typename S::Element* q, int row, int step) {
  q += warp_row<S>() * Shape<S>::q_pitch;
#pragma unroll
  for (int m = 0; m < Shape<S>::row_groups; ++m)
    ptx::ldmatrix_x4(a[m], q + columns_on(row, step * 16) + m * 16 * Shape<S>::q_pitch);
}

// The warp's queries as fragments: in registers, or read from shared memory whenever they are needed.
template <class S, bool Registers = S::q_registers>
struct QueryFragments {
  DEVICE void read(const typename S::Element*) {}
  DEVICE void get(u32 (&a)[Shape<S>::row_groups][4], const typename S::Element* q, int row, int step) const {
    read_queries<S>(a, q, row, step);
  }
};
template <class S>
struct QueryFragments<S, true> {
  u32 held[Shape<S>::dim_steps][Shape<S>::row_groups][4];
  DEVICE void read(const typename S::Element* q) {
    const int row = matrix_row<Shape<S>::q_pitch>();
#pragma unroll
    for (int step = 0; step < Shape<S>::dim_steps; ++step) read_queries<S>(held[step], q, row, step);
  }
  DEVICE void get(u32 (&a)[Shape<S>::row_groups][4], const typename S::Element*, int, int step) const {
#pragma unroll
    for (int m = 0; m < Shape<S>::row_groups; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][i] = held[step][m][i];
    }
  }
};

// Where this lane's rows of the queries and of the keys lie in their tiles.
struct MatrixRows {
  int q, k;
};
template <class S>
PTX MatrixRows matrix_rows() {
  const u32 lane = ptx::thread_here() % 32;
  return {matrix_row<Shape<S>::q_pitch>(),
          tile_index((int)(lane % 8 + lane / 16 * 8), (int)(lane / 8 % 2 * 8), Shape<S>::k_pitch) +
              part<S>() * Shape<S>::keys * Shape<S>::k_pitch};
}

// Probabilities of a step from the fragments of the warp to those of its neighbour, by way of shared memory.
template <class S>
PTX void give_probabilities(Shared<S>& s, const u32 (&p)[Shape<S>::row_groups][4], int step) {
  constexpr int pitch = row_pitch(S::k_tile);
  const int row = tile_index(warp_row<S>() + fragment_row(0), part<S>() * Shape<S>::keys + fragment_column(), pitch);
#pragma unroll
  for (int m = 0; m < Shape<S>::row_groups; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      *reinterpret_cast<u32*>(s.p + columns_on(row, step * 16 + i / 2 * 8) + (m * 16 + i % 2 * 8) * pitch) = p[m][i];
  }
}
template <class S>
PTX void take_probabilities(u32 (&p)[Shape<S>::row_groups][4], const Shared<S>& s, int step) {
  constexpr int pitch = row_pitch(S::k_tile);
  const u32 lane = ptx::thread_here() % 32;
  const int row =
      tile_index(warp_row<S>() + (int)(lane % 16), (1 - part<S>()) * Shape<S>::keys + (int)(lane / 16 * 8), pitch);
#pragma unroll
  for (int m = 0; m < Shape<S>::row_groups; ++m)
    ptx::ldmatrix_x4(p[m], s.p + columns_on(row, step * 16) + m * 16 * pitch);
}

// x = Q K^T of the warp's rows and a tile of keys. Fragments are read one step before they are multiplied.
template <class S>
PTX void multiply_keys(Scores<S>& x, const QueryFragments<S>& queries, const typename S::Element* q,
                       const typename S::Element* k, const MatrixRows& rows) {
  using Sh = Shape<S>;
  constexpr int pairs = Sh::key_groups / 2;
  const int row = rows.k, q_row = rows.q;
  u32 a[2][Sh::row_groups][4], b[2][4];
#pragma unroll
  for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
    for (int n = 0; n < Sh::key_groups; ++n) x[m][n][0] = x[m][n][1] = x[m][n][2] = x[m][n][3] = 0.0f;
  }
  queries.get(a[0], q, q_row, 0);
  ptx::ldmatrix_x4(b[0], k + row);
#pragma unroll
  for (int step = 0; step < Sh::dim_steps; ++step) {
#pragma unroll
    for (int n = 0; n < pairs; ++n) {
      const int now = (step * pairs + n) % 2;
      if (n + 1 < pairs) ptx::ldmatrix_x4(b[1 - now], k + columns_on(row, step * 16) + (n + 1) * 16 * Sh::k_pitch);
      else if (step + 1 < Sh::dim_steps) ptx::ldmatrix_x4(b[1 - now], k + columns_on(row, (step + 1) * 16));
      if (n == 0 && step + 1 < Sh::dim_steps) queries.get(a[(step + 1) % 2], q, q_row, step + 1);
#pragma unroll
      for (int m = 0; m < Sh::row_groups; ++m) {
        multiply(x[m][2 * n], a[step % 2][m], b[now][0], b[now][1], typename S::Element{});
        multiply(x[m][2 * n + 1], a[step % 2][m], b[now][2], b[now][3], typename S::Element{});
      }
    }
  }
}

// o += P V for 16 of the tile's keys: `p` has the probabilities as the matrix instruction takes them.
template <class S>
PTX void multiply_values(Outputs<S>& o, const u32 (&p)[Shape<S>::row_groups][4], const typename S::Element* v,
                         int step) {
  using Sh = Shape<S>;
  constexpr int pairs = Sh::dim_groups / 2;
  const int row = matrix_row<Sh::v_pitch>() ^ first_column<S>();
  v += step * 16 * Sh::v_pitch;
  u32 b[2][4];
  ptx::ldmatrix_x4_trans(b[0], v + row);
#pragma unroll
  for (int n = 0; n < pairs; ++n) {
    if (n + 1 < pairs) ptx::ldmatrix_x4_trans(b[(n + 1) % 2], v + columns_on(row, column_of<S>(2 * n + 2)));
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) {
      multiply(o[m][2 * n], p[m], b[n % 2][0], b[n % 2][1], typename S::Element{});
      multiply(o[m][2 * n + 1], p[m], b[n % 2][2], b[n % 2][3], typename S::Element{});
    }
  }
}

}  // namespace tessera_kernels
