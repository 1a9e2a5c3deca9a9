// How tiles are decided: one text for the host (included by runs.cpp) and for devices (embedded by
// emit/bounds_text.cpp), after mods/shared/intervals.inl. No header is needed here, and none may be.

// Decides a box of queries [q_begin, q_end) and keys [k_begin, k_end) by its cells: first six samples, then all.
// cells.sample(q, k) and cells.line(q, k_begin, k_end) look at one and at many, and answer true when there is no need
// to look further: both values have been seen, or there is no effort left to see them. Then cells.seen_true tells what
// the cells are.
template <class Cells>
SHARED Truth settle(Cells& cells, int64 q_begin, int64 q_end, int64 k_begin, int64 k_end) {
  const int64 q_last = q_end - 1, k_last = k_end - 1;
  if (cells.sample(q_begin, k_last) || cells.sample(q_last, k_begin) || cells.sample(q_begin, k_begin) ||
      cells.sample(q_last, k_last) || cells.sample(q_begin, lower(k_begin + 1, k_last)) ||
      cells.sample(q_begin + (q_last - q_begin) / 2, k_begin + (k_last - k_begin) / 2))
    return Truth::mixed;
  // Rows in the order 0, n/2, n/4, 3n/4, ...: what differs is mostly found early.
  const int64 n = q_end - q_begin;
  int64 step = 1;
  ROLLED
  while (step * 2 < n) step *= 2;
  ROLLED
  for (int64 q = 0; q < n; q += step)
    if (cells.line(q_begin + q, k_begin, k_end)) return Truth::mixed;
  ROLLED
  for (; step > 1; step /= 2)
    ROLLED
    for (int64 q = step / 2; q < n; q += step)
      if (cells.line(q_begin + q, k_begin, k_end)) return Truth::mixed;
  return cells.seen_true ? Truth::always : Truth::never;
}

// The key tiles [begin, end) of one query tile, in order: halved where they are mixed, down to single tiles.
// row.bounds(j0, j1) and row.tile(j) are what can be known of several tiles and of one, row.exhausted() says that no
// effort is left, and row.put(j0, j1, full) takes what is attended to. end - begin < 2^31.
template <class Row>
SHARED void halve(Row& row, int64 begin, int64 end) {
  int64 ends[32];  // of the pieces that wait, the next one last
  int waiting = 0;
  ROLLED
  for (;;) {
    Truth t = Truth::mixed;
    const bool exhausted = row.exhausted(), single = end - begin == 1;
    if (!exhausted) t = single ? row.tile(begin) : row.bounds(begin, end);
    if (t == Truth::mixed && !exhausted && !single) {
      ends[waiting++] = end;
      end = begin + (end - begin) / 2;
      continue;
    }
    if (t != Truth::never) row.put(begin, end, t == Truth::always);
    if (waiting == 0) return;
    begin = end, end = ends[--waiting];
  }
}

// How many evaluations, of boxes or of single pairs, the runs of one query tile are worth, beside least_effort. Deciding
// a pair or a box costs some 50 ns on one core, attention a few ns for each pair. A mask that is mixed everywhere has as
// many tiles to decide as there are: beyond a fifth of a second for all query tiles, what grows with the queries alone
// must do, which is more than documents or blocks of any size take. The host has the sum of all query tiles for them
// together, a device one share for each: where neither ends, the runs are the same.
constexpr int64 least_effort = 4096;
SHARED int64 row_effort(int64 queries, int64 keys, int64 query_tiles) {
  const int64 most = 1 << 22, of_a_row = 128;
  const int64 pairs = keys <= (most << 8) / queries ? queries * keys / 256 : most;
  return lower(pairs, most / query_tiles + of_a_row);
}
