// What leaves a block: O divided by its sums, and LSE; or partial results, for combine.
// Must not know: keys, masks.
#pragma once
#include "loader.cuh"
#include "ptx/memory.cuh"
#include "softmax.cuh"

namespace tessera_kernels {

PTX float sink_of(const ForwardParams& f, i32 head) {
  const i64 i = (i64)head * f.sinks_stride;
  if (f.sinks_dtype == 1) return ptx::to_float(static_cast<const bf16*>(f.sinks)[i]);
  if (f.sinks_dtype == 2) return ptx::to_float(static_cast<const f16*>(f.sinks)[i]);
  return static_cast<const float*>(f.sinks)[i];
}

// How a finished row becomes output. log_sum: of the sum that LSE needs, to the base 2; -inf: the row attends to
// nothing.
struct Finish {
  float factor, sum;  // o * factor / sum
  float lse;          // natural
};
// `reference`: what the sums are relative to, an exponent of 2. A sink joins the denominator once, here.
PTX Finish finish(float reference, float sum, bool with_sink, float sink) {
  const bool nothing = sum == 0.0f;
  if (!with_sink) {
    if (nothing) return {0.0f, 1.0f, -ptx::infinity()};
    return {1.0f, sum, ptx::mul(ptx::add(reference, ptx::log2(sum)), ln_2)};
  }
  if (nothing)
    return sink == sink && sink < ptx::infinity() ? Finish{0.0f, 1.0f, sink} : Finish{0.0f, sink - sink, sink - sink};
  const float z = ptx::mul(sink, log2_e), top = ptx::max(reference, z);
  const float by = ptx::exp2(ptx::add(reference, -top)), more = ptx::exp2(ptx::add(z, -top));
  return {by, ptx::fma(sum, by, more), ptx::mul(ptx::add(top, ptx::log2(ptx::fma(sum, by, more))), ln_2)};
}

// a / b, correctly rounded but for the rarest cases: of exact quotients the exact one. `inverse` is 1 / b, rounded.
PTX float divided(float a, float b, float inverse) {
  const float q = ptx::mul(a, inverse), better = ptx::fma(ptx::fma(-q, b, a), inverse, q);
  return better == better ? better : q;  // infinities and NaN
}

// Where the row of the tile goes.
template <class S>
PTX typename S::Output* output_row(const ForwardParams& f, const Item& item, int r) {
  const i64 token = item.q_begin + item.first_query + r / S::heads, head = item.head + r % S::heads;
  return static_cast<typename S::Output*>(f.o.data) + (S::packed ? 0 : item.sequence * f.o.batch) + token * f.o.token +
         head * f.o.head;
}
template <class S>
PTX void store_lse(const ForwardParams& f, const Item& item, int r, float lse) {
  const i64 token = item.q_begin + item.first_query + r / S::heads, head = item.head + r % S::heads;
  f.lse[(S::packed ? 0 : item.sequence * f.lse_batch) + head * f.lse_head + token * f.lse_token] = lse;
}

// A pair of neighbouring columns, of which `left` are within the dim.
template <bool Wide>
PTX void store_pair(float* to, float a, float b, int left) {
  if (Wide && left >= 2) ptx::store8(to, uint2{ptx::as_bits(a), ptx::as_bits(b)});
  else {
    if (left >= 1) to[0] = a;
    if (left >= 2) to[1] = b;
  }
}
template <bool Wide, class E>
PTX void store_pair(E* to, float a, float b, int left) {
  if (Wide && left >= 2) ptx::store4(to, pack(a, b, E{}));
  else {
    if (left >= 1) to[0] = rounded(a, E{});
    if (left >= 2) to[1] = rounded(b, E{});
  }
}

template <class S>
PTX void scale_outputs(Outputs<S>& o, const Finish (&rows)[Shape<S>::row_groups][2], bool precise) {
#pragma unroll
  for (int m = 0; m < Shape<S>::row_groups; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Finish& row = rows[m][half];
      const float inverse = 1.0f / row.sum, by = ptx::mul(row.factor, inverse);
#pragma unroll
      for (int n = 0; n < Shape<S>::dim_groups; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = o[m][n][half * 2 + e];
          x = precise ? divided(ptx::mul(x, row.factor), row.sum, inverse) : ptx::mul(x, by);
        }
      }
    }
  }
}

// Straight from the registers: a quad writes eight neighbouring columns of a row.
template <class S, bool Wide, class E, class RowOf>
PTX void store_directly(const Outputs<S>& o, int rows, const RowOf& row_of) {
#pragma unroll
  for (int m = 0; m < Shape<S>::row_groups; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = warp_row<S>() + m * 16 + fragment_row(half);
      if (r >= rows) continue;
      E* const to = row_of(m, half, r);
      if (!to) continue;
#pragma unroll
      for (int n = 0; n < Shape<S>::dim_groups; ++n) {
        const int column = n * 8 + fragment_column();
        store_pair<Wide>(to + column, o[m][n][half * 2], o[m][n][half * 2 + 1], S::dim_v - column);
      }
    }
  }
}

// Through the warp's own rows of Q's memory, 16 bytes a thread: whole rows leave together.
template <class S>
PTX void store_through_shared(const Outputs<S>& o, Shared<S>& s, const ForwardParams& f, const Item& item, int rows) {
  using E = typename S::Element;
  using Sh = Shape<S>;
  constexpr int chunks = padded_dim(S::dim_v) / 8, warp_rows = Sh::row_groups * 16;
#pragma unroll
  for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      E* const row = s.q + (warp_row<S>() + m * 16 + fragment_row(half)) * Sh::q_pitch + fragment_column();
#pragma unroll
      for (int n = 0; n < Sh::dim_groups; ++n)
        *reinterpret_cast<u32*>(row + n * 8) = pack(o[m][n][half * 2], o[m][n][half * 2 + 1], E{});
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < warp_rows * chunks; i += 32) {
    const int at = i + lane(), r = warp_row<S>() + at / chunks, c = at % chunks;
    if ((warp_rows * chunks % 32 != 0 && at >= warp_rows * chunks) || r >= rows) continue;
    const E* const from = s.q + r * Sh::q_pitch + c * 8;
    E* const to = output_row<S>(f, item, r) + c * 8;
    if (S::dim_v % 8 == 0 || (c + 1) * 8 <= S::dim_v) {
      if (c * 8 < S::dim_v) ptx::store16(to, *reinterpret_cast<const uint4*>(from));
    } else {
      for (int e = 0; e < S::dim_v % 8; ++e)
        if (c * 8 < S::dim_v) to[e] = from[e];
    }
  }
}

template <class S>
PTX void store_results(Outputs<S>& o, const Softmax<S>& softmax, Shared<S>& s, const ForwardParams& f,
                       const Item& item) {
  using Sh = Shape<S>;
  constexpr bool to_float = sizeof(typename S::Output) == 4;
  const int rows = rows_of<S>(item);
  Finish finished[Sh::row_groups][2];
  float base_2[Sh::row_groups][2];  // LSE of partial results
#pragma unroll
  for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = warp_row<S>() + m * 16 + fragment_row(half);
      const float reference = ptx::mul(softmax.largest[m][half], item.exponent);
      float sum = softmax.sum[m][half];  // of this lane's columns
      sum += ptx::shfl_xor(sum, 1);
      sum += ptx::shfl_xor(sum, 2);
      base_2[m][half] = sum == 0.0f ? -ptx::infinity() : ptx::add(reference, ptx::log2(sum));
      const bool with_sink = S::sinks && !S::split;
      const float sink = with_sink && r < rows ? sink_of(f, item.head + r % S::heads) : 0.0f;
      finished[m][half] = finish(reference, sum, with_sink, sink);
      if (S::split && lane() % 4 == 0 && r < rows)
        f.partial_lse[partial_row<S>(f, item, (i32)item.split, r)] = base_2[m][half];
      if (S::lse && !S::split && lane() % 4 == 0 && r < rows) store_lse<S>(f, item, r, finished[m][half].lse);
    }
  }
  scale_outputs<S>(o, finished, to_float || S::split);
  if constexpr (S::split) {
    store_directly<S, S::dim_v % 2 == 0, float>(o, rows, [&](int m, int half, int r) -> float* {
      const bool nothing = base_2[m][half] == -ptx::infinity();
      return nothing ? nullptr : f.partial_o + partial_row<S>(f, item, (i32)item.split, r) * S::dim_v;
    });
  } else if constexpr (to_float || S::o_copy < 16) {
    constexpr bool wide = to_float ? S::o_copy >= 8 : S::o_copy >= 4;
    store_directly<S, wide, typename S::Output>(o, rows, [&](int, int, int r) { return output_row<S>(f, item, r); });
  } else {
    store_through_shared<S>(o, s, f, item, rows);
  }
}

}  // namespace tessera_kernels
