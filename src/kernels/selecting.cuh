// What happens where values hold NaN or infinities. A key that is masked for one row and attended to by another stands
// in the same product: 0 * NaN would reach the first. A block whose output is not finite therefore does its work again:
// values that are not finite become zeros in shared memory, and are added, one key at a time, to the rows that attend
// to them. Of all other rows the second pass makes the same bits as the first. Must not know: where tiles come from.
#pragma once
#include "loader.cuh"

namespace tessera_kernels {

PTX bool is_finite(float x) { return (x < 0 ? -x : x) < ptx::infinity(); }

// A thread for each key of the tile: zeros for what is not finite, and a note that there was something.
template <class S>
PTX void clear_not_finite(Shared<S>& s, int stage) {
  using E = typename S::Element;
  constexpr u32 bits = exponent_bits(E{});
  for (int key = (int)threadIdx.x; key < S::k_tile; key += Shape<S>::threads) {
    E* const row = s.v[stage] + key * Shape<S>::v_pitch;
    u32 found = 0;
    for (int i = 0; i < S::dim_v; ++i) {
      if ((row[i].bits & bits) != bits) continue;
      found = 1, row[i] = E{0};
    }
    s.not_finite[key] = found;
  }
}

// Before the tile's products: x are the scores, -inf where masked.
template <class S>
PTX void add_not_finite(Outputs<S>& o, const Scores<S>& x, const Shared<S>& s, const KeySource<S>& keys, i32 tile) {
  using Sh = Shape<S>;
  for (int key = 0; key < S::k_tile; ++key) {
    if (s.not_finite[key] == 0) continue;
    // Which rows attend to it: the lane that has its column tells the other three of the quad.
    u32 attended = 0;
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int n = 0; n < Sh::key_groups; ++n) {
          const float score = key % 2 ? x[m][n][half * 2 + 1] : x[m][n][half * 2];
          if (n == key / 8 && score != -ptx::infinity()) attended |= 1u << (m * 2 + half);
        }
      }
    }
    attended = ptx::shfl_idx(attended, (u32)(lane() / 4 * 4 + key % 8 / 2));
    const typename S::Element* const value = keys.value(tile * S::k_tile + key);
#pragma unroll
    for (int n = 0; n < Sh::dim_groups; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int i = n * 8 + fragment_column() + e;
        const float y = i < S::dim_v ? ptx::to_float(value[i]) : 0.0f;
#pragma unroll
        for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
          for (int half = 0; half < 2; ++half)
            if (!is_finite(y) && (attended >> (m * 2 + half) & 1)) o[m][n][half * 2 + e] += y;
        }
      }
    }
  }
}

// Whether a row of this warp's that is there has something that is not finite.
template <class S>
PTX bool any_not_finite(const Outputs<S>& o, int rows) {
  bool found = false;
#pragma unroll
  for (int m = 0; m < Shape<S>::row_groups; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float zero = 0.0f;  // 0 * x is NaN for those alone
#pragma unroll
      for (int n = 0; n < Shape<S>::dim_groups; ++n)
        zero = ptx::fma(o[m][n][half * 2], 0.0f, ptx::fma(o[m][n][half * 2 + 1], 0.0f, zero));
      found = found || (zero != zero && warp_row<S>() + m * 16 + fragment_row(half) < rows);
    }
  }
  return found;
}

}  // namespace tessera_kernels
