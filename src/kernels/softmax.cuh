// The running softmax of a warp's rows, in powers of two. Each row decides for itself, so that its bits do not depend
// on what stands beside it.
//
// A probability is 2^(c x - B) with x the score, c the factor that leads to powers of two, and B = c m rounded, m the
// largest score so far: one FMA and one ex2 an element. That B is rounded makes all probabilities of a row wrong by one
// and the same factor, which their sum, in fp32 and before they are rounded to the input's type, has as well. The
// largest one loses it when it is rounded (to 1), so the factor must be within fp32's own error: where |B| is not
// small, rows subtract m first. Must not know: masks, where tiles come from.
#pragma once
#include "tile.cuh"

namespace tessera_kernels {

constexpr float log2_e = 1.44269504f, ln_2 = 0.693147181f;
// From here on |B| counts as huge. Below, B is rounded by at most 2^-20: a factor within 6.7e-7 of 1, as the accuracy
// rule allows of equal scores (2^-20).
constexpr float huge_exponent = 32.0f;

template <class S>
struct Softmax {
  using Sh = Shape<S>;
  float largest[Sh::row_groups][2];  // score of each row; -inf: none attended to yet
  float sum[Sh::row_groups][2];      // of the probabilities, of this lane's columns
  // Of the tile in hand: what the sums so far are multiplied with, and minus B.
  float shrink[Sh::row_groups][2], minus_b[Sh::row_groups][2];

  DEVICE void clear() {
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) {
      largest[m][0] = largest[m][1] = -ptx::infinity();
      sum[m][0] = sum[m][1] = 0.0f;
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

  DEVICE void shrink_outputs(Outputs<S>& o) {
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float by = shrink[m][half];
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
        sum[m][half] += (y[0] + y[1]) + (y[2] + y[3]);
        p[m][half] = pack(y[0], y[1], typename S::Element{});
        p[m][half + 2] = pack(y[2], y[3], typename S::Element{});
      }
    }
  }
  // One tile: o = o * shrink + P V, in two parts. The first so many steps of 16 keys are exponentiated before the
  // products begin, the others while the tensor core is busy with products: as many as registers allow.
  static constexpr int early = S::early < Sh::key_steps ? S::early : Sh::key_steps;
  using Probabilities = u32[Sh::key_steps][Sh::row_groups][4];
  DEVICE void exponentiate_first(Probabilities& p, const Scores<S>& x, float c) {
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) sum[m][half] *= shrink[m][half];
    }
#pragma unroll
    for (int step = 0; step < early; ++step) probabilities(p[step], x, step, c);
  }
  DEVICE void add_values(Outputs<S>& o, Probabilities& p, const Scores<S>& x, const typename S::Element* v, float c) {
    shrink_outputs(o);
#pragma unroll
    for (int step = 0; step < Sh::key_steps; ++step) {
      if (step + early < Sh::key_steps) probabilities(p[step + early], x, step + early, c);
      multiply_values<S>(o, p[step], v, step);
    }
  }
};

}  // namespace tessera_kernels
