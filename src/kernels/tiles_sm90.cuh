// The key tiles of a work item, the last one first: of a causal mask the tiles on its edge are the first to come, while
// there is nothing yet that would have to be rescaled. Which tiles there are, and which need no mask, is as in
// key_tiles.cuh; there is always one at least, so that every row gets its O and its LSE.
// Must not know: shared memory, softmax.
#pragma once
#include "key_tiles.cuh"

namespace tessera_kernels {

// Tiles [begin, tile) of the segment in hand are still to come, all full or none; below `limit` nothing has been given.
template <class S>
struct TilesDown {
  // Where they are needed and not before: those who walk have few registers.
  const KeyRun *run, *run_end;
  volatile i32 tile, begin, limit;
  volatile i32 band;
  volatile i32 full;   // the bit, or 0
  volatile i32 ahead;  // the tile that next() gives, with its bit, or no_tile

  DEVICE void start(const ForwardParams& f, const Item& item) {
    tile = 0, begin = 0, full = 0, limit = item.tiles_end, band = S::keys == Keys::bands ? S::bands : 1;
    if constexpr (S::keys == Keys::runs) {
      const i64 query_tile = S::packed ? item.tile_of_all : item.tile;
      const i64 map = (item.sequence * f.runs_batch + item.head * f.runs_head) * f.runs_tiles;
      const RunRange range = f.run_ranges[map + query_tile];
      run = f.runs + range.begin, run_end = f.runs + range.end;
    }
    ahead = not_begun;
  }
  // Not after the last one, which is what leaves `ahead` at no_tile. (One loop, so that step() stands in the code
  // once.)
  DEVICE i32 next(const ForwardParams& f, const Item& item) {
    i32 now;
#pragma unroll 1
    do {
      now = ahead;
      ahead = step(f, item);
      if (now == not_begun && ahead == no_tile) ahead = item.tiles_begin;
    } while (now == not_begun);
    return now;
  }

 private:
  static constexpr i32 not_begun = -2;
  DEVICE i32 step(const ForwardParams& f, const Item& item) {
    if (tile <= begin && !refill(f, item)) return no_tile;
    const i32 now = tile - 1;
    tile = now;
    return now | full;
  }
  DEVICE bool set(i32 from, i32 to, bool is_full) {
    begin = from, limit = from, tile = to, full = is_full ? full_tile_bit : 0;
    return true;
  }
  DEVICE bool refill(const ForwardParams& f, const Item& item) {
    if (limit <= item.tiles_begin) return false;
    if constexpr (S::keys == Keys::all) {
      i32 whole = S::masked ? 0 : item.n_k / S::k_tile;
      if (whole < item.tiles_begin) whole = item.tiles_begin;
      return whole < limit ? set(whole, limit, false) : set(item.tiles_begin, limit, true);
    } else if constexpr (S::keys == Keys::bands) {
      return refill_from_bands(f, item);
    } else {
      return refill_from_runs(item);
    }
  }

  // The first key from query + distance on.
  static DEVICE i32 edge(i64 query, i64 distance, i32 n_k) { return (i32)clamp(query + distance, 0, n_k); }

  DEVICE bool refill_from_bands(const ForwardParams& f, const Item& item) {
    constexpr i32 queries = S::q_tile / S::heads;
    const i32 last_query = item.first_query + queries < item.n_q ? item.first_query + queries - 1 : item.n_q - 1;
    while (band > 0) {
      band = band - 1;
      // Tiles that hold keys which some query sees, and tiles whose keys all see.
      const i32 n_k = item.n_k;
      i32 from = edge(item.first_query + item.offset, f.band_lo[band], n_k);
      i32 to = edge(last_query + item.offset, f.band_hi[band] + 1, n_k);
      if (from >= to) continue;
      from = from / S::k_tile, to = (to + S::k_tile - 1) / S::k_tile;
      i32 whole_from = (edge(last_query + item.offset, f.band_lo[band], n_k) + S::k_tile - 1) / S::k_tile;
      i32 whole_to = edge(item.first_query + item.offset, f.band_hi[band] + 1, n_k) / S::k_tile;
      if (from < item.tiles_begin) from = item.tiles_begin;
      if (to > limit) to = limit;
      if (from >= to) continue;
      if (whole_from < from) whole_from = from;
      if (whole_to > to) whole_to = to;
      if (whole_from >= whole_to) return set(from, to, false);
      band = band + 1;  // once more, for what lies below
      if (whole_to < to) return set(whole_to, to, false);
      return set(whole_from, to, true);
    }
    return false;
  }

  DEVICE bool refill_from_runs(const Item& item) {
    const i32 whole = item.n_k / S::k_tile;
    while (run < run_end) {
      const KeyRun r = run_end[-1];
      i32 from = (i32)r.begin, to = (i32)(r.end_full & 0x7fffffffu);
      bool is_full = r.end_full >> 31;
      if (from < item.tiles_begin) from = item.tiles_begin;
      if (to > limit) to = limit;
      if (from >= to) {
        --run_end;
        continue;
      }
      if (is_full && to > whole) is_full = false, from = whole > from ? whole : from;
      return set(from, to, is_full);
    }
    return false;
  }
};

}  // namespace tessera_kernels
