// Mods over one item of work: a program with its slots, and what a mask says of a panel and a block of keys, as bits.
// Included by forward.hpp, under its rules. Must not know: plans, threads, how scores are computed.
#pragma once
#include "cpu/fault.hpp"
#include "cpu/kernels.hpp"
#include "cpu/mod_steps.hpp"

namespace tessera::cpu {
namespace {

// A mod with its slots, in the scratch of one item. The slots of a block of keys are filled when first asked for.
template <class S>
struct Applied {
  static constexpr int panel = 2 * S::lanes;
  const Mod& mod;
  const Mod wide;
  Slots slots, wide_slots;
  float *buffers, *values;
  std::int64_t padded_rows, key = 0, keys = 0;  // of the block at hand
  std::int64_t wide_key = -1;                   // the block whose wide slots are filled
  std::int64_t row_filled = -1, wide_row = -1;  // the panels whose slots of pairs by rows are
  bool filled = false;

  Applied(const Mod& m, std::int64_t rows, float* at)
      : mod(m), wide(bind(m.wide, m.tables, m.table_count)), padded_rows(rows) {
    slots.stride = slot_stride(mod, rows, S::k_block, panel),
    wide_slots.stride = slot_stride(wide, rows, S::k_block, panel);
    slots.at = at, wide_slots.at = at + m.slot_count * slots.stride;
    buffers = wide_slots.at + wide.slot_count * wide_slots.stride;
    values = buffers + (m.buffers > wide.buffers ? m.buffers : wide.buffers) * strip_keys * panel;
  }
  void start(std::int64_t first, std::int64_t n) { key = first, keys = n, filled = false, row_filled = -1; }
  // out [n][panel], from scores s (out may be s): rows of the panel at `row`, keys [first, first + n) of the block, n
  // <= strip_keys.
  void run(const Tile& t, std::int64_t row, std::int64_t first, std::int64_t n, const float* s, float* out) {
    if (!filled) fill_keys(t, mod, padded_rows, panel, key, keys, slots), filled = true;
    if (mod.by_rows && row_filled != row) fill_by_rows(t, mod, row, panel, key, keys, slots), row_filled = row;
    if (!slots.exact || !slots.by_rows_exact ||
        !fill_pairs(t, mod, padded_rows, row, panel, first, n, s, &S::transpose_in, slots))
      return run_wide(t, row, first, n, s, out);
    Steps<S>::run({mod, slots, row, first - key, keys, s, buffers}, n, out);
  }
  __attribute__((noinline)) void run_wide(const Tile& t, std::int64_t row, std::int64_t first, std::int64_t n,
                                          const float* s, float* out) {
    if (wide_key < 0) fill_rows(t, wide, padded_rows, panel, wide_slots);
    if (wide_key != key) fill_keys(t, wide, padded_rows, panel, key, keys, wide_slots), wide_key = key, wide_row = -1;
    if (wide.by_rows && wide_row != row) fill_by_rows(t, wide, row, panel, key, keys, wide_slots), wide_row = row;
    fill_pairs(t, wide, padded_rows, row, panel, first, n, s, &S::transpose_in, wide_slots);
    Steps<S>::run({wide, wide_slots, row, first - key, keys, s, buffers}, n, out);
  }
};

// Which rows of a panel attend to which keys of a block. It is asked for before the scores are computed: what no row
// attends to is left out, key by key, however coarse the runs are.
template <class S>
struct Seen {
  static constexpr int lanes = S::lanes, panel = 2 * lanes;
  static constexpr std::uint32_t every = static_cast<std::uint32_t>((std::uint64_t{1} << panel) - 1);

  std::uint32_t bits[S::k_block];  // of each key looked at: bit i for row i of the panel. Not filled where all are full

  // Of keys [first, last) of one block, for the panel at `row`.
  __attribute__((noinline)) Cover look(const Tile& t, Applied<S>& mask, std::int64_t row, std::int64_t first,
                                       std::int64_t last) {
    std::int64_t begin = first, end = first;
    bool full = true;
    for (std::int64_t key = first; key < last;) {
      Cover c{Coverage::partial, key, last};
      if (t.runs) c = first_run(t, row, key, last);
      if (c.coverage == Coverage::empty) break;
      if (begin == end) begin = end = c.k_begin;
      if (full && (c.coverage == Coverage::partial || c.k_begin > end)) {
        full = false;  // from here on the bits count
        for (std::int64_t i = 0; i < last - first; ++i) bits[i] = i >= begin - first && i < end - first ? every : 0;
      }
      if (c.coverage == Coverage::partial) evaluate(t, mask, row, first, c.k_begin, c.k_end);
      else if (!full)
        for (std::int64_t i = c.k_begin; i < c.k_end; ++i) bits[i - first] = every;
      key = end = c.k_end;
    }
    if (!full) {
      while (begin < end && bits[begin - first] == 0) ++begin;
      while (begin < end && bits[end - 1 - first] == 0) --end;
    }
    if (begin == end) return {Coverage::empty, begin, begin};
    if (full) return {Coverage::full, begin, end};
    // Whole register blocks: some keys more cost less than a few on their own.
    const std::int64_t more = (S::qk_keys - (end - begin) % S::qk_keys) % S::qk_keys;
    end += last - end < more ? last - end : more;
    return {all(bits + (begin - first), end - begin) ? Coverage::full : Coverage::partial, begin, end};
  }
  void evaluate(const Tile& t, Applied<S>& mask, std::int64_t row, std::int64_t first, std::int64_t from,
                std::int64_t to) {
    for (std::int64_t key = from; key < to; key += strip_keys) {
      const std::int64_t n = to - key < strip_keys ? to - key : strip_keys;
      mask.run(t, row, key, n, nullptr, mask.values);
      for (std::int64_t i = 0; i < n; ++i) {
        std::uint32_t b = 0;
        for (int half = 0; half < 2; ++half)
          b |= S::bits(S::eq(S::load(mask.values + i * panel + half * lanes), S::set(1))) << (half * lanes);
        bits[key + i - first] = b;
      }
    }
  }

  static bool all(const std::uint32_t* seen, std::int64_t n) {
    std::uint32_t b = every;
    for (std::int64_t i = 0; i < n; ++i) b &= seen[i];
    return b == every;
  }
  static bool none(const std::uint32_t* seen, std::int64_t n) {
    std::uint32_t b = 0;
    for (std::int64_t i = 0; i < n; ++i) b |= seen[i];
    return b == 0;
  }
};

}  // namespace
}  // namespace tessera::cpu
