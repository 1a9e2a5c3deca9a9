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

// A row's sum as f 2^e with f in [1, 4): what its exponents are relative to may be far from its largest score, and the
// logarithm of their sum would lose to its own size what it adds.
struct Normal {
  float reference, sum;  // an exponent of 2, e added; f
  float factor;          // 2^-e
};
PTX Normal normal(float reference, float sum) {
  i32 e = (i32)(ptx::as_bits(sum) >> 23) - 127;
  e = e < 126 ? e : 126;
  const float factor = ptx::as_float((u32)(127 - e) << 23);
  return {ptx::add(reference, (float)e), ptx::mul(sum, factor), factor};
}

PTX float log2_of(const Normal& x) { return ptx::add(x.reference, ptx::log2(x.sum)); }

// How a finished row becomes output.
struct Finish {
  float factor, sum;  // o * factor / sum
  float lse;          // natural; -inf: the row attends to nothing
};
// `reference`: what the sums are relative to, an exponent of 2. A sink joins the denominator once, here.
PTX Finish finish(float reference, float sum, bool with_sink, float sink) {
  const bool nothing = sum == 0.0f;
  const Normal of = normal(reference, sum);
  if (!with_sink) {
    if (nothing) return {0.0f, 1.0f, -ptx::infinity()};
    return {1.0f, sum, ptx::mul(log2_of(of), ln_2)};
  }
  if (nothing)
    return sink == sink && sink < ptx::infinity() ? Finish{0.0f, 1.0f, sink} : Finish{0.0f, sink - sink, sink - sink};
  const float z = ptx::mul(sink, log2_e), top = ptx::max(of.reference, z);
  const float by = ptx::exp2(ptx::add(of.reference, -top)), more = ptx::exp2(ptx::add(z, -top));
  const float all = ptx::fma(of.sum, by, more);
  return {ptx::mul(of.factor, by), all, ptx::mul(ptx::add(top, ptx::log2(all)), ln_2)};
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

template <class S, int Groups>
PTX void scale_row(float (&o)[Groups][4], int half, const Finish& row, bool precise) {
  const float inverse = 1.0f / row.sum, by = ptx::mul(row.factor, inverse);
#pragma unroll
  for (int n = 0; n < Groups; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float& x = o[n][half * 2 + e];
      x = precise ? divided(ptx::mul(x, row.factor), row.sum, inverse) : ptx::mul(x, by);
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
        const int column = first_column<S>() + column_of<S>(n) + fragment_column();
        store_pair<Wide>(to + column, o[m][n][half * 2], o[m][n][half * 2 + 1], S::dim_v - column);
      }
    }
  }
}

// Eight columns of a row, those that are within the dim.
template <class S, class E>
PTX void store_chunk(E* row, const uint4& from, int column) {
  if (S::dim_v % 8 == 0 || column + 8 <= S::dim_v) {
    if (column < S::dim_v) ptx::store16(row + column, from);
  } else {
    const u32 pairs[4] = {from.x, from.y, from.z, from.w};
    for (int e = 0; e < S::dim_v % 8; ++e)
      if (column < S::dim_v) row[column + e] = E{(u16)(pairs[e / 2] >> e % 2 * 16)};
  }
}

// Through the warp's own rows of Q's memory, 16 bytes a thread: whole rows leave together.
template <class S>
PTX void store_through_shared(const Outputs<S>& o, Shared<S>& s, const ForwardParams& f, const Item& item, int rows) {
  using E = typename S::Element;
  using Sh = Shape<S>;
  constexpr int chunks = Sh::dim_groups, warp_rows = Sh::row_groups * 16;
  // Lanes side by side along a row, the same ones for each row.
  constexpr int lanes = (chunks & -chunks) < 32 ? (chunks & -chunks) : 32, rows_at_once = 32 / lanes;
#pragma unroll
  for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row =
          tile_index(warp_row<S>() + m * 16 + fragment_row(half), first_column<S>() + fragment_column(), Sh::q_pitch);
#pragma unroll
      for (int n = 0; n < Sh::dim_groups; ++n)
        *reinterpret_cast<u32*>(s.q + columns_on(row, column_of<S>(n))) =
            pack(o[m][n][half * 2], o[m][n][half * 2 + 1], E{});
    }
  }
  __syncwarp();
  const int first = warp_row<S>() + lane() / lanes, chunk = lane() % lanes;
  E* to = output_row<S>(f, item, first);
  // Several are read before the first one leaves: their latency is that of one.
  constexpr int pieces = chunks / lanes, passes = warp_rows / rows_at_once;
  constexpr int together = pieces * passes % 8 == 0 && pieces <= 8 && 8 % pieces == 0 ? 8 / pieces : 1;
#pragma unroll
  for (int pass = 0; pass < passes; pass += together) {
    uint4 read[together][pieces];
#pragma unroll
    for (int i = 0; i < together; ++i) {
#pragma unroll
      for (int c = 0; c < pieces; ++c)
        read[i][c] = *reinterpret_cast<const uint4*>(
            s.q + tile_index(first + (pass + i) * rows_at_once, first_column<S>() + column_of<S>(c * lanes + chunk),
                             Sh::q_pitch));
    }
#pragma unroll
    for (int i = 0; i < together; ++i) {
      const int r = first + (pass + i) * rows_at_once;
      if (S::heads > 1) to = output_row<S>(f, item, r);
      if (r < rows) {
#pragma unroll
        for (int c = 0; c < pieces; ++c)
          store_chunk<S>(to, read[i][c], first_column<S>() + column_of<S>(c * lanes + chunk));
      }
      if (S::heads == 1) to += rows_at_once * f.o.token;
    }
  }
}

template <class S>
PTX void store_results(Outputs<S>& o, Softmax<S>& softmax, Shared<S>& s, const ForwardParams& f, const Item& item) {
  using Sh = Shape<S>;
  constexpr bool to_float = sizeof(typename S::Output) == 4, with_sink = S::sinks && !S::split;
  const int rows = rows_of<S>(item);
  const auto sums = softmax.sums();
  u32 nothing = 0;  // a bit for each row of the lane that attends to nothing
#pragma unroll
  for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = warp_row<S>() + m * 16 + fragment_row(half);
      const float reference = ptx::mul(softmax.reference(m, half), item.exponent);
      const float exact = sums.exact[m][half], sum = sums.multiplied[m][half];
      const bool writes = lane() % 4 == 0 && part<S>() == 0 && r < rows;
      if (sum == 0.0f) nothing |= 1u << (m * 2 + half);
      const float sink = with_sink && r < rows ? sink_of(f, item.head + r % S::heads) : 0.0f;
      if (S::split && writes)
        f.partial_lse[partial_row<S>(f, item, (i32)item.split, r)] =
            sum == 0.0f ? -ptx::infinity() : log2_of(normal(reference, sum));
      if (S::lse && !S::split && writes) store_lse<S>(f, item, r, finish(reference, exact, with_sink, sink).lse);
      scale_row<S>(o[m], half, finish(reference, sum, with_sink, sink), to_float || S::split);
    }
  }
  if constexpr (S::split) {
    store_directly<S, S::dim_v % 2 == 0, float>(o, rows, [&](int m, int half, int r) -> float* {
      if (nothing >> (m * 2 + half) & 1) return nullptr;
      return f.partial_o + partial_row<S>(f, item, (i32)item.split, r) * S::dim_v;
    });
  } else if constexpr (to_float || S::o_copy < 16) {
    constexpr bool wide = to_float ? S::o_copy >= 8 : S::o_copy >= 4;
    store_directly<S, wide, typename S::Output>(o, rows, [&](int, int, int r) { return output_row<S>(f, item, r); });
  } else {
    store_through_shared<S>(o, s, f, item, rows);
  }
}

}  // namespace tessera_kernels
