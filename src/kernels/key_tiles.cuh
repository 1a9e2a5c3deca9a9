// The key tiles that a query tile needs, one after another, the last one first, and which of them need no mask: from
// all keys, from bands of k - q, or from a work list. Anchored at key 0, whatever the queries.
// Must not know: shared memory, softmax.
#pragma once
#include "sequence.cuh"

namespace tessera_kernels {

// A tile that is there is not negative; the bit says that each of its pairs is attended to.
constexpr i32 no_tile = -1, full_tile_bit = 1 << 30;
PTX i32 tile_of(i32 entry) { return entry & ~full_tile_bit; }
PTX bool is_full(i32 entry) { return (entry & full_tile_bit) != 0; }

PTX i64 floor_div(i64 a, i64 b) { return (a >= 0 ? a : a - b + 1) / b; }

// All keys and a single band are one range of tiles: the tile of a round is a formula, which every thread knows. What
// has gaps is walked by one thread, which writes down what it finds.
template <class S>
constexpr bool is_walked = S::keys == Keys::runs || (S::keys == Keys::bands && S::bands > 1);

// Keys that some of the tile's queries see in a band, and keys that all of them see: [begin, end) each.
struct Seen {
  i64 some_begin, some_end, all_begin, all_end;
};
template <class S>
PTX Seen seen_in_band(const ForwardParams& f, const Item& item, int band) {
  constexpr i32 queries = S::q_tile / S::heads;
  const i32 last_query = item.first_query + queries < item.n_q ? item.first_query + queries - 1 : item.n_q - 1;
  const i64 q_first = item.first_query + item.offset, q_last = last_query + item.offset;
  const i64 lo = f.band_lo[band], hi = f.band_hi[band], n_k = item.n_k;
  return {clamp(q_first + lo, 0, n_k), clamp(q_last + hi + 1, 0, n_k), clamp(q_last + lo, 0, n_k),
          clamp(q_first + hi + 1, 0, n_k)};
}

// The runs of the item's query tile in the work list.
template <class S>
PTX RunRange runs_of(const ForwardParams& f, const Item& item) {
  const i64 tile = S::packed ? item.tile_of_all : item.tile;
  const i64 map = (item.sequence * f.runs_batch + item.head * f.runs_head) * f.runs_tiles;
  return f.run_ranges[map + tile];
}

// Of what has gaps: from the first tile that some query of the item attends to, to the last one.
template <class S>
PTX void set_span(const ForwardParams& f, Item& item) {
  if constexpr (S::keys == Keys::bands) {
    const Seen first = seen_in_band<S>(f, item, 0), last = seen_in_band<S>(f, item, S::bands - 1);
    item.tiles_begin = (i32)first.some_begin / S::k_tile;
    item.tiles_end = ((i32)last.some_end + S::k_tile - 1) / S::k_tile;
  } else {
    const RunRange range = runs_of<S>(f, item);
    const bool any = range.begin < range.end;
    const i32 end = any ? (i32)(f.runs[range.end - 1].end_full & 0x7fffffffu) : 0;
    item.tiles_begin = any ? (i32)f.runs[range.begin].begin : 0;
    if (end < item.tiles_end) item.tiles_end = end;
  }
}

// The tiles that the item's split has of the keys: all of them without masks. Splits share evenly what the query tile
// attends to, wherever that lies in however long a cache.
template <class S>
PTX void set_tiles(const ForwardParams& f, Item& item) {
  item.tiles_begin = 0, item.tiles_end = (item.n_k + S::k_tile - 1) / S::k_tile;
  // The last tile may reach beyond the keys.
  item.whole_begin = 0, item.whole_end = S::masked ? 0 : item.n_k / S::k_tile;
  if constexpr (S::keys == Keys::bands && S::bands == 0) item.tiles_end = 0;
  if constexpr (S::keys == Keys::bands && S::bands == 1) {
    const Seen seen = seen_in_band<S>(f, item, 0);
    item.tiles_begin = (i32)seen.some_begin / S::k_tile;
    item.tiles_end = seen.some_begin < seen.some_end ? ((i32)seen.some_end + S::k_tile - 1) / S::k_tile : 0;
    item.whole_begin = ((i32)seen.all_begin + S::k_tile - 1) / S::k_tile;
    item.whole_end = (i32)seen.all_end / S::k_tile;
  }
  if constexpr (S::split) {
    if constexpr (is_walked<S>) set_span<S>(f, item);
    const i32 span = item.tiles_end - item.tiles_begin, tiles = span > 0 ? (span + f.splits - 1) / f.splits : 0;
    const i32 begin = item.tiles_begin + (i32)item.split * tiles;
    item.tiles_begin = begin;
    if (begin + tiles < item.tiles_end) item.tiles_end = begin + tiles;
  }
}

// The tile of a round, with its bit, or no_tile. The last one comes first, here and where tiles are walked: under a
// causal mask or a window every row meets keys of its own there, and under ALiBi its largest scores.
PTX i32 tile_of_round(const Item& item, int round) {
  const i32 tile = ptx::made_here(item.tiles_end - 1) - round, from = item.whole_begin, to = item.whole_end;
  const i32 entry = (from <= tile) & (tile < to) ? tile | full_tile_bit : tile;
  return tile >= item.tiles_begin ? entry : no_tile;
}

// Where the runs of a work list are.
template <bool Runs>
struct RunState {};
template <>
struct RunState<true> {
  const KeyRun *run_begin, *run_end;  // those that are still to come: the last one first
  KeyRun ahead;                       // run_end[-1], read before it is needed
};

// Tiles come in segments [begin, tile), each full or not, the last tile first. refill() finds the segment that ends at
// or before `tile`. Few registers: the loop around it has none to spare.
template <class S>
struct alignas(16) KeyTiles : RunState<S::keys == Keys::runs> {
  i32 tile, begin;  // begin: with full_tile_bit

  static DEVICE KeyTiles start(const ForwardParams& f, const Item& item) {
    KeyTiles t{};
    t.tile = t.begin = item.tiles_end;
    if constexpr (S::keys == Keys::runs) {
      const RunRange range = runs_of<S>(f, item);
      t.run_begin = f.runs + range.begin, t.run_end = f.runs + range.end;
      if (t.run_begin < t.run_end) t.ahead = t.run_end[-1];
    }
    return t;
  }

  // The next tile with its bit, or no_tile.
  DEVICE i32 next(const ForwardParams& f, const Item& item) {
    if (tile <= tile_of(begin) && !refill(f, item)) return no_tile;
    return --tile | (begin & full_tile_bit);
  }

 private:
  DEVICE void set(bool full, i32 from, const Item& item) {
    if (from < item.tiles_begin) from = item.tiles_begin;
    begin = from | (full ? full_tile_bit : 0);
  }
  DEVICE bool refill(const ForwardParams& f, const Item& item) {
    if (tile <= item.tiles_begin) return false;
    if constexpr (S::keys == Keys::runs) return refill_from_runs(item);
    else return refill_from_bands(f, item);
  }

  DEVICE bool refill_from_bands(const ForwardParams& f, const Item& item) {
    for (int band = S::bands - 1; band >= 0; --band) {
      const Seen seen = seen_in_band<S>(f, item, band);
      if (seen.some_begin >= seen.some_end) continue;
      const i32 from = (i32)seen.some_begin / S::k_tile, to = ((i32)seen.some_end + S::k_tile - 1) / S::k_tile;
      const i32 whole_from = ((i32)seen.all_begin + S::k_tile - 1) / S::k_tile,
                whole_to = (i32)seen.all_end / S::k_tile;
      if (to < tile) tile = to;
      if (tile <= item.tiles_begin) return false;
      if (tile <= from) continue;
      const bool full = whole_from < tile && tile <= whole_to;
      set(full, full ? whole_from : whole_to < tile && whole_from < whole_to ? whole_to : from, item);
      return true;
    }
    return false;
  }

  DEVICE bool refill_from_runs(const Item& item) {
    const i32 whole = item.n_k / S::k_tile;
    while (this->run_begin < this->run_end) {
      const i32 from = (i32)this->ahead.begin, to = (i32)(this->ahead.end_full & 0x7fffffffu);
      const bool run_full = this->ahead.end_full >> 31;
      if (tile > to) tile = to;
      if (tile <= item.tiles_begin) return false;
      if (tile <= from) {
        if (this->run_begin < --this->run_end) this->ahead = this->run_end[-1];
        continue;
      }
      const bool full = run_full && tile <= whole;
      set(full, run_full && !full && whole > from ? whole : from, item);
      return true;
    }
    return false;
  }
};

}  // namespace tessera_kernels
