// Which tokens belong to a sequence: from metadata on the device, which may hold anything, to numbers that every kernel
// may rely on. All kernels of a call clamp by this one function, so they agree whatever they find.
// Must not know: tiles, masks.
#pragma once
#include "params.cuh"
#include "ptx/base.cuh"

namespace tessera_kernels {

// As far as positions go (mods::farthest), so that sums of a few of them cannot overflow.
constexpr i64 farthest_offset = 1LL << 48;
constexpr i64 most_tokens = 0x7fffff00;  // of a sequence; the width of a block table may promise more

struct Sequence {
  i64 q_begin, queries;  // packed: rows from the first one of all sequences
  i64 k_begin, keys;
  i64 q_offset;     // logical position of the first query
  unsigned errors;  // what was clamped
};

PTX i64 clamp(i64 x, i64 lo, i64 hi) { return x < lo ? lo : x > hi ? hi : x; }

PTX i64 number(const Numbers& n, i64 i) {
  return n.bytes == 8 ? static_cast<const i64*>(n.data)[i * n.stride] : static_cast<const int*>(n.data)[i * n.stride];
}

// The rows [begin, begin + count) of sequence b, within `total`; whether the prefix sums say just that.
PTX bool rows_of(const Numbers& sums, i64 b, i64 total, i64& begin, i64& count) {
  const i64 from = number(sums, b), to = number(sums, b + 1);
  begin = clamp(from, 0, total), count = clamp(to, begin, total) - begin;
  return begin == from && begin + count == to && (b > 0 || from == 0);
}

// Sequence b, 0 <= b < s.batch.
PTX Sequence sequence_of(const Sequences& s, i64 b) {
  Sequence at = {0, clamp(s.tokens_q, 0, most_tokens), 0, clamp(s.tokens_k, 0, most_tokens), 0, 0};
  if (s.cu_q.bytes != 0 && !rows_of(s.cu_q, b, s.tokens_q, at.q_begin, at.queries)) at.errors |= error_prefix_sums;
  if (s.cu_k.bytes != 0 && !rows_of(s.cu_k, b, s.tokens_k, at.k_begin, at.keys)) at.errors |= error_prefix_sums;
  if (s.lengths.bytes != 0) {
    const i64 used = number(s.lengths, b), most = at.keys;
    at.keys = clamp(used, 0, most);
    if (at.keys != used) at.errors |= error_lengths;
  }
  if (s.q_offset.bytes != 0) at.q_offset = clamp(number(s.q_offset, b), -farthest_offset, farthest_offset);
  else at.q_offset = s.has_offset ? s.q_offset_all : at.keys - at.queries;
  return at;
}

// The sequence that the query tile `tile` of all sequences belongs to: the last one that has not more tiles before it.
// tiles_before: [batch + 1], ascending from 0; tile < tiles_before[batch].
PTX i64 sequence_of_tile(const i64* tiles_before, i64 batch, i64 tile) {
  i64 first = 0, last = batch;  // tiles_before[first] <= tile < tiles_before[last]
  while (last - first > 1) {
    const i64 middle = first + (last - first) / 2;
    if (tiles_before[middle] <= tile) first = middle;
    else last = middle;
  }
  return first;
}

}  // namespace tessera_kernels
