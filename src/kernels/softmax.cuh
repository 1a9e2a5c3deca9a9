// The softmax of a warp's rows, tile by tile, in powers of two. Each row decides for itself, so that its bits do not
// depend on what stands beside it.
//
// A probability is 2^(c x - B) with x the score, c the factor that leads to powers of two, B = c m rounded, and m the
// reference of the row: one FMA and one ex2 an element. That B is rounded makes all probabilities of a row wrong by one
// and the same factor, which their sum has as well. The largest one loses it when it is rounded to the input's type (to
// 1, if it is the reference), so the factor must be small beside the result's own rounding: where |B| is not small,
// rows subtract m first.
//
// What m is does not matter to the result as long as nothing overflows, since it cancels:
// - Running: m is the largest score so far, as in FlashAttention (Dao et al., 2022). Each tile costs a maximum, and the
//   factors of what was summed before. O is divided by the sum of P before it is rounded: with results in fp32 a sum of
//   rounded P, where V has outliers, is worse by far than standard attention.
// - Fixed: m is the largest score of the row's first tile, and stays. bf16 has the exponents of fp32: 127 powers of two
//   are left for what comes later. A row that needs more comes out infinite or NaN, and goes again, running
//   (forward_sm80.cuh). The largest P is not 1 then, but rounded; O is divided by the sum of rounded P, which a product
//   with ones gives, so that a row of one large P is exact again. What is left is within the rounding of a 16-bit
//   result, times two where few keys matter: this is for bf16 with such results, and the plan says when
//   (gpu/decision.cpp).
// Must not know: masks, where tiles come from.
#pragma once
#include "tile.cuh"

namespace tessera_kernels {

constexpr float log2_e = 1.44269504f, ln_2 = 0.693147181f;

template <class S>
constexpr bool is_reference_fixed = S::fixed;
// Which sums there are: of P as it is multiplied with V, and before it is rounded, which LSE needs always.
template <class S>
constexpr bool has_rounded_sums = is_reference_fixed<S>;
template <class S>
constexpr bool has_exact_sums = !is_reference_fixed<S> || S::lse;

// Results in fp32 of few keys show that P was rounded: there, what rounding leaves of P is multiplied with V, too.
template <class S>
constexpr bool has_rests = sizeof(typename S::Output) == 4;

// From here on |B| counts as huge. Below, B is rounded by at most 2^-20, a factor within 6.7e-7 of 1, as the accuracy
// rule allows of equal scores (2^-20); where results have 16 bits, by 2^-13.
template <class S>
constexpr float huge_exponent = is_reference_fixed<S> ? 4096.0f : 32.0f;

template <class S>
struct Softmax {
  using Sh = Shape<S>;
  Shared<S>& s;
  float* references;                     // score of each row, in shared memory; -inf: none attended to yet
  float sum[Sh::row_groups][2];          // of P before it is rounded, of this lane's columns
  float rounded_sum[Sh::row_groups][4];  // of P as it is multiplied: of all of the warp's columns, each twice
  float minus_b[Sh::row_groups][2];      // of the tile in hand
  // Why a tile needs more than exponentials, in one register; 0: all rows of the warp have a reference, fixed and not
  // huge. A bit for each row of the lane that is running, and two more.
  static constexpr u32 unsettled = 1u << 31, selecting = 1u << 30, running = 0xfu;
  u32 careful = is_reference_fixed<S> ? 0u : running;

  // Another pass over the keys.
  DEVICE void clear() {
    careful |= unsettled;
    for_rows([&](int m, int half) {
      set_reference(m, half, -ptx::infinity()), sum[m][half] = 0.0f;
      rounded_sum[m][half * 2] = rounded_sum[m][half * 2 + 1] = 0.0f;
    });
  }

  // Takes a tile's scores up: what their exponents are relative to, and with it O and the sums so far.
  DEVICE void take_up(Scores<S>& x, Outputs<S>& o, float c) {
    if (is_reference_fixed<S> && careful == 0) {
      for_rows([&](int m, int half) { minus_b[m][half] = -ptx::mul(reference(m, half), c); });
    } else {
      raise(x, o, c);
    }
  }

  // Each row that is running, or without reference, takes the largest score up.
  DEVICE void raise(Scores<S>& x, Outputs<S>& o, float c) {
    float before[Sh::row_groups][2], top[Sh::row_groups][2], shrink[Sh::row_groups][2];
    for_rows([&](int m, int half) {
      float t = ptx::max(x[m][0][half * 2], x[m][0][half * 2 + 1]);
#pragma unroll
      for (int n = 1; n < Sh::key_groups; ++n) t = ptx::max(t, ptx::max(x[m][n][half * 2], x[m][n][half * 2 + 1]));
      top[m][half] = t, before[m][half] = reference(m, half);
    });
    for_rows([&](int m, int half) { top[m][half] = ptx::max(top[m][half], ptx::shfl_xor(top[m][half], 1)); });
    for_rows([&](int m, int half) { top[m][half] = ptx::max(top[m][half], ptx::shfl_xor(top[m][half], 2)); });
    with_neighbour(top, [](float a, float b) { return ptx::max(a, b); });
    float furthest = 0.0f;
    bool settled = (careful & running) == 0;  // of the warp: it comes here together or not at all
    for_rows([&](int m, int half) {
      float t = ptx::max(before[m][half], top[m][half]);
      if (is_reference_fixed<S> && (careful >> (m * 2 + half) & 1) == 0 && before[m][half] != -ptx::infinity())
        t = before[m][half];
      const float b = exponent_of(t, c);
      top[m][half] = t;
      settled = settled && t != -ptx::infinity();
      furthest = ptx::max(furthest, ptx::abs(b));
      shrink[m][half] = ptx::exp2(ptx::add(ptx::mul(before[m][half], c), -b));  // without keys so far: 2^-inf
    });
    if (furthest >= huge_exponent<S>) subtract_first(x, top, before, shrink, c);
    __syncwarp();  // all lanes have read the references
    for_rows([&](int m, int half) { set_reference(m, half, top[m][half]); });
    sync_rows<S>();
    if constexpr (is_reference_fixed<S>)
      if (ptx::all(settled && furthest < huge_exponent<S>)) careful &= ~unsettled;
    for_rows([&](int m, int half) {
      const float by = shrink[m][half];
      sum[m][half] = ptx::mul(sum[m][half], by);
      rounded_sum[m][half * 2] *= by, rounded_sum[m][half * 2 + 1] *= by;
#pragma unroll
      for (int n = 0; n < Sh::dim_groups; ++n) o[m][n][half * 2] *= by, o[m][n][half * 2 + 1] *= by;
    });
    for_rows([&](int m, int half) {
      const float b = exponent_of(reference(m, half), c);
      minus_b[m][half] = ptx::abs(b) >= huge_exponent<S> ? 0.0f : -b;
    });
  }
  // What two warps know of the same rows, for both; all lanes of a quad have the same.
  using Rows = float[Sh::row_groups][2];
  template <class Join>
  DEVICE void with_neighbour(Rows& x, const Join& join) {
    if constexpr (S::warps_n > 1) {
      const auto row = [](int m, int half) { return warp_row<S>() + m * 16 + fragment_row(half); };
      for_rows([&](int m, int half) {
        if (lane() % 4 == 0) s.rows[part<S>()][row(m, half)] = x[m][half];
      });
      sync_rows<S>();
      for_rows([&](int m, int half) { x[m][half] = join(x[m][half], s.rows[1 - part<S>()][row(m, half)]); });
    }
  }
  // A bit for each of the lane's rows, of either warp.
  DEVICE void join_votes(u32& a, u32& b) {
    if constexpr (S::warps_n > 1) {
      Rows votes;
      for_rows([&](int m, int half) {
        votes[m][half] = ptx::as_float((a >> (m * 2 + half) & 1) | (b >> (m * 2 + half) & 1) << 1);
      });
      with_neighbour(votes, [](float x, float y) { return ptx::as_float(ptx::as_bits(x) | ptx::as_bits(y)); });
      for_rows([&](int m, int half) {
        const u32 vote = ptx::as_bits(votes[m][half]);
        a |= (vote & 1) << (m * 2 + half), b |= (vote >> 1) << (m * 2 + half);
      });
    }
  }
  // The sums of the rows, of all columns: of P as it is multiplied where there are such, and before it is rounded.
  struct Sums {
    Rows exact, multiplied;
  };
  DEVICE Sums sums() {
    Sums all;
    const auto add = [](float a, float b) { return ptx::add(a, b); };
    for_rows([&](int m, int half) { all.exact[m][half] = sum[m][half]; });
    if constexpr (has_exact_sums<S>) {
      for_rows([&](int m, int half) {
        all.exact[m][half] += ptx::shfl_xor(all.exact[m][half], 1);
        all.exact[m][half] += ptx::shfl_xor(all.exact[m][half], 2);
      });
      with_neighbour(all.exact, add);
    }
    for_rows([&](int m, int half) {
      all.multiplied[m][half] = has_rounded_sums<S> ? rounded_sum[m][half * 2] : all.exact[m][half];
    });
    if constexpr (has_rounded_sums<S> && S::warps_n > 1) {
      sync_rows<S>();
      with_neighbour(all.multiplied, add);
    }
    return all;
  }
  static DEVICE float exponent_of(float score, float c) {
    return score == -ptx::infinity() ? 0.0f : ptx::mul(score, c);
  }

  // Of rows whose exponents are huge.
  DEVICE void subtract_first(Scores<S>& x, const Rows& now, const Rows& before, Rows& shrink, float c) {
    for_rows([&](int m, int half) {
      const float top = now[m][half], old = before[m][half];
      if (!(ptx::abs(exponent_of(top, c)) >= huge_exponent<S>)) return;
      if (old != -ptx::infinity())
        shrink[m][half] =
            ptx::exp2(ptx::abs(ptx::mul(old, c)) >= huge_exponent<S> ? ptx::mul(ptx::add(old, -top), c)
                                                                     : ptx::fma(-top, c, ptx::mul(old, c)));
#pragma unroll
      for (int n = 0; n < Sh::key_groups; ++n) {
        x[m][n][half * 2] = ptx::add(x[m][n][half * 2], -top);
        x[m][n][half * 2 + 1] = ptx::add(x[m][n][half * 2 + 1], -top);
      }
    });
  }

  // Lanes of a quad have the same rows.
  DEVICE float reference(int m, int half) const { return references[fragment_row(half) + m * 16]; }
  DEVICE void set_reference(int m, int half, float score) {
    if (lane() % 4 == 0 && part<S>() == 0) references[fragment_row(half) + m * 16] = score;
  }
  template <class Do>
  static DEVICE void for_rows(const Do& act) {
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) act(m, half);
    }
  }

  // The probabilities of 16 keys as the matrix instruction takes them; what rounding leaves of them.
  using Fragments = u32[Sh::row_groups][4];
  DEVICE void probabilities(Fragments& p, Fragments& rest, const Scores<S>& x, int step, float c) {
#pragma unroll
    for (int m = 0; m < Sh::row_groups; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float y[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          y[i] = ptx::exp2(ptx::fma(x[m][2 * step + i / 2][half * 2 + i % 2], c, minus_b[m][half]));
        if constexpr (has_exact_sums<S>) sum[m][half] += (y[0] + y[1]) + (y[2] + y[3]);
        p[m][half] = pack(y[0], y[1], typename S::Element{});
        p[m][half + 2] = pack(y[2], y[3], typename S::Element{});
        if constexpr (has_rests<S>) {
          using E = typename S::Element;
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const u32 pair = p[m][half + 2 * i];
            rest[m][half + 2 * i] = pack(ptx::add(y[2 * i], -ptx::to_float(E{(u16)pair})),
                                         ptx::add(y[2 * i + 1], -ptx::to_float(E{(u16)(pair >> 16)})), E{});
          }
        }
      }
    }
  }
  // One tile: o += P V, in two parts; ready() is called between them. The first so many steps of 16 keys are
  // exponentiated before the products begin, the others while the tensor core is busy with products: as many as
  // registers allow. Keys that another warp has the probabilities of come last, when it has had time to write them.
  static constexpr int early = S::early < Sh::key_steps ? S::early : Sh::key_steps;
  template <class Ready>
  DEVICE void add_values(Outputs<S>& o, const Scores<S>& x, const typename S::Element* v, float c, const Ready& ready) {
    Fragments p[Sh::key_steps], rest[Sh::key_steps];
#pragma unroll
    for (int step = 0; step < early; ++step) exponentiate(p[step], rest[step], x, step, c);
    ready();
    const typename S::Element* const own = v + part<S>() * Sh::keys * Sh::v_pitch;
#pragma unroll
    for (int step = 0; step < Sh::key_steps; ++step) {
      if (step + early < Sh::key_steps) exponentiate(p[step + early], rest[step + early], x, step + early, c);
      multiply_values<S>(o, p[step], own, step);
      if constexpr (has_rests<S>) multiply_values<S>(o, rest[step], own, step);
      if constexpr (has_rounded_sums<S>) {
        constexpr u32 one = pair_of_ones(typename S::Element{});
#pragma unroll
        for (int m = 0; m < Sh::row_groups; ++m) multiply(rounded_sum[m], p[step][m], one, one, typename S::Element{});
      }
    }
    if constexpr (S::warps_n > 1) {
      sync_rows<S>();
      v += (1 - part<S>()) * Sh::keys * Sh::v_pitch;
#pragma unroll
      for (int step = 0; step < Sh::key_steps; ++step) {
        take_probabilities<S>(p[step], s, step);
        multiply_values<S>(o, p[step], v, step);
      }
    }
  }
  DEVICE void exponentiate(Fragments& p, Fragments& rest, const Scores<S>& x, int step, float c) {
    static_assert(!has_rests<S> || S::warps_n == 1, "rests are not handed over");
    probabilities(p, rest, x, step, c);
    if constexpr (S::warps_n > 1) give_probabilities<S>(s, p, step);
  }
};

}  // namespace tessera_kernels
