// Scores before the softmax: the emitted score change, and the masks, which select: what is masked becomes -inf,
// whatever it was.
// Must not know: shared memory, softmax.
#pragma once
#include "loader.cuh"

namespace tessera_kernels {

// Where the elements of a thread's fragments stand.
template <class S>
struct Place {
  i64 sequence, q_first;  // q_first: logical position of the tile's first query
  i32 head, n_k;
  i32 column;  // key of the fragment's first element, in the sequence
  int first_row;

  static DEVICE Place make(const Item& item, i32 tile) {
    const u32 thread = ptx::thread_here(), lane = thread % 32;
    return {item.sequence,
            item.offset + item.first_query,
            item.head,
            item.n_k,
            tile * S::k_tile + part<S>() * Shape<S>::keys + (i32)(lane % 4 * 2),
            (int)(thread / 32 / S::warps_n * Shape<S>::row_groups * 16 + lane / 4)};
  }
  DEVICE int row(int m, int half) const { return first_row + m * 16 + half * 8; }
  DEVICE i64 query(int row) const { return q_first + row / S::heads; }
  DEVICE i64 head_of(int row) const { return head + row % S::heads; }
};

template <class S>
PTX void change_scores(Scores<S>& x, const Place<S>& at, const typename S::Params& p) {
  using P = typename S::Position;
  const auto column = (float)at.column;  // exact where Position has 32 bits, else not used
#pragma unroll
  for (int n = 0; n < Shape<S>::key_groups; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const auto k = (P)(at.column + n * 8 + e);
      const float real_k = ptx::add(column, (float)(n * 8 + e));
#pragma unroll
      for (int m = 0; m < Shape<S>::row_groups; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = at.row(m, half);
          float& score = x[m][n][half * 2 + e];
          score =
              S::score(ptx::mul(score, p.f.scale), (P)at.sequence, (P)at.head_of(row), (P)at.query(row), k, real_k, p);
        }
      }
    }
  }
}

// A bit for each of a lane's columns of a row, 0, 1, 8, 9, 16, ..., up to 32 of them: those below `end`.
PTX u32 columns_below(i32 end) {
  const i32 at = end < 0 ? 0 : end, odd = at & 7, count = at / 8 * 2 + (odd < 2 ? odd : 2);
  return count >= 32 ? ~0u : (1u << count) - 1;
}

// Of a tile that is not full.
template <class S>
PTX void mask_scores(Scores<S>& x, const Place<S>& at, const typename S::Params& p) {
  using P = typename S::Position;
  const i32 end = at.n_k - at.column;  // columns from here on are beyond the keys
#pragma unroll
  for (int m = 0; m < Shape<S>::row_groups; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = at.row(m, half);
      const i64 q = at.query(row);
      // Columns of bands; without bands: all.
      u32 attended_to = 0;
      if constexpr (S::keys == Keys::bands) {
#pragma unroll
        for (int band = 0; band < S::bands; ++band) {
          const i32 lo = (i32)clamp(q + p.f.band_lo[band], 0, at.n_k) - at.column;
          const i32 hi = (i32)clamp(q + p.f.band_hi[band] + 1, 0, at.n_k) - at.column;
          attended_to |= columns_below(hi) & ~(S::left_open ? 0u : columns_below(lo));
        }
      } else {
        attended_to = columns_below(end);
      }
#pragma unroll
      for (int n = 0; n < Shape<S>::key_groups; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const i32 column = n * 8 + e;
          bool attended = (attended_to >> (n * 2 + e) & 1) != 0;
          if constexpr (S::masked)
            attended = attended && S::mask((P)at.sequence, (P)at.head_of(row), (P)q, (P)(at.column + column), p);
          float& score = x[m][n][half * 2 + e];
          score = attended ? score : -ptx::infinity();
        }
      }
    }
  }
}

}  // namespace tessera_kernels
