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
  // Of the rounded probabilities, as the matrix instruction makes them: [0] and [2] are the rows', the others copies.
  // (A second group of rows in the place of the copies would save registers, and give its NaN to the first.)
  float sums[Sh::row_groups][4];
  float exact[Sh::row_groups][2];  // of the unrounded ones, of this lane's columns
  // Of the tile in hand: what the sums so far are multiplied with, and minus B.
  float shrink[Sh::row_groups][2], minus_b[Sh::row_groups][2];

  DEVICE void clear() {
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) {
      largest[m][0] = largest[m][1] = -ptx::infinity();
      exact[m][0] = exact[m][1] = 0.0f;
      sums[m][0] = sums[m][1] = sums[m][2] = sums[m][3] = 0.0f;
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
        sums[m][half * 2] *= by, sums[m][half * 2 + 1] *= by;
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
      for (int half = 0; half < 2; ++half) {
        float y[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          y[i] = ptx::exp2(ptx::fma(x[m][2 * step + i / 2][half * 2 + i % 2], c, minus_b[m][half]));
        if constexpr (exact_sums) exact[m][half] += (y[0] + y[1]) + (y[2] + y[3]);
        p[m][half] = pack(y[0], y[1], typename S::Element{});
        p[m][half + 2] = pack(y[2], y[3], typename S::Element{});
      }
    }
  }
  DEVICE float sum(int m, int half) const { return sums[m][half * 2]; }
  DEVICE void add_to_sums(const u32 (&p)[Sh::row_groups][4]) {
    constexpr u32 two = ones(typename S::Element{});
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) multiply(sums[m], p[m], two, two, typename S::Element{});
  }

  // One tile: o = o * shrink + P V, in two parts. The first so many steps of 16 keys are exponentiated before the
  // products begin, the others while the tensor core is busy with products: as many as registers allow.
  static constexpr int early = S::early < Sh::key_steps ? S::early : Sh::key_steps;
  using Probabilities = u32[Sh::key_steps][Sh::row_groups][4];
  DEVICE void exponentiate_first(Probabilities& p, const Scores<S>& x, float c) {
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) exact[m][half] *= shrink[m][half];
    }
#pragma unroll
    for (int step = 0; step < early; ++step) probabilities(p[step], x, step, c);
  }
  DEVICE void add_values(Outputs<S>& o, Probabilities& p, const Scores<S>& x, const typename S::Element* v, float c) {
    shrink_sums(o);
#pragma unroll
    for (int step = 0; step < Sh::key_steps; ++step) {
      if (step + early < Sh::key_steps) probabilities(p[step + early], x, step + early, c);
      multiply_values<S>(o, p[step], v, step);
      add_to_sums(p[step]);
    }
  }
};

}  // namespace tessera_kernels
