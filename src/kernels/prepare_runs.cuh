// From captured tensors on the device to the work list: summaries of the tensors, in the passes of
// mods/shared/summaries.inl, then the runs of every query tile, by the bounds that emit/bounds_text.hpp made of the
// mask. Stands after bounds_prelude(). A warp decides 32 ranges of keys at a time: as long ones first, and of those
// that are mixed 32 parts; single tiles that their bounds leave open are looked at pair by pair. Every tile is decided
// for itself, so the runs are those that the host finds in another order, unless the effort ends before. Must not know:
// heads' tensors, instructions.
#pragma once
#include "prepare.cuh"

namespace tessera_kernels {

using bounds_math::SummaryEntry;
using bounds_math::SummaryLayout;
using bounds_math::SummaryView;
using bounds_math::Truth;

template <int captures>
struct PrepareShared {
  SummaryView views[captures > 0 ? captures : 1];
  SummaryEntry partial[prepare_threads];
  PrefixShared prefix;
};

PTX i64 shfl_xor(i64 x, unsigned mask) {
  const unsigned low = ptx::shfl_xor((unsigned)(unsigned long long)x, mask);
  const unsigned high = ptx::shfl_xor((unsigned)((unsigned long long)x >> 32), mask);
  return (i64)((unsigned long long)high << 32 | low);
}

// One summary's pass, index [first, entries of the pass) in steps. Pass 0 reads the tensor: a warp an entry, so that
// its loads lie side by side.
template <class Spec>
static LONG_FUNCTION void make_entries(const typename Spec::Arguments& args, const SummaryView& view, int slot,
                                       int pass, i64 first, i64 step) {
  auto* entries = const_cast<SummaryEntry*>(view.entries);
  const i64 count = bounds_math::entries_of(view.layout, pass), begin = bounds_math::first_entry(view.layout, pass);
  if (pass > 0) {
    for (i64 i = first; i < count; i += step) {
      const SummaryEntry made = bounds_math::made_entry(view.layout, view.entries, bounds_math::NoScan{}, pass, i);
      entries[begin + i] = made;
    }
    return;
  }
  const unsigned lane = threadIdx.x % 32;
  const i64 across = bounds_math::blocks_at(view.layout.columns, 0);
  for (i64 i = first / 32; i < count; i += step / 32) {
    const i64 line = i / across, from = i % across * bounds_math::summary_block;
    SummaryEntry sum = bounds_math::no_elements();
    for (i64 column = from + lane; column < from + bounds_math::summary_block && column < view.layout.columns;
         column += 32)
      bounds_math::merge(sum, Spec::element(args, slot, line, column));
    for (unsigned mask = 16; mask > 0; mask /= 2)
      bounds_math::merge(sum, {shfl_xor(sum.lo, mask), shfl_xor(sum.hi, mask),
                               (unsigned long long)shfl_xor((i64)sum.signature, mask)});
    if (lane == 0) entries[begin + i] = sum;
  }
}

// The entry of all elements, from the highest level.
PTX void make_last_entry(const SummaryView& view, SummaryEntry* partial) {
  const unsigned thread = threadIdx.x;
  SummaryEntry sum = bounds_math::no_elements();
  const i64 begin = bounds_math::first_entry(view.layout, bounds_math::passes_of(view.layout) - 2);
  for (i64 i = begin + thread; i < view.layout.entries; i += prepare_threads) bounds_math::merge(sum, view.entries[i]);
  partial[thread] = sum;
  __syncthreads();
  for (unsigned half = prepare_threads / 2; half > 0; half /= 2) {
    if (thread < half) bounds_math::merge(partial[thread], partial[thread + half]);
    __syncthreads();
  }
  if (thread == 0) const_cast<SummaryEntry*>(view.entries)[view.layout.entries] = partial[0];
}

// One query tile. Every lane has the same numbers, but for what stands in the functions of lanes.
template <class Mask>
struct WarpRow {
  const Mask& mask;
  i64 q_begin, q_end, keys, k_tile, effort;
  KeyRun* out;
  i64 limit, count;
  i64 last_begin, last_end;
  bool last_full;
  bool seen_true, seen_false;  // what settle() asks for

  __device__ __forceinline__ bool spend(i64 evaluations) {
    effort = effort > evaluations ? effort - evaluations : 0;
    return effort > 0;
  }
  // Cells of one tile (settle() of tiles/shared/decisions.inl): one, and 32 at a time.
  __device__ __forceinline__ bool sample(i64 q, i64 k) {
    if (!spend(1)) return true;
    if (mask.cell(q, k)) seen_true = true;
    else seen_false = true;
    return seen_true && seen_false;
  }
  __device__ __forceinline__ bool line(i64 q, i64 k_begin, i64 k_end) {
    for (i64 k = k_begin; k < k_end; k += 32) {
      if (!spend(32)) return true;
      const i64 here = k + threadIdx.x % 32;
      const bool inside = here < k_end, attends = inside && mask.cell(q, here);
      if (ptx::any(attends)) seen_true = true;
      if (ptx::any(inside && !attends)) seen_false = true;
      if (seen_true && seen_false) return true;
    }
    return false;
  }

  __device__ __forceinline__ void put(i64 begin, i64 end, bool full) {
    const bool joins = count > 0 && last_end == begin && last_full == full;
    if (joins || count == limit) {  // beyond the limit what is between becomes a part of it: slower, and not wrong
      last_end = end, last_full = joins && full;
      return;
    }
    finish();
    last_begin = begin, last_end = end, last_full = full, ++count;
  }
  __device__ __forceinline__ void finish() const {
    if (count > 0 && threadIdx.x % 32 == 0)
      out[count - 1] = {(unsigned)last_begin, (unsigned)last_end | (last_full ? 0x80000000u : 0u)};
  }

  // 32 ranges of `size` key tiles from `begin` on: which are full, and which are mixed or not known.
  LONG_FUNCTION void decide(i64 begin, i64 size, i64 end, unsigned& full, unsigned& mixed) {
    const i64 from = begin + threadIdx.x % 32 * size, to = bounds_math::lower(from + size, end);
    const bool inside = from < end;
    Truth t = Truth::mixed;
    const bool enough = effort > 0;
    if (enough && inside) t = mask.decide({q_begin, q_end, from * k_tile, bounds_math::lower(keys, to * k_tile)});
    full = ptx::ballot(inside && t == Truth::always), mixed = ptx::ballot(inside && t == Truth::mixed);
    if (!enough) return;
    spend(bounds_math::lower((i64)32, (end - begin + size - 1) / size));
    if (size > 1 || mixed == 0) return;
    // Two corners tell most mixed tiles from others; each lane looks at its own.
    bool open = inside && t == Truth::mixed;
    if (open) {
      const i64 k_first = from * k_tile, k_last = bounds_math::lower(keys, k_first + k_tile) - 1;
      open = mask.cell(q_begin, k_last) == mask.cell(q_end - 1, k_first);
    }
    spend(64);
    for (unsigned left = ptx::ballot(open); left != 0; left &= left - 1) {
      unsigned lane = 0;
      while ((left >> lane & 1) == 0) ++lane;
      const i64 k_first = (begin + lane) * k_tile;
      seen_true = seen_false = false;
      t = bounds_math::settle(*this, q_begin, q_end, k_first, bounds_math::lower(keys, k_first + k_tile));
      if (t != Truth::mixed) mixed &= ~(1u << lane);
      if (t == Truth::always) full |= 1u << lane;
    }
  }

  // The key tiles [0, end), in order.
  __device__ __forceinline__ void walk(i64 end) {
    constexpr int most_levels = 7;  // 32^7 > 2^31
    unsigned full[most_levels], mixed[most_levels];
    i64 base[most_levels], size = 1;
    int level = 0;
    while (size * 32 < end) size *= 32, ++level;
    const int top = level;
    base[level] = 0;
    decide(0, size, end, full[level], mixed[level]);
    for (;;) {
      const unsigned left = full[level] | mixed[level];
      if (left == 0) {
        if (level == top) return;
        ++level, size *= 32;
        continue;
      }
      unsigned child = 0;
      while ((left >> child & 1) == 0) ++child;
      const i64 from = base[level] + child * size, to = bounds_math::lower(from + size, end);
      const bool is_full = (full[level] >> child & 1) != 0;
      full[level] &= ~(1u << child), mixed[level] &= ~(1u << child);
      if (is_full || level == 0 || effort == 0) {
        put(from, to, is_full);
      } else {
        --level, size /= 32, base[level] = from;
        decide(from, size, to, full[level], mixed[level]);
      }
    }
  }
};

// A warp's query tile: which one, and its runs.
template <class Spec>
static LONG_FUNCTION void find_runs(const PrepareParams& p, const typename Spec::Arguments& args,
                                    const SummaryView* views, i64 item) {
  const i64 map = item / p.tiles;
  i64 tile = item % p.tiles, b = Spec::packed ? 0 : map / p.map_heads;
  const i64 h = Spec::packed ? map : map % p.map_heads;
  const unsigned first = (unsigned)(item * p.run_limit);
  const bool leads = threadIdx.x % 32 == 0;
  if (leads) p.run_ranges[item] = {first, first};
  if (Spec::packed) {
    if (tile >= p.tiles_before[p.sequences.batch]) return;
    b = sequence_of_tile(p.tiles_before, p.sequences.batch, tile);
    tile -= p.tiles_before[b];
  }
  const Sequence at = sequence_of(p.sequences, b);
  const i64 begin = tile * Spec::q_tile, end = bounds_math::lower(at.queries, begin + Spec::q_tile);
  if (begin >= end || at.keys == 0) return;
  const typename Spec::Mask mask(b, h, args, views);
  const i64 tiles = (at.queries + Spec::q_tile - 1) / Spec::q_tile,
            key_tiles = (at.keys + Spec::k_tile - 1) / Spec::k_tile;
  const i64 effort = bounds_math::row_effort(Spec::q_tile, at.keys, tiles) + bounds_math::least_effort;
  WarpRow<typename Spec::Mask> row = {mask,
                                      at.q_offset + begin,
                                      at.q_offset + end,
                                      at.keys,
                                      Spec::k_tile,
                                      effort,
                                      p.runs + item * p.run_limit,
                                      p.run_limit,
                                      0,
                                      0,
                                      0,
                                      false,
                                      false,
                                      false};
  row.walk(key_tiles);
  row.finish();
  if (leads) p.run_ranges[item] = {first, first + (unsigned)row.count};
}

template <class Spec>
PTX void prepare_all(const PrepareParams& p, const typename Spec::Arguments& args) {
  auto& shared = ptx::shared_memory<PrepareShared<Spec::captures>>();
  const int thread = (int)threadIdx.x;
  if (thread < Spec::captures)
    shared.views[thread] = {Spec::layout(args, thread), static_cast<const SummaryEntry*>(p.entries[thread]), {}};
  __syncthreads();
  if (p.stage == prepare_entries) {
    const i64 first = (i64)blockIdx.x * prepare_threads + thread, step = (i64)gridDim.x * prepare_threads;
    for (int slot = 0; slot < Spec::captures; ++slot)
      if (p.entries[slot] && p.pass < bounds_math::passes_of(shared.views[slot].layout) - 1)
        make_entries<Spec>(args, shared.views[slot], slot, p.pass, first, step);
  } else if (p.stage == prepare_rest) {
    for (int slot = 0; slot < Spec::captures; ++slot) {
      if (!p.entries[slot]) continue;
      for (int pass = p.pass; pass < bounds_math::passes_of(shared.views[slot].layout) - 1; ++pass) {
        make_entries<Spec>(args, shared.views[slot], slot, pass, thread, prepare_threads);
        __syncthreads();  // the next pass reads them
      }
      make_last_entry(shared.views[slot], shared.partial);
      __syncthreads();
    }
    if (Spec::packed) count_tiles(p, Spec::q_tile, shared.prefix);
    check_sequences(p.sequences);
  } else {
    const i64 item = (i64)blockIdx.x * prepare_warps + thread / 32;
    if (item < p.tiles * p.map_batch * p.map_heads) find_runs<Spec>(p, args, shared.views, item);
  }
}

}  // namespace tessera_kernels
