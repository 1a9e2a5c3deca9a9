// Two partial results over disjoint sets of keys become one: O and LSE of every (batch, token, head). Neighbouring
// lanes of a warp share a row, as many as its dim keeps busy, and each lane takes `width` elements at a time. The
// result may lie where one of the parts does. Must not know: keys, masks, tiles, host types.
#pragma once
#include "merge_params.cuh"
#include "ptx/arithmetic.cuh"
#include "ptx/base.cuh"
#include "ptx/memory.cuh"

namespace tessera_kernels {

// ---- elements: Width of them side by side, whose address is a multiple of their size
PTX void unpack(float* x, u32 word, float) { x[0] = ptx::as_float(word); }
PTX void unpack(float* x, u32 word, bf16) {
  x[0] = ptx::to_float(bf16{(u16)word}), x[1] = ptx::to_float(bf16{(u16)(word >> 16)});
}
PTX void unpack(float* x, u32 word, f16) {
  x[0] = ptx::to_float(f16{(u16)word}), x[1] = ptx::to_float(f16{(u16)(word >> 16)});
}
PTX u32 pack_word(const float* x, float) { return ptx::as_bits(x[0]); }
PTX u32 pack_word(const float* x, bf16) { return ptx::pack_bf16(x[0], x[1]); }
PTX u32 pack_word(const float* x, f16) { return ptx::pack_f16(x[0], x[1]); }
PTX float widened(float x) { return x; }
PTX float widened(bf16 x) { return ptx::to_float(x); }
PTX float widened(f16 x) { return ptx::to_float(x); }
PTX void store_one(float* to, float x) { *to = x; }
PTX void store_one(bf16* to, float x) { *to = ptx::to_bf16(x); }
PTX void store_one(f16* to, float x) { *to = ptx::to_f16(x); }

// How Width elements of type E go: in so many words of 4 bytes, none where they are less than one.
template <int Width, class E>
struct Words {
  static constexpr int each = 4 / (int)sizeof(E), count = Width / each;
};
// Of Width elements the first `left`.
template <int Width, class E>
PTX void load_elements(float (&x)[Width], const E* from, i64 left) {
  constexpr int count = Words<Width, E>::count, each = Words<Width, E>::each;
  if (count == 0 || left < Width) {
#pragma unroll
    for (int e = 0; e < Width; ++e)
      if (e < left) x[e] = widened(from[e]);
  } else if constexpr (count == 1) {
    unpack(x, ptx::load4(from), E{});
  } else if constexpr (count == 2) {
    const uint2 w = ptx::load8(from);
    unpack(x, w.x, E{}), unpack(x + each, w.y, E{});
  } else if constexpr (count >= 4) {
#pragma unroll
    for (int i = 0; i < Width; i += 4 * each) {
      const uint4 w = ptx::load16(from + i);
      unpack(x + i, w.x, E{}), unpack(x + i + each, w.y, E{});
      unpack(x + i + 2 * each, w.z, E{}), unpack(x + i + 3 * each, w.w, E{});
    }
  }
}
template <int Width, class E>
PTX void store_elements(E* to, const float (&x)[Width], i64 left) {
  constexpr int count = Words<Width, E>::count, each = Words<Width, E>::each;
  if (count == 0 || left < Width) {
#pragma unroll
    for (int e = 0; e < Width; ++e)
      if (e < left) store_one(to + e, x[e]);
  } else if constexpr (count == 1) {
    ptx::store4(to, pack_word(x, E{}));
  } else if constexpr (count == 2) {
    ptx::store8(to, uint2{pack_word(x, E{}), pack_word(x + each, E{})});
  } else if constexpr (count >= 4) {
#pragma unroll
    for (int i = 0; i < Width; i += 4 * each)
      ptx::store16(to + i, uint4{pack_word(x + i, E{}), pack_word(x + i + each, E{}), pack_word(x + i + 2 * each, E{}),
                                 pack_word(x + i + 3 * each, E{})});
  }
}

// ---- weights
// e^(low - top), low <= top, to about 2^-22 of it: with what the difference and the product lost by rounding. Below
// 2^-126: 0.
PTX float exp_of_difference(float low, float top) {
  constexpr float log2_e_high = 1.44269502f, log2_e_low = 1.92596299e-8f, ln_2 = 0.693147181f;
  const float x = ptx::add(low, -top), back = ptx::add(x, -low);
  const float lost = ptx::add(ptx::add(low, -ptx::add(x, -back)), ptx::add(-top, -back));
  const float z = ptx::mul(x, log2_e_high);
  if (z < -126.0f) return 0.0f;
  const float rest = ptx::fma(x, log2_e_high, -z) + x * log2_e_low + lost * log2_e_high, y = ptx::exp2(z);
  return ptx::fma(ptx::mul(y, ln_2), rest, y);
}

// What of a row's parts goes into the result. A part whose LSE is -inf is not there, whatever its O holds; alone, the
// other one goes as it is. NaN is no -inf.
struct MergeWeights {
  bool has_a, has_b;
  float a, b;  // if both are there
  float lse;
};
PTX MergeWeights merge_weights(float lse_a, float lse_b) {
  constexpr float ln_2 = 0.693147181f;
  const bool has_a = lse_a != -ptx::infinity(), has_b = lse_b != -ptx::infinity();
  if (!has_a || !has_b) return {has_a, has_b, 1.0f, 1.0f, has_a ? lse_a : lse_b};
  const bool a_first = lse_a >= lse_b;
  const float top = a_first ? lse_a : lse_b, low = a_first ? lse_b : lse_a;
  const float less = exp_of_difference(low, top) + (top - top);  // NaN if the larger one is infinite
  const float sum = 1.0f + less, first = 1.0f / sum, second = less / sum;
  return {true, true, a_first ? first : second, a_first ? second : first, ptx::fma(ptx::log2(sum), ln_2, top)};
}

// ---- rows
struct MergeRow {
  i64 batch, token, head;
};
template <class Integer>
PTX MergeRow row_by(const MergeParams& p, i64 row) {
  const Integer r = (Integer)row, heads = (Integer)p.heads, tokens = (Integer)p.tokens, line = r / heads;
  return {(i64)(line / tokens), (i64)(line % tokens), (i64)(r % heads)};
}
// Divisions of 64 bits take five times the instructions.
PTX MergeRow merge_row(const MergeParams& p, i64 row) {
  return p.rows <= 0x7fffffff ? row_by<u32>(p, row) : row_by<i64>(p, row);
}
template <class E>
PTX E* merge_o(const MergePart& part, const MergeRow& at) {
  return static_cast<E*>(part.o.data) + at.batch * part.o.batch + at.token * part.o.token + at.head * part.o.head;
}
PTX float* merge_lse(const MergePart& part, const MergeRow& at) {
  return part.lse + at.batch * part.lse_batch + at.head * part.lse_head + at.token * part.lse_token;
}

template <class S>
PTX void merge(const MergeParams& p) {
  const i64 row = ((i64)blockIdx.x * merge_threads + threadIdx.x) >> p.lanes_log2;
  const int lanes = 1 << p.lanes_log2, lane = (int)threadIdx.x & (lanes - 1);
  const bool there = row < p.rows;
  const MergeRow at = merge_row(p, there ? row : 0);
  // A row that is not there reads nothing: LSE may be written meanwhile where it is read.
  const MergeWeights w = there ? merge_weights(*merge_lse(p.a, at), *merge_lse(p.b, at)) : MergeWeights{};
  __syncwarp();  // every lane of the row has its LSE before the first one writes
  if (!there) return;
  if (lane == 0 && p.out.lse) *merge_lse(p.out, at) = w.lse;
  const typename S::A* const a = merge_o<typename S::A>(p.a, at);
  const typename S::B* const b = merge_o<typename S::B>(p.b, at);
  typename S::Output* const out = merge_o<typename S::Output>(p.out, at);
  for (i64 column = lane * S::width; column < p.dim; column += lanes * S::width) {
    float x[S::width] = {}, y[S::width] = {};
    if (w.has_a) load_elements<S::width>(x, a + column, p.dim - column);
    if (w.has_b) load_elements<S::width>(y, b + column, p.dim - column);
#pragma unroll
    for (int e = 0; e < S::width; ++e)
      x[e] = !w.has_a ? y[e] : !w.has_b ? x[e] : ptx::fma(w.b, y[e], ptx::mul(w.a, x[e]));
    store_elements<S::width>(out + column, x, p.dim - column);
  }
}

}  // namespace tessera_kernels
