// Merges the partial results of the splits of the keys, in the order of the keys, and lets the sinks join. A warp for
// each row at a time.
// Must not know: keys, masks, host types.
#pragma once
#include "epilogue.cuh"
#include "layout.cuh"

namespace tessera_kernels {

template <class S>
PTX void combine(const typename S::Params& p) {
  const ForwardParams& f = p.f;
  const Item item = find_item<S>(f, blockIdx.x, 0);
  if (!item.any) return;
  const int rows = rows_of<S>(item);
  for (int r = warp(); r < rows; r += combine_threads / 32) {
    float top = -ptx::infinity(), sum = 0.0f;
    for (i32 split = 0; split < f.splits; ++split)
      top = ptx::max(top, f.partial_lse[partial_row<S>(f, item, split, r)]);
    for (i32 split = 0; split < f.splits; ++split) {
      const float lse = f.partial_lse[partial_row<S>(f, item, split, r)];
      if (lse != -ptx::infinity()) sum += ptx::exp2(ptx::add(lse, -top));
    }
    const float sink = S::sinks ? sink_of(f, item.head + r % S::heads) : 0.0f;
    const Finish row = finish(top, sum, S::sinks, sink);
    const float inverse = 1.0f / row.sum;
    typename S::Output* const to = output_row<S>(f, item, r);
    for (int column = lane(); column < S::dim_v; column += 32) {
      float o = 0.0f;
      for (i32 split = 0; split < f.splits; ++split) {
        const i64 partial = partial_row<S>(f, item, split, r);
        const float lse = f.partial_lse[partial];
        if (lse != -ptx::infinity())
          o = ptx::fma(ptx::exp2(ptx::add(lse, -top)), f.partial_o[partial * S::dim_v + column], o);
      }
      to[column] = rounded(divided(ptx::mul(o, row.factor), row.sum, inverse), typename S::Output{});
    }
    if (S::lse && lane() == 0) store_lse<S>(f, item, r, row.lse);
  }
}

}  // namespace tessera_kernels
