// The forward kernel: one algorithm for every instruction set. Queries in the lanes, everything transposed:
//
//   S^T = K Q^T     keys x rows: K broadcast from its own rows, Q^T packed once; the row maximum is a vertical
//   operation P^T = exp2(S^T - m) O^T = O^T * exp2(m_old - m) + V^T P^T     P^T is already the operand; V broadcast
//   from its own rows
//
// No horizontal reduction anywhere, and K and V need nothing but a row stride. Measurements: docs/kernels/cpu.md.
// Each instruction set includes this file in its own translation unit, in an unnamed namespace and without any inline
// function of the standard library: code compiled for AVX-512 must never be the copy that the linker keeps.
// Must not know: plans, threads, batches.
#pragma once
#include "cpu/applied_mods.hpp"
#include "cpu/fault.hpp"
#include "cpu/kernels.hpp"

namespace tessera::cpu {
namespace {

template <class S>
struct Forward {
  using F = typename S::F;
  using M = typename S::M;
  using Applied = cpu::Applied<S>;
  using Seen = cpu::Seen<S>;
  static constexpr int lanes = S::lanes;
  static constexpr int panel = 2 * lanes;  // rows in the lanes of two vectors
  static constexpr std::int64_t k_block = S::k_block;
  static constexpr std::int64_t panels_worth_gathering = 2;
  static constexpr float lowest = -__FLT_MAX__;  // reference of a row that has seen nothing: exp2(-inf - lowest) is 0
  static_assert(run_queries % panel == 0 && k_block % run_keys == 0 && run_keys % S::qk_keys == 0);
  static constexpr float seed = 0x1p-24f;  // of a block's sums, see accumulate()
  static constexpr double log2e = 1.4426950408889634;
  static constexpr double ln2 = 0.6931471805599453;

  static std::int64_t min(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
  static std::int64_t max(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
  static F infinity(float sign) { return S::set(sign * __builtin_inff()); }

  // Q is packed as it is: rounding scale * Q would cost up to 3 x standard attention's error. The scale enters with the
  // exponent, exp(scale (s - m)) = 2^(c (s - m)), where c > 0 so that m can be the maximum of the raw products; the
  // sign of the scale (or a scale of 0) goes into Q, exactly.
  static float sign(const Tile& t) { return t.scale > 0 ? 1.0f : t.scale < 0 ? -1.0f : 0.0f; }
  // Where a mod changes the scores, it sees them scaled, and the exponent is that of e alone.
  static float exponent(const Tile& t) {
    const float scale = t.scale == 0 || t.score || TESSERA_FAULT(scale_missing) ? 1 : __builtin_fabsf(t.scale);
    return static_cast<float>(scale * log2e);
  }

  // ---------------------------------------------------------------------------------------------- scratch memory
  static std::int64_t padded(std::int64_t floats) { return (floats + 15) / 16 * 16; }
  static std::int64_t scratch_floats(const Tile& t, std::int64_t rows) {
    const std::int64_t panels = (rows + panel - 1) / panel;
    return panels * (padded(t.dim * panel) + 2 * padded(state_floats(panel, t.dim_v))) +  // Q^T, state, closed splits
           padded(state_floats(panel, t.dim_v)) +                                         // state of a redone panel
           2 * padded(panel * max(t.dim, t.dim_v)) +              // rows on their way in and out
           padded(k_block * panel) +                              // S^T, P^T
           padded(k_block * t.dim) + padded(k_block * t.dim_v) +  // K and V widened
           mod_floats(t.score, panels * panel, k_block, panel) + mod_floats(t.mask, panels * panel, k_block, panel);
  }
  struct Scratch {
    float *q, *state, *closed, *redone, *rows, *s, *k, *v, *mods;
    std::int64_t q_size, state_size;
    Scratch(const Tile& t, float* at) {
      const std::int64_t panels = (t.rows() + panel - 1) / panel;
      q_size = padded(t.dim * panel), state_size = padded(state_floats(panel, t.dim_v));
      auto take = [&](std::int64_t floats) { return at += floats, at - floats; };
      q = take(panels * q_size), state = take(panels * state_size), closed = take(panels * state_size);
      redone = take(state_size), rows = take(2 * padded(panel * max(t.dim, t.dim_v))),
      s = take(padded(k_block * panel));
      k = take(padded(k_block * t.dim)), v = take(padded(k_block * t.dim_v));
      mods = at;
    }
  };

  // Pieces of a panel's state (see state_floats).
  static float* reference(const Tile& t, float* state) { return state + t.dim_v * panel; }
  static float* sum(const Tile& t, float* state) { return state + (t.dim_v + 1) * panel; }
  static void clear(const Tile& t, float* state) {
    for (std::int64_t i = 0; i < state_floats(panel, t.dim_v); i += lanes) S::store(state + i, S::set(0));
    for (int i = 0; i < panel; i += lanes) S::store(reference(t, state) + i, S::set(lowest));
  }

  // The logical positions of a panel's rows: their range, and each row's distance from the lowest.
  struct Positions {
    std::int64_t first_row, begin, end;  // queries [begin, end)
    alignas(64) float above[panel];
    Positions(const Tile& t, std::int64_t first) : first_row(first) {
      const std::int64_t origin = TESSERA_FAULT(offset_ignored) ? 0 : t.q_position;
      std::int64_t query[panel], lo = t.queries, hi = 0, next = first % t.queries;
      for (int lane = 0; lane < panel; ++lane) {
        query[lane] = next;
        lo = min(lo, next), hi = max(hi, next);
        if (first + lane + 1 < t.rows() && ++next == t.queries) next = 0;  // lanes past the last row repeat it
      }
      for (int lane = 0; lane < panel; ++lane) above[lane] = static_cast<float>(query[lane] - lo);
      begin = origin + lo, end = origin + hi + 1;
    }
  };

  static const void* element(const void* base, DType dtype, std::int64_t index) {
    return static_cast<const char*>(base) + index * (dtype == DType::f32 ? 4 : 2);
  }

  // Rows of K or V from `key` on, as far as they are a token stride apart.
  static const void* row(const Tile& t, const Source& x, std::int64_t key) {
    if (!t.pages) return element(x.data, t.dtype, key * x.token_stride);
    const std::int64_t page = t.pages[TESSERA_FAULT(first_page_repeated) ? 0 : key / t.page_size];
    const std::int64_t place = TESSERA_FAULT(page_place_ignored) ? 0 : key % t.page_size;
    return element(x.data, t.dtype, page * x.page_stride + place * x.token_stride);
  }
  static std::int64_t in_one_piece(const Tile& t, std::int64_t key, std::int64_t n) {
    if (!t.pages) return n;
    return min(n, t.page_size - key % t.page_size);
  }

  // The next block's rows of K and V, asked for a few at a time between the products, so that they are in L2 when their
  // turn comes. All at once they would fill the queues of misses and stall the loads that matter.
  struct Ahead {
    const Tile& t;
    const char *k = nullptr, *v = nullptr;
    std::int64_t key, k_step, v_step, k_bytes, v_bytes, left, share, here = 0;  // here: rows that k and v step over
    Ahead(const Tile& tile, std::int64_t from, std::int64_t rows, std::int64_t pieces) : t(tile), key(from) {
      const std::int64_t size = t.dtype == DType::f32 ? 4 : 2;
      k_step = t.k.token_stride * size, v_step = t.v.token_stride * size;
      k_bytes = t.dim * size, v_bytes = t.dim_v * size;
      left = rows, share = (rows + pieces - 1) / pieces;
    }
    void step() {
      for (std::int64_t i = 0; i < share && left > 0; ++i, --left, --here, k += k_step, v += v_step) {
        if (here == 0) {
          here = in_one_piece(t, key, left);
          k = static_cast<const char*>(row(t, t.k, key)), v = static_cast<const char*>(row(t, t.v, key));
          key += here;
        }
        for (std::int64_t at = 0; at < k_bytes; at += 64) __builtin_prefetch(k + at, 0, 2);
        for (std::int64_t at = 0; at < v_bytes; at += 64) __builtin_prefetch(v + at, 0, 2);
      }
    }
  };

  // ---------------------------------------------------------------------------------------------- the two products
  // S^T rows [0, n) = K rows . Q^T, and their maximum folded into m0, m1 where Max.
  template <int n, bool Max>
  static inline __attribute__((always_inline)) void scores(const float* k, std::int64_t stride, std::int64_t dim,
                                                           const float* q, float* s, F& m0, F& m1) {
    F c[n][2];
    const float* row[n];
    for (int i = 0; i < n; ++i) c[i][0] = c[i][1] = S::set(0), row[i] = k + i * stride;
#pragma GCC unroll 4
    for (std::int64_t j = 0; j < dim; ++j) {
      const F b0 = S::load(q + j * panel), b1 = S::load(q + j * panel + lanes);
#pragma GCC unroll 16
      for (int i = 0; i < n; ++i) {
        const F a = S::set(row[i][j]);
        c[i][0] = S::fma(a, b0, c[i][0]), c[i][1] = S::fma(a, b1, c[i][1]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) {
      if constexpr (Max) m0 = S::max(c[i][0], m0), m1 = S::max(c[i][1], m1);
      S::store(s + i * panel, c[i][0]), S::store(s + i * panel + lanes, c[i][1]);
    }
  }

  // O^T rows [0, n) = O^T * (a0, a1) + V^T P^T over `keys` keys. Where Select, a key whose P is negative (a masked one)
  // is skipped rather than multiplied by 0; the bits are the same as without, unless V is not finite there.
  // The block's own sum comes first, from the last key to the first, as the denominator's does: errors grow with the
  // length of a block and the number of blocks, not with that of all keys. Seeded: onto a 2^-24th of what was there.
  // Where a score change such as ALiBi makes keys tiny beside others, a sum of their own would be denormal, and a
  // hundred times slower on some processors (25 % of the rate of causal attention; 86 - 92 % with seed and order).
  template <int n, bool Select>
  static inline __attribute__((always_inline)) void accumulate(const float* v, std::int64_t stride, std::int64_t keys,
                                                               const float* p, float* o, F a0, F a1, bool seeded) {
    F c[n][2];
    if (seeded) {
      const F seed0 = S::mul(a0, S::set(seed)), seed1 = S::mul(a1, S::set(seed));
#pragma GCC unroll 16
      for (int i = 0; i < n; ++i)
        c[i][0] = S::mul(seed0, S::load(o + i * panel)), c[i][1] = S::mul(seed1, S::load(o + i * panel + lanes));
      a0 = S::mul(a0, S::set(1 - seed)), a1 = S::mul(a1, S::set(1 - seed));
    } else {
#pragma GCC unroll 16
      for (int i = 0; i < n; ++i) c[i][0] = c[i][1] = S::set(0);
    }
#pragma GCC unroll 4
    for (std::int64_t r = keys - 1; r >= 0; --r) {
      const F b0 = S::load(p + r * panel), b1 = S::load(p + r * panel + lanes);
      const float* row = v + r * stride;
#pragma GCC unroll 16
      for (int i = 0; i < n; ++i) {
        const F a = S::set(row[i]);
        if constexpr (Select) {
          const F masked = S::set(-1);
          c[i][0] = S::select(S::eq(b0, masked), c[i][0], S::fma(a, b0, c[i][0]));
          c[i][1] = S::select(S::eq(b1, masked), c[i][1], S::fma(a, b1, c[i][1]));
        } else {
          c[i][0] = S::fma(a, b0, c[i][0]), c[i][1] = S::fma(a, b1, c[i][1]);
        }
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) {
      S::store(o + i * panel, S::fma(a0, S::load(o + i * panel), c[i][0]));
      S::store(o + i * panel + lanes, S::fma(a1, S::load(o + i * panel + lanes), c[i][1]));
    }
  }

  // ---------------------------------------------------------------------------------------------- mask and softmax
  // Selects -inf where the mask is false, for S^T rows of keys [key, key + n). seen: of these keys, where the mask has
  // been evaluated; null: bands tell.
  static void mask(const Tile& t, const Positions& at, const std::uint32_t* seen, float* s, std::int64_t key,
                   std::int64_t n) {
    if (seen) return mask_by_bits(seen, s, n);
    const auto bands = t.tiles->bands();
    const Band* band = bands.data();
    const std::int64_t band_count = static_cast<std::int64_t>(bands.size());
    const F above[2] = {S::load(at.above), S::load(at.above + lanes)};
    for (std::int64_t i = 0; i < n; ++i) {
      // lo <= k - q <= hi  <=>  k - hi <= q <= k - lo. Relative to the lowest query, and clamped to what a float holds
      // exactly: a row is less than a tile above the lowest.
      M keep[2] = {S::none(), S::none()};
      for (std::int64_t b = 0; b < band_count; ++b) {
        const F first = S::set(distance(key + i - at.begin, band[b].hi + (TESSERA_FAULT(mask_off_by_one) ? 1 : 0)));
        const F last =
            S::set(distance(key + i - at.begin, TESSERA_FAULT(band_begin_ignored) ? -(1 << 30) : band[b].lo));
        for (int half = 0; half < 2; ++half)
          keep[half] = S::either(keep[half], S::both(S::ge(above[half], first), S::ge(last, above[half])));
      }
      for (int half = 0; half < 2; ++half) {
        float* at_s = s + i * panel + half * lanes;
        S::store(at_s, S::select(keep[half], S::load(at_s), infinity(-1)));
      }
    }
  }
  static __attribute__((noinline)) void mask_by_bits(const std::uint32_t* seen, float* s, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i)
      for (int half = 0; half < 2; ++half) {
        float* at_s = s + i * panel + half * lanes;
        const M keep = S::from_bits(seen[i] >> (half * lanes));
        S::store(at_s, S::select(keep, S::load(at_s), infinity(-1)));
      }
  }
  // The scores of n keys as the mod wants them.
  static __attribute__((noinline)) void modify(const Tile& t, const Positions& at, Applied& score, float* s,
                                               std::int64_t key, std::int64_t n) {
    const F scale = S::set(__builtin_fabsf(t.scale));
    for (std::int64_t r = 0; r < n; r += strip_keys) {
      const std::int64_t count = min(strip_keys, n - r);
      float* strip = s + r * panel;
      for (std::int64_t i = 0; i < count * panel; i += lanes) S::store(strip + i, S::mul(S::load(strip + i), scale));
      score.run(t, at.first_row, key + r, count, strip, strip);
    }
  }
  static float distance(std::int64_t a, std::int64_t b) {
    constexpr std::int64_t limit = 1 << 20;
    std::int64_t d;
    if (__builtin_sub_overflow(a, b, &d)) return static_cast<float>(b < 0 ? limit : -limit);
    return static_cast<float>(max(-limit, min(limit, d)));
  }

  // Whether every row of the panel attends to every key of [key, key + n).
  static bool attended(const Tile& t, const Positions& at, const std::uint32_t* seen, std::int64_t key,
                       std::int64_t n) {
    if (seen) return Seen::all(seen, n);
    const Cover c = t.tiles->cover(at.begin, at.end, key, key + n);
    return c.coverage == Coverage::full && c.k_begin == key && c.k_end == key + n;
  }

  // One block of keys [key, key + n) for one panel: k, v point at key's rows, `partial` tells whether a mask is needed,
  // seen: what an evaluated one says of these keys.
  template <bool Select>
  static void block(const Tile& t, const Positions& at, bool partial, const std::uint32_t* seen, const float* k,
                    std::int64_t k_stride, const float* v, std::int64_t v_stride, std::int64_t key, std::int64_t n,
                    const float* q, float* s, float* state, Ahead& ahead, Applied& score) {
    float *m = reference(t, state), *l = sum(t, state);
    const F old0 = S::load(m), old1 = S::load(m + lanes);
    F m0 = old0, m1 = old1;
    std::int64_t r = 0;
    auto group = [&]<int size>() __attribute__((always_inline)) {
      for (; r + size <= n; r += size) {
        ahead.step();
        const std::uint32_t* here = seen ? seen + r : nullptr;
        const bool masked = partial && !TESSERA_FAULT(mask_skipped) && !attended(t, at, here, key + r, size);
        if (masked && here && Seen::none(here, size)) {
          for (int i = 0; i < 2 * size; ++i) S::store(s + r * panel + i * lanes, infinity(-1));
        } else if (!masked && !t.score) {
          scores<size, true>(k + r * k_stride, k_stride, t.dim, q, s + r * panel, m0, m1);
        } else {
          scores<size, false>(k + r * k_stride, k_stride, t.dim, q, s + r * panel, m0, m1);
          if (t.score) modify(t, at, score, s + r * panel, key + r, size);
          if (masked) mask(t, at, here, s + r * panel, key + r, size);
          for (int i = 0; i < size; ++i) {
            m0 = S::max(S::load(s + (r + i) * panel), m0);
            m1 = S::max(S::load(s + (r + i) * panel + lanes), m1);
          }
        }
      }
    };
    group.template operator()<S::qk_keys>();
    if constexpr (S::qk_keys > 4) group.template operator()<4>();
    group.template operator()<1>();

    const F c = S::set(exponent(t));
    F a0 = S::exp2(S::sub(old0, m0), c), a1 = S::exp2(S::sub(old1, m1), c);
    S::store(m, m0), S::store(m + lanes, m1);
    // l is summed as O is, so that where all values are equal both round alike.
    const bool seeded = static_cast<bool>(t.score);
    F b0 = TESSERA_FAULT(stale_sum) ? S::set(1) : a0, b1 = TESSERA_FAULT(stale_sum) ? S::set(1) : a1;
    F l0 = S::set(0), l1 = S::set(0);
    if (seeded) {
      l0 = S::mul(S::mul(b0, S::set(seed)), S::load(l)), l1 = S::mul(S::mul(b1, S::set(seed)), S::load(l + lanes));
      b0 = S::mul(b0, S::set(1 - seed)), b1 = S::mul(b1, S::set(1 - seed));
    }
    for (r = n - 1; r >= 0; --r) {
      float* at_s = s + r * panel;
      const F s0 = S::load(at_s), s1 = S::load(at_s + lanes);
      F p0 = S::exp2(S::sub(s0, m0), c), p1 = S::exp2(S::sub(s1, m1), c);
      l0 = S::add(l0, p0), l1 = S::add(l1, p1);
      if constexpr (Select) {
        p0 = S::select(S::eq(s0, infinity(-1)), S::set(-1), p0);
        p1 = S::select(S::eq(s1, infinity(-1)), S::set(-1), p1);
      }
      S::store(at_s, p0), S::store(at_s + lanes, p1);
    }
    S::store(l, S::fma(b0, S::load(l), l0));
    S::store(l + lanes, S::fma(b1, S::load(l + lanes), l1));
    if (TESSERA_FAULT(rescale_missing)) a0 = a1 = S::set(1);

    std::int64_t j = 0;
    const std::int64_t dims = t.dim_v - (TESSERA_FAULT(last_dim_dropped) ? 1 : 0);
    auto columns = [&]<int size>() __attribute__((always_inline)) {
      for (; j + size <= dims; j += size)
        accumulate<size, Select>(v + j, v_stride, n, s, state + j * panel, a0, a1, seeded);
    };
    columns.template operator()<S::pv_dims>();
    if constexpr (S::pv_dims > 4) columns.template operator()<4>();
    if constexpr (S::pv_dims > 2) columns.template operator()<2>();
    columns.template operator()<1>();
  }

  // ---------------------------------------------------------------------------------------------- merging
  // total = total + part, both unnormalised, each against its own reference. Exact for empty ones: their factor is 0,
  // or 1 when both are empty.
  static void merge(const Tile& t, float* total, const float* part) {
    const float *pm = part + t.dim_v * panel, *pl = pm + panel;
    float *m = reference(t, total), *l = sum(t, total);
    const F c = S::set(exponent(t));
    for (int half = 0; half < panel; half += lanes) {
      const F tm = S::load(m + half), qm = S::load(pm + half), top = S::max(tm, qm);
      F a = S::exp2(S::sub(tm, top), c), b = S::exp2(S::sub(qm, top), c);
      if (TESSERA_FAULT(merge_unscaled)) a = b = S::set(1);
      for (std::int64_t j = 0; j < t.dim_v; ++j) {
        float* o = total + j * panel + half;
        S::store(o, S::fma(b, S::load(part + j * panel + half), S::mul(a, S::load(o))));
      }
      S::store(l + half, S::fma(b, S::load(pl + half), S::mul(a, S::load(l + half))));
      S::store(m + half, top);
    }
  }
  static void copy(const Tile& t, float* to, const float* from) {
    for (std::int64_t i = 0; i < state_floats(panel, t.dim_v); i += lanes) S::store(to + i, S::load(from + i));
  }

  // ---------------------------------------------------------------------------------------------- rows in, rows out
  // Q^T of one panel.
  static void pack(const Tile& t, std::int64_t first_row, float* buffer, float* q) {
    const float* rows[panel];
    for (int lane = 0; lane < panel; ++lane) {
      const std::int64_t row = min(first_row + lane, t.rows() - 1);
      const void* source =
          element(t.q, t.dtype, row / t.queries * t.q_head_stride + row % t.queries * t.q_token_stride);
      if (t.dtype == DType::f32) {
        rows[lane] = static_cast<const float*>(source);
      } else {
        S::widen(t.dtype, source, t.dim, buffer + lane * t.dim);
        rows[lane] = buffer + lane * t.dim;
      }
    }
    S::transpose_in(rows, t.dim, sign(t), q);
  }
  // Rows [key, key + n) of K or V as fp32. 16-bit ones are widened into the buffer. fp32 rows are used where they lie
  // if they lie side by side, in one page; rows of a [.., heads, dim] layout are far apart and are gathered once for
  // all panels of the item.
  static const float* rows_fp32(const Tile& t, const Source& x, std::int64_t key, std::int64_t n, std::int64_t dim,
                                std::int64_t panels, float* buffer, std::int64_t& out_stride) {
    if (t.dtype == DType::f32 && (x.token_stride == dim || panels < panels_worth_gathering) &&
        in_one_piece(t, key, n) == n)
      return out_stride = x.token_stride, static_cast<const float*>(row(t, x, key));
    for (std::int64_t i = 0; i < n;) {
      const void* first = row(t, x, key + i);
      const std::int64_t end = i + in_one_piece(t, key + i, n - i);
      for (std::int64_t j = 0; i < end; ++i, ++j) {
        const void* from = element(first, t.dtype, j * x.token_stride);
        if (t.dtype == DType::f32)
          __builtin_memcpy(buffer + i * dim, from, static_cast<std::size_t>(dim) * sizeof(float));
        else S::widen(t.dtype, from, dim, buffer + i * dim);
      }
    }
    return out_stride = dim, buffer;
  }
  // Adds each row's sink, a key without a value, to its sum. `top` are the references in powers of two, and become
  // those of the new sums. A sink of NaN, or of +inf (as a score of +inf), makes NaN of its rows.
  static __attribute__((noinline)) void join_sinks(const Tile& t, std::int64_t first_row, int count, float* state,
                                                   double* top) {
    alignas(64) float factor[panel];
    float* l = sum(t, state);
    for (int lane = 0; lane < panel; ++lane) factor[lane] = 1;
    for (int lane = 0; lane < count; ++lane) {
      const double sink =
          static_cast<double>(t.sinks[TESSERA_FAULT(sink_of_first_head) ? 0 : (first_row + lane) / t.queries]) * log2e;
      const double was = top[lane];
      if (sink > was && !TESSERA_FAULT(sink_not_rescaled)) top[lane] = sink;
      factor[lane] = static_cast<float>(__builtin_exp2(was - top[lane]));
      l[lane] = l[lane] * factor[lane] + static_cast<float>(__builtin_exp2(sink - top[lane]));
    }
    for (std::int64_t j = 0; j < t.dim_v; ++j)
      for (int half = 0; half < panel; half += lanes) {
        float* o = state + j * panel + half;
        S::store(o, S::mul(S::load(o), S::load(factor + half)));
      }
  }
  // O = O^T / l and LSE = (c m + log2 l) ln 2 of one panel.
  static void finish(const Tile& t, std::int64_t first_row, float* state, float* buffer) {
    const int count = static_cast<int>(min(panel, t.rows() - first_row));
    const float *m = reference(t, state), *l = sum(t, state);
    const double c = t.score ? log2e : static_cast<double>(__builtin_fabsf(t.scale)) * log2e;
    double top[panel];
    for (int lane = 0; lane < panel; ++lane) top[lane] = static_cast<double>(m[lane]) * c;
    if (t.sinks) join_sinks(t, first_row, count, state, top);
    alignas(64) float divisor[panel];  // not its inverse: the mean of equal values is exact
    for (int lane = 0; lane < panel; ++lane)
      divisor[lane] = l[lane] == 0 && !TESSERA_FAULT(empty_row_divided) ? 1 : l[lane];
    float* rows[panel];
    char* targets[panel];
    for (int lane = 0; lane < count; ++lane) {
      const std::int64_t head = (first_row + lane) / t.queries, query = (first_row + lane) % t.queries;
      const void* o = element(t.o, t.out_dtype, head * t.o_head_stride + query * t.o_token_stride);
      targets[lane] = static_cast<char*>(const_cast<void*>(o));
      rows[lane] = t.out_dtype == DType::f32 ? reinterpret_cast<float*>(targets[lane]) : buffer + lane * t.dim_v;
      if (t.lse)
        t.lse[head * t.lse_head_stride + query * t.lse_token_stride] =
            l[lane] == 0 ? -__builtin_inff()
                         : static_cast<float>((top[lane] + __builtin_log2(static_cast<double>(l[lane]))) *
                                              (TESSERA_FAULT(lse_base_2) ? 1.0 : ln2));
    }
    S::transpose_out(state, t.dim_v, divisor, rows, count);
    if (t.out_dtype != DType::f32)
      for (int lane = 0; lane < count; ++lane) S::narrow(t.out_dtype, rows[lane], t.dim_v, targets[lane]);
  }

  // ---------------------------------------------------------------------------------------------- the loop
  // Whether some row is not finite: 0 * x is NaN for exactly those, and NaN stays in a sum. Marks them in bad[panel].
  static bool not_finite(const Tile& t, const float* state, float* bad) {
    F sums[2] = {S::set(0), S::set(0)};
    for (std::int64_t j = 0; j < t.dim_v; ++j)
      for (int half = 0; half < 2; ++half)
        sums[half] = S::fma(S::set(0), S::load(state + j * panel + half * lanes), sums[half]);
    S::store(bad, sums[0]), S::store(bad + lanes, sums[1]);
    bool any = false;
    for (int lane = 0; lane < panel; ++lane) any = any || bad[lane] != bad[lane];
    return any;
  }

  // Streams the item's keys past the panels [first, last), whose states start at `states`.
  template <bool Select>
  static void stream(const Tile& t, const Scratch& w, std::int64_t first, std::int64_t last, float* states,
                     float* closed) {
    const Positions ends[2] = {{t, first * panel}, {t, (last - 1) * panel}};
    const std::int64_t padded_rows = (t.rows() + panel - 1) / panel * panel;
    Applied score(t.score, padded_rows, w.mods);
    Applied evaluated(t.mask, padded_rows, w.mods + mod_floats(t.score, padded_rows, k_block, panel));
    if (t.score) fill_rows(t, t.score, padded_rows, panel, score.slots);
    if (t.mask) fill_rows(t, t.mask, padded_rows, panel, evaluated.slots);
    Seen seen;
    const bool one_head = t.heads == 1;
    for (std::int64_t split = t.k_begin; split == t.k_begin || split < t.k_end; split += t.kv_split) {
      const std::int64_t split_end = min(split + t.kv_split, t.k_end);
      for (std::int64_t p = first; p < last; ++p) clear(t, states + (p - first) * w.state_size);
      Cover all{Coverage::partial, split, split_end};
      if (one_head && split < split_end) all = t.tiles->cover(ends[0].begin, ends[1].end, split, split_end);
      for (std::int64_t key = all.k_begin / k_block * k_block; key < all.k_end; key += k_block) {
        if (t.runs) key = next_block(t, key, k_block);
        if (key >= all.k_end) break;
        const std::int64_t begin = max(key, all.k_begin);
        std::int64_t end = min(key + k_block, all.k_end);
        if (TESSERA_FAULT(last_block_dropped) && end == t.k_end && end < key + k_block) end = max(begin, key);
        if (begin >= end) continue;
        std::int64_t k_stride, v_stride;
        const float* k = rows_fp32(t, t.k, begin, end - begin, t.dim, last - first, w.k, k_stride);
        const float* v = rows_fp32(t, t.v, begin, end - begin, t.dim_v, last - first, w.v, v_stride);
        score.start(begin, end - begin), evaluated.start(begin, end - begin);
        Ahead ahead(t, end, max(0, min(k_block, all.k_end - end)), (last - first) * (k_block / S::qk_keys));
        for (std::int64_t p = first; p < last; ++p) {
          const Positions at(t, p * panel);
          const Cover c =
              t.mask ? seen.look(t, evaluated, p * panel, begin, end) : t.tiles->cover(at.begin, at.end, begin, end);
          if (c.coverage == Coverage::empty) continue;
          const std::int64_t skip = c.k_begin - begin;
          block<Select>(t, at, c.coverage == Coverage::partial, t.mask ? seen.bits + skip : nullptr,
                        k + skip * k_stride, k_stride, v + skip * v_stride, v_stride, c.k_begin, c.k_end - c.k_begin,
                        w.q + p * w.q_size, w.s, states + (p - first) * w.state_size, ahead, score);
        }
      }
      if (split == t.k_begin && split_end == t.k_end) break;
      for (std::int64_t p = first; p < last; ++p) {
        float *state = states + (p - first) * w.state_size, *total = closed + (p - first) * w.state_size;
        if (split == t.k_begin) copy(t, total, state);
        else merge(t, total, state);
        if (split_end == t.k_end) copy(t, state, total);
      }
    }
  }

  static void forward(const Tile& t, float* scratch) {
    const Scratch w(t, scratch);
    const std::int64_t panels = (t.rows() + panel - 1) / panel;
    for (std::int64_t p = 0; p < panels; ++p) pack(t, p * panel, w.rows, w.q + p * w.q_size);
    stream<false>(t, w, 0, panels, w.state, w.closed);
    for (std::int64_t p = 0; p < panels; ++p) {
      float* state = w.state + p * w.state_size;
      alignas(64) float bad[panel];
      if (not_finite(t, state, bad) && !TESSERA_FAULT(redo_skipped)) {
        // A masked key (by the mask, or by a score of -inf) may have leaked as 0 * NaN: again, selecting, and keep only
        // the rows that were not finite.
        stream<true>(t, w, p, p + 1, w.redone, w.closed + p * w.state_size);
        for (std::int64_t i = 0; i < state_floats(panel, t.dim_v); ++i)
          if (bad[i % panel] != bad[i % panel]) state[i] = w.redone[i];
      }
      if (t.partial) copy(t, t.partial + p * state_floats(panel, t.dim_v), state);
      else finish(t, p * panel, state, w.rows);
    }
  }

  static void combine(const Tile& t, std::int64_t splits, std::int64_t split_stride, float* scratch) {
    const Scratch w(t, scratch);
    for (std::int64_t first = 0; first < t.rows(); first += panel) {
      const float* part = t.partial + first / panel * state_floats(panel, t.dim_v);
      copy(t, w.state, part);
      for (std::int64_t i = 1; i < splits - (TESSERA_FAULT(last_split_dropped) ? 1 : 0); ++i)
        merge(t, w.state, part + i * split_stride);
      finish(t, first, w.state, w.rows);
    }
  }

  static const Kernels& table() {
    static constexpr Kernels kernels{S::name, panel, k_block, &scratch_floats, &forward, &combine};
    return kernels;
  }
};

}  // namespace
}  // namespace tessera::cpu
