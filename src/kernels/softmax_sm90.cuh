// The softmax of a consumer warpgroup's rows, in powers of two, without a maximum in its usual course.
//
// Softmax is exact for any reference that neither overflows nor underflows. A row keeps the one that it has, the
// largest score of the tile where its first key was, while its probabilities in a tile, a lane's share of them, sum up
// to no more than `bound`; these sums are needed anyway. Else the largest score becomes the reference, and what was
// added up so far is rescaled: the tile is done again, with care. Rows decide for themselves, and both ways do the same
// to a row, bit for bit: what stands beside it does not reach it, nor whether a tile had to be masked. Why not further:
// a probability that dominates its row is then no 1, and loses up to half a unit when it is rounded to the input's
// type. Where all else of the row lies far below, that is more than the accuracy rule allows. Outputs in fp32 would
// show it always: there the reference is the running maximum. Must not know: products, masks, where tiles come from.
#pragma once
#include "ptx/barriers.cuh"
#include "softmax.cuh"

namespace tessera_kernels {

template <class S>
struct SoftmaxSm90 {
  static constexpr int count = S::k_tile / 2;  // scores of a thread: of two rows, r and r + 8
  static constexpr bool exact = sizeof(typename S::Output) == 4;
  static constexpr float bound = 256.0f;
  // Exponents of references from here on: the reference is subtracted first (softmax.cuh). In 16 bits, 2^-16 more or
  // less in the largest probability does not show.
  static constexpr float huge = exact ? 32.0f : 256.0f;

  float reference[2];  // a score; -inf: the row has attended to nothing yet
  float sum[2];        // of this lane's columns
  float limit;         // of sums that show that all is well; below 0: nothing does
  bool always;         // the reference is the running maximum

  DEVICE void clear(bool maximum) {
    always = exact || maximum;
    reference[0] = reference[1] = -ptx::infinity();
    sum[0] = sum[1] = 0.0f;
    limit = always ? -1.0f : bound;
  }
  static DEVICE bool is_huge(float b) { return (b < 0 ? -b : b) >= huge && b != -ptx::infinity(); }

  // Scores to probabilities, in the usual course. False, in all four warps alike: to be done again from the scores.
  // A row without a reference fails with its first key, and NaN always does.
  DEVICE bool exponentiate(float (&x)[count], float c, u32 vote) {
    const float minus_b[2] = {-ptx::mul(reference[0], c), -ptx::mul(reference[1], c)};
    float more[2];
    exponentials<true>(x, c, minus_b, more);
    const bool good = !ptx::any_thread(!(more[0] <= limit && more[1] <= limit), vote, 128);
    sum[0] += good ? more[0] : 0.0f;
    sum[1] += good ? more[1] : 0.0f;
    return good;
  }

  // The same with care. shrink: what O has to be multiplied with, where it says so.
  DEVICE bool exponentiate_carefully(float (&x)[count], float c, float (&shrink)[2]) {
    float less[2], minus_b[2], more[2];
    bool fails[2], any_huge = false;
    const bool begun = ptx::any(reference[0] != -ptx::infinity() || reference[1] != -ptx::infinity());
    fails[0] = fails[1] = true;
    if (begun && !always) find_failing(x, c, fails);
    limit = always ? -1.0f : bound;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = reference[half];
#pragma unroll
      for (int e = 0; e < count; e += 4) top = ptx::max(top, ptx::max(x[e + 2 * half], x[e + 2 * half + 1]));
      top = ptx::max(top, ptx::shfl_xor(top, 1));
      top = ptx::max(top, ptx::shfl_xor(top, 2));
      const float old = reference[half], b_old = ptx::mul(old, c);
      const bool none = old == -ptx::infinity(), raised = none || fails[half];
      const float now = raised ? top : old, b = now == -ptx::infinity() ? 0.0f : ptx::mul(now, c);
      const bool huge_now = is_huge(b), then = is_huge(b_old);
      const float by = none               ? -ptx::infinity()
                       : !raised          ? 0.0f
                       : huge_now && then ? ptx::mul(ptx::add(old, -now), c)
                       : huge_now         ? ptx::fma(-now, c, b_old)
                       : then             ? ptx::fma(old, c, -b)
                                          : ptx::add(b_old, -b);
      shrink[half] = ptx::exp2(by);
      reference[half] = now;
      less[half] = huge_now ? now : 0.0f, minus_b[half] = huge_now ? 0.0f : -b;
      any_huge = any_huge || huge_now;
    }
    if (any_huge) {
      limit = -1.0f;
#pragma unroll
      for (int e = 0; e < count; ++e) x[e] = ptx::add(x[e], -less[e >> 1 & 1]);
    }
    exponentials<true>(x, c, minus_b, more);
    sum[0] = ptx::fma(sum[0], shrink[0], more[0]);
    sum[1] = ptx::fma(sum[1], shrink[1], more[1]);
    return begun;
  }

 private:
  // Rows whose reference does not do for these scores. The same in the four lanes of a row. Huge references never do:
  // there the reference is the running maximum.
  DEVICE void find_failing(float (&x)[count], float c, bool (&fails)[2]) const {
    if constexpr (!exact) {
      const float minus_b[2] = {-ptx::mul(reference[0], c), -ptx::mul(reference[1], c)};
      float more[2];
      exponentials<false>(x, c, minus_b, more);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        u32 f = !(more[half] <= bound) || is_huge(minus_b[half]);
        f |= ptx::shfl_xor(f, 1);
        f |= ptx::shfl_xor(f, 2);
        fails[half] = f != 0;
      }
    }
  }
  // 2^(x c + minus_b), and their sums.
  template <bool Keep>
  static DEVICE void exponentials(float (&x)[count], float c, const float (&minus_b)[2], float (&more)[2]) {
    float sums[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
#pragma unroll
    for (int e = 0; e < count; ++e) {
      const int half = e >> 1 & 1;
      const float y = ptx::exp2(ptx::fma(x[e], c, minus_b[half]));
      sums[half][e & 1] = ptx::add(sums[half][e & 1], y);
      if constexpr (Keep) x[e] = y;
    }
    more[0] = ptx::add(sums[0][0], sums[0][1]), more[1] = ptx::add(sums[1][0], sums[1][1]);
  }
};

}  // namespace tessera_kernels
