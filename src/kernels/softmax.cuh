// The running softmax of a warp's rows, in powers of two. Each row decides for itself, so that its bits do not depend
// on what stands beside it.
//
// A probability is 2^(c x - B) with x the score, c the factor that leads to powers of two, and B = c m rounded, m the
// largest score so far: one FMA and one ex2 an element. That B is rounded makes each probability wrong by one and the
// same factor, which the sum has as well: O is divided by the sum of the very probabilities that were multiplied with
// the values, rounded to the input's type. The tensor core makes that sum, as a product with a column of ones; so equal
// scores give the exact mean. LSE has a sum of its own, in fp32, of the probabilities before they are rounded. Where
// scores are huge the rounding of B is no small matter: such rows subtract m first. Must not know: masks, where tiles
// come from.
#pragma once
#include "tile.cuh"

namespace tessera_kernels {

constexpr float log2_e = 1.44269504f, ln_2 = 0.693147181f;
// From here on |B| is huge: B is rounded by up to 2^-13 below, and probabilities of the largest score to 1 in any type.
constexpr float huge_exponent = 4096.0f;

template <class S>
struct Softmax {
  using Sh = Shape<S>;
  static constexpr bool exact_sums = S::lse || S::split;
  float largest[Sh::row_groups][2];  // score of each row; -inf: none attended to yet
  float sum[Sh::row_groups][4];      // of the rounded probabilities: [0] and [2] are the rows', the others copies
  float exact[Sh::row_groups][2];    // of the unrounded ones, of this lane's columns
  // Of the tile in hand: what the sums so far are multiplied with, and minus B.
  float shrink[Sh::row_groups][2], minus_b[Sh::row_groups][2];

  DEVICE void clear() {
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) {
      largest[m][0] = largest[m][1] = -ptx::infinity();
      exact[m][0] = exact[m][1] = 0.0f;
      sum[m][0] = sum[m][1] = sum[m][2] = sum[m][3] = 0.0f;
    }
  }

  // Takes a tile's scores up; in rows of huge ones, the largest is subtracted from them.
  DEVICE void raise(Scores<S>& x, float c) {
    float before[Sh::row_groups][2];
    bool huge = false;
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float top = largest[m][half];
        before[m][half] = top;
#pragma unroll
        for (int n = 0; n < Sh::key_groups; ++n)
          top = ptx::max(top, ptx::max(x[m][n][half * 2], x[m][n][half * 2 + 1]));
        top = ptx::max(top, ptx::shfl_xor(top, 1));
        top = ptx::max(top, ptx::shfl_xor(top, 2));
        const float b_before = ptx::mul(before[m][half], c), b = top == -ptx::infinity() ? 0.0f : ptx::mul(top, c);
        huge = huge || is_huge(b) || is_huge(b_before);
        largest[m][half] = top, minus_b[m][half] = -b;
        shrink[m][half] = ptx::exp2(ptx::add(b_before, -b));  // of a row without keys so far: 2^-inf
      }
    }
    if (!huge) return;
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float top = largest[m][half], old = before[m][half], b = -minus_b[m][half];
        const bool now = is_huge(b), then = is_huge(ptx::mul(old, c));
        if (old != -ptx::infinity()) {
          const float by = now && then ? ptx::mul(ptx::add(old, -top), c)
                           : now       ? ptx::fma(-top, c, ptx::mul(old, c))
                           : then      ? ptx::fma(old, c, -b)
                                       : ptx::add(ptx::mul(old, c), -b);
          shrink[m][half] = ptx::exp2(by);
        }
        const float less = now ? top : 0.0f;
        if (now) minus_b[m][half] = 0.0f;
#pragma unroll
        for (int n = 0; n < Sh::key_groups; ++n) {
          x[m][n][half * 2] = ptx::add(x[m][n][half * 2], -less);
          x[m][n][half * 2 + 1] = ptx::add(x[m][n][half * 2 + 1], -less);
        }
      }
    }
  }
  static DEVICE bool is_huge(float b) { return (b < 0 ? -b : b) >= huge_exponent && b != -ptx::infinity(); }

  DEVICE void shrink_sums(Outputs<S>& o) {
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float by = shrink[m][half];
        exact[m][half] *= by;
        sum[m][half * 2] *= by, sum[m][half * 2 + 1] *= by;
#pragma unroll
        for (int n = 0; n < Sh::dim_groups; ++n) o[m][n][half * 2] *= by, o[m][n][half * 2 + 1] *= by;
      }
    }
  }

  // The probabilities of 16 keys as the matrix instruction takes them.
  DEVICE void probabilities(u32 (&p)[Sh::row_groups][4], const Scores<S>& x, int step, float c) {
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i % 2;
        const float(&pair)[4] = x[m][2 * step + i / 2];
        const float lo = ptx::exp2(ptx::fma(pair[half * 2], c, minus_b[m][half]));
        const float hi = ptx::exp2(ptx::fma(pair[half * 2 + 1], c, minus_b[m][half]));
        if constexpr (exact_sums) exact[m][half] += lo, exact[m][half] += hi;
        p[m][i] = pack(lo, hi, typename S::Element{});
      }
    }
  }
  DEVICE void add_to_sums(const u32 (&p)[Sh::row_groups][4]) {
    constexpr u32 two = ones(typename S::Element{});
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) multiply(sum[m], p[m], two, two, typename S::Element{});
  }

  // One tile: o = o * shrink + P V. The exponentials of the next 16 keys stand before the products of these: the warp
  // calculates them while its tensor core is busy.
  DEVICE void add_values(Outputs<S>& o, const Scores<S>& x, const typename S::Element* v, float c) {
    u32 p[2][Sh::row_groups][4];
    probabilities_first(p, x, c, o);
#pragma unroll
    for (int step = 0; step < Sh::key_steps; ++step) {
      if (step + 1 < Sh::key_steps) probabilities(p[(step + 1) % 2], x, step + 1, c);
      multiply_values<S>(o, p[step % 2], v, step);
      add_to_sums(p[step % 2]);
    }
  }
  DEVICE void probabilities_first(u32 (&p)[2][Sh::row_groups][4], const Scores<S>& x, float c, Outputs<S>& o) {
    shrink_sums(o);
    probabilities(p[0], x, 0, c);
  }
};

}  // namespace tessera_kernels
