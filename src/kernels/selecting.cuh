// What happens where values hold NaN or infinities. A key that is masked for one row and attended to by another stands
// in the same product: 0 * NaN would reach the first. A block whose output is not finite therefore does its work again
// with zeros in the place of what is not finite among the values: all other rows come out with the same bits. What was
// left out is then added, pair by pair and without haste, to the rows that attend to it.
// Must not know: where tiles come from.
#pragma once
#include "epilogue.cuh"
#include "mask.cuh"

namespace tessera_kernels {

template <class E>
PTX bool is_finite(E x) {
  return (x.bits & exponent_bits(E{})) != exponent_bits(E{});
}

// Of the values of a tile in shared memory; a thread for each key.
template <class S>
PTX void clear_not_finite(Shared<S>& s, u32 stage) {
  using E = typename S::Element;
  for (int key = (int)threadIdx.x; key < S::k_tile; key += Shape<S>::threads) {
#pragma unroll 1
    for (int i = 0; i < S::dim_v; ++i) {
      E& x = s.v[stage][tile_index(key, i, Shape<S>::v_pitch)];
      if (!is_finite(x)) x = E{0};
    }
  }
}

// 0 * x is NaN for infinities and NaN alone.
PTX float zero_if_finite(const float (&x)[4], int half) {
  return ptx::fma(x[half * 2], 0.0f, ptx::fma(x[half * 2 + 1], 0.0f, 0.0f));
}
template <int Groups>
PTX float zero_if_finite(const float (&x)[Groups][4], int half) {
  float zeros[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int n = 0; n < Groups; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float& zero = zeros[n % 2 * 2 + e];
      zero = ptx::fma(x[n][half * 2 + e], 0.0f, zero);
    }
  }
  return (zeros[0] + zeros[1]) + (zeros[2] + zeros[3]);
}

// A bit for each of the lane's rows that is there and has something that is not finite, in any lane of its quad.
template <class S, class Values>
PTX u32 rows_not_finite(const Values& values, int rows) {
  u32 found = 0;
#pragma unroll
  for (int m = 0; m < Shape<S>::row_groups; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float zero = zero_if_finite(values[m], half);
      if (zero != zero && warp_row<S>() + m * 16 + fragment_row(half) < rows) found |= 1u << (m * 2 + half);
    }
  }
  found |= ptx::shfl_xor(found, 1);
  return found | ptx::shfl_xor(found, 2);
}

// Whether row r attends to a key: the mask's answer, and a score that is not -inf. By a whole warp.
template <class S>
PTX bool attends(const typename S::Params& p, const Item& item, const KeySource<S>& keys, int r, i32 key) {
  using P = typename S::Position;
  const i64 q = item.offset + item.first_query + r / S::heads, h = item.head + r % S::heads;
  bool attended = true;
  if constexpr (S::keys == Keys::bands) {
    attended = false;
    for (int band = 0; band < S::bands; ++band)
      attended = attended || (key >= q + p.f.band_lo[band] && key <= q + p.f.band_hi[band]);
  }
  if constexpr (S::masked) attended = attended && S::mask((P)item.sequence, (P)h, (P)q, (P)key, p);
  if (!attended) return false;
  const auto* const a = query_row<S>(p.f, item, r);
  const auto* const b = keys.key(key);
  float score = 0.0f;
#pragma unroll 1
  for (int i = lane(); i < S::dim; i += 32) score = ptx::fma(ptx::to_float(a[i]), ptx::to_float(b[i]), score);
#pragma unroll 1
  for (u32 mask = 16; mask > 0; mask /= 2) score += ptx::shfl_xor(score, mask);
  score = ptx::mul(score, p.f.scale);
  if constexpr (S::scored) score = S::score(score, (P)item.sequence, (P)h, (P)q, (P)key, (float)key, p);
  return score != -ptx::infinity();
}

template <class T>
PTX float read_output(T x) {
  if constexpr (sizeof(T) == 4) return x;
  else return ptx::to_float(x);
}

// After the results are stored, for all of the block to see. A warp for each row.
template <class S>
PTX void add_not_finite(const typename S::Params& p, const Item& item, const KeySource<S>& keys, i32 begin, i32 end) {
#pragma unroll 1
  for (int r = warp(); r < rows_of<S>(item); r += S::warps) {
#pragma unroll 1
    for (i32 key = begin; key < end; ++key) {
      const auto* const value = keys.value(key);
      bool finite = true;
#pragma unroll 1
      for (int i = lane(); i < S::dim_v; i += 32) finite = finite && is_finite(value[i]);
      if (ptx::all(finite) || !attends<S>(p, item, keys, r, key)) continue;
#pragma unroll 1
      for (int i = lane(); i < S::dim_v; i += 32) {
        if (is_finite(value[i])) continue;
        const float y = ptx::to_float(value[i]);
        if constexpr (S::split) {
          p.f.partial_o[partial_row<S>(p.f, item, (i32)item.split, r) * S::dim_v + i] += y;
        } else {
          auto& x = output_row<S>(p.f, item, r)[i];
          x = rounded(read_output(x) + y, typename S::Output{});
        }
      }
    }
  }
}

}  // namespace tessera_kernels
