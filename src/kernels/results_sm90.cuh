// What leaves a consumer warpgroup of the sm_90 kernel: O divided by its sums, through shared memory or straight from
// the registers, and LSE. Must not know: keys, masks, products.
#pragma once
#include "epilogue.cuh"
#include "ptx/barriers.cuh"
#include "ptx/matrix.cuh"
#include "selecting.cuh"
#include "shared_sm90.cuh"
#include "softmax_sm90.cuh"

namespace tessera_kernels {

// Barriers of the block: whose turn it is at the tensor core, and the votes of a warpgroup; plus its number.
constexpr u32 turn_barrier = 1, vote_barrier = 1 + most_consumers;

// In the third pass: whether the row that is there is finite. By the four lanes that write it.
template <class S, class T>
PTX bool stays(const ItemPlace& place, const T* row) {
  if (place.pass < 2) return false;
  u32 not_finite = 0;
#pragma unroll 1
  for (int i = fragment_column(); i < S::dim_v; i += i & 1 ? 7 : 1)
    not_finite |= !(ptx::mul(read_output(row[i]), 0.0f) == 0.0f);
  const u32 quad = 0xfu << (lane() & ~3);
  not_finite |= ptx::shfl_xor(not_finite, 1, quad);
  not_finite |= ptx::shfl_xor(not_finite, 2, quad);
  return !not_finite;
}

// Whether a row of this lane's that is there has something that is not finite: 0 * x is NaN for those alone.
template <class S, int Count>
PTX bool any_not_finite(const float (&o)[Count], int rows) {
  bool found = false;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float zero = 0.0f;
#pragma unroll
    for (int e = 2 * half; e < Count; e += 4) zero = ptx::fma(o[e], 0.0f, ptx::fma(o[e + 1], 0.0f, zero));
    found = found || (zero != zero && warp_row<S>() + fragment_row(half) < rows);
  }
  return found;
}
template <int Count>
PTX void scale_rows(float (&o)[Count], const Finish (&rows)[2], bool precise) {
  const float inverse[2] = {1.0f / rows[0].sum, 1.0f / rows[1].sum};
  const float by[2] = {ptx::mul(rows[0].factor, inverse[0]), ptx::mul(rows[1].factor, inverse[1])};
#pragma unroll
  for (int e = 0; e < Count; ++e) {
    const int half = e >> 1 & 1;
    o[e] =
        precise ? divided(ptx::mul(o[e], rows[half].factor), rows[half].sum, inverse[half]) : ptx::mul(o[e], by[half]);
  }
}

// 16 x 16 blocks of the warp's rows, swizzled as tensor copies expect them.
template <class S, int Count>
PTX void store_to_shared(SharedSm90<S>& s, int w, int buffer, const float (&o)[Count]) {
  using E = typename S::Element;
  const int row = warp() % 4 * 16 + lane() % 16;
#pragma unroll
  for (int j = 0; j < padded_dim(S::dim_v) / 16; ++j) {
    const float* const y = o + 8 * j;
    ptx::stmatrix_x4(&s.q[buffer][w][j / 4][row][swizzled(row, j % 4 * 2 + lane() / 16)], pack(y[0], y[1], E{}),
                     pack(y[2], y[3], E{}), pack(y[4], y[5], E{}), pack(y[6], y[7], E{}));
  }
}

// The results of a finished item, whose queries have their place in `buffer`: O takes it, where it leaves by a copy.
template <class S, int Count>
PTX void close_item(const ForwardParams& f, SharedSm90<S>& s, const ItemPlace& place, int w, int buffer,
                    const SoftmaxSm90<S>& softmax, float (&o)[Count]) {
  const Item& it = place.item;
  [[maybe_unused]] auto& table = reinterpret_cast<Outputs<S>&>(o);
  const int rows = rows_of<S>(it);
  float base_2[2];
  Finish finished[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = warp_row<S>() + fragment_row(half);
    const float reference = ptx::mul(softmax.reference[half], it.exponent);
    float sum = softmax.sum[half];
    sum += ptx::shfl_xor(sum, 1);
    sum += ptx::shfl_xor(sum, 2);
    base_2[half] = sum == 0.0f ? -ptx::infinity() : ptx::add(reference, ptx::log2(sum));
    const bool with_sink = S::sinks && !S::split, writes = place.pass < 2 && lane() % 4 == 0 && r < rows;
    const float sink = with_sink && r < rows ? sink_of(f, it.head + r % S::heads) : 0.0f;
    finished[half] = finish(reference, sum, with_sink, sink);
    if (S::split && writes) f.partial_lse[partial_row<S>(f, it, (i32)it.split, r)] = base_2[half];
    if (S::lse && !S::split && writes) store_lse<S>(f, it, r, finished[half].lse);
  }
  if (place.pass < 2 && ptx::any(any_not_finite<S>(o, rows)) && lane() == 0) {
    i32 &first = s.c.redo_first[place.pass][warp()], &last = s.c.redo_last[place.pass][warp()];
    if (place.ordinal < first) first = place.ordinal;
    if (place.ordinal > last) last = place.ordinal;
  }
  scale_rows(o, finished, sizeof(typename S::Output) == 4 || S::split);
  if constexpr (leaves_through_shared<S>()) {
    ptx::named_barrier_sync(vote_barrier + w, 128);  // all four warps are done with these queries
    store_to_shared<S>(s, w, buffer, o);
    ptx::fence_async();
  } else if constexpr (S::split) {
    store_directly<S, S::dim_v % 2 == 0, float>(table, rows, [&](int, int half, int r) -> float* {
      const bool nothing = base_2[half] == -ptx::infinity();
      float* const to = f.partial_o + partial_row<S>(f, it, (i32)it.split, r) * S::dim_v;
      return nothing || stays<S>(place, to) ? nullptr : to;
    });
  } else {
    constexpr bool wide = sizeof(typename S::Output) == 4 ? S::o_copy >= 8 : S::o_copy >= 4;
    store_directly<S, wide, typename S::Output>(table, rows, [&](int, int, int r) {
      typename S::Output* const to = output_row<S>(f, it, r);
      return stays<S>(place, to) ? nullptr : to;
    });
  }
  ptx::mbarrier_arrive(s.c.o_ready[buffer][w]);
}

}  // namespace tessera_kernels
