// What the bounds of masks call on a device, as text: the texts that the host shares, and what stands around them.
#include <string>

#include "emit/bounds_text.hpp"
#include "emit/shared_text.hpp"

namespace tessera::emit {
namespace {

constexpr std::string_view head = R"(namespace bounds_math {
// What is called from several places and is long stays a function: else compilers write it out at each of them.
#define LONG_FUNCTION __device__ __attribute__((noinline))
using namespace mod_math;
using int64 = long long;
using uint64 = unsigned long long;
#define SHARED static __device__ inline
#define LONG_SHARED [[maybe_unused]] static LONG_FUNCTION
// Loops that run a few times and are not worth the code of several copies.
#ifdef __CUDACC__
#define ROLLED _Pragma("unroll 1")
#else
#define ROLLED
#endif
)";

constexpr std::string_view tail = R"(#undef SHARED
// How an element of a table becomes a key.
struct IntegerKey {
  static constexpr bool real = false;
  static __device__ int64 of(int64 x) { return x; }
};
struct BooleanKey {
  static constexpr bool real = false;
  static __device__ int64 of(unsigned char x) { return x != 0; }
};
struct FloatKey {
  static constexpr bool real = true;
  static __device__ int64 of(float x) { return real_key(x); }
};
struct Bf16Key {
  static constexpr bool real = true;
  static __device__ int64 of(unsigned short x) { return real_key(from_bf16(x)); }
};
struct F16Key {
  static constexpr bool real = true;
  static __device__ int64 of(unsigned short x) { return real_key(from_f16(x)); }
};
// How a captured tensor is read: what made_entry() and elements_between() call.
template <class Key, class T>
struct Elements {
  const T* at;
  int64 stride[4], inner, rows;  // of outer, inner, row, column
  SummaryNames names;
  __device__ const T* line_at(int64 line) const {
    if (line == 0) return at;  // the only one of most tables; divisions of 64 bits are long
    const int64 row = line % rows, slice = line / rows;
    return at + slice / inner * stride[0] + slice % inner * stride[1] + row * stride[2];
  }
  // Of elements of a line; equal neighbours are looked at once.
  LONG_FUNCTION SummaryEntry operator()(int64 line, int64 begin, int64 end) const {
    const T* from = line_at(line);
    SummaryEntry sum = no_elements();
    int64 last = 0;
    ROLLED
    for (int64 i = begin; i < end; ++i) {
      const int64 key = Key::of(from[i * stride[3]]);
      if (i == begin || key != last) add_element(sum, key, Key::real, names, line);
      last = key;
    }
    return sum;
  }
};
// One element, for who looks at many of a line at the same time.
template <class Key, class T>
static __device__ SummaryEntry one_element(const Elements<Key, T>& elements, int64 line, int64 column) {
  SummaryEntry sum = no_elements();
  add_element(sum, Key::of(elements.line_at(line)[column * elements.stride[3]]), Key::real, elements.names, line);
  return sum;
}
struct NoScan {  // for the passes that read no table
  __device__ SummaryEntry operator()(int64, int64, int64) const { return any_element(); }
};
template <class Key, class T>
static LONG_FUNCTION SummaryEntry loaded(const Elements<Key, T>& elements, const SummaryView& table, const IntegerRange& outer,
                                      const IntegerRange& inner, const IntegerRange& row, const IntegerRange& column) {
  const int64 first[4] = {outer.lo, inner.lo, row.lo, column.lo}, last[4] = {outer.hi, inner.hi, row.hi, column.hi};
  return elements_between(table.layout, table.entries, elements, first, last);
}
template <class Key, class T>
struct Searches {
  const Elements<Key, T>& elements;
  int64 columns;
  __device__ int64 operator()(int64 line, int64 x) const {
    return upper_bound(elements.line_at(line), columns, elements.stride[3], x);
  }
};
template <class Key, class T>
static LONG_FUNCTION IntegerRange searched(const Elements<Key, T>& elements, const SummaryView& table, const IntegerRange& outer,
                                        const IntegerRange& inner, const IntegerRange& row, const IntegerRange& number) {
  if (!table.entries) return point(0);  // without elements
  const int64 first[4] = {outer.lo, inner.lo, row.lo, number.lo}, last[4] = {outer.hi, inner.hi, row.hi, number.hi};
  const Searches<Key, T> search = {elements, table.layout.columns};
  return searches_between(table.layout, search, first, last);
}
static __device__ bool within(int64 x, int64 far) { return -far <= x && x <= far; }

// Queries [q_begin, q_end) and keys [k_begin, k_end), not empty.
struct Box {
  int64 q_begin, q_end, k_begin, k_end;
};
// Queries from q_offset on, keys from 0 on; tile (i, j) begins at q_offset + i * q_tile and j * k_tile.
struct Grid {
  int64 q_offset, queries, keys, q_tile, k_tile;
};
// Key tiles [begin, end), the end in the low 31 bits; the highest one: full.
struct Run {
  unsigned begin, end_and_full;
};
struct TileRuns {
  int64 count;  // of the runs, those beyond `limit` included
  bool exact;   // false: the effort did not suffice, and some tiles that are called partial are full or empty
};

// One query tile: what halve() and settle() ask for, and where the runs go.
template <class Mask>
struct TileRow {
  const Mask& mask;
  const Grid& grid;
  int64 q_begin, q_end, effort;
  Run* out;
  int64 limit, count;
  Run last;
  bool exact, seen_true, seen_false;

  __device__ bool spend() {
    if (effort > 0) return effort == most_integer() || effort-- > 0;
    return exact = false;
  }
  __device__ bool exhausted() {
    if (effort == 0) exact = false;
    return effort == 0;
  }
  __device__ Truth bounds(int64 begin, int64 end) {
    spend();
    return mask.decide({q_begin, q_end, begin * grid.k_tile, lower(grid.keys, end * grid.k_tile)});
  }
  __device__ Truth tile(int64 j) {
    const Truth t = bounds(j, j + 1);
    if (t != Truth::mixed) return t;
    seen_true = seen_false = false;
    return settle(*this, q_begin, q_end, j * grid.k_tile, lower(grid.keys, (j + 1) * grid.k_tile));
  }
  __device__ bool sample(int64 q, int64 k) {
    if (!spend()) return true;
    (mask.cell(q, k) ? seen_true : seen_false) = true;
    return seen_true && seen_false;
  }
  __device__ bool line(int64 q, int64 k_begin, int64 k_end) {
    for (int64 k = k_begin; k < k_end; ++k)
      if (sample(q, k)) return true;
    return false;
  }
  __device__ void put(int64 begin, int64 end, bool full) {
    const unsigned end_and_full = (unsigned)end | (full ? 0x80000000u : 0u);
    const bool touches = count > 0 && (last.end_and_full & 0x7fffffffu) == (unsigned)begin;
    if (touches && (last.end_and_full >> 31) == (end_and_full >> 31)) {
      last.end_and_full = end_and_full;
      return;
    }
    finish();
    last = {(unsigned)begin, end_and_full}, ++count;
  }
  __device__ void finish() {
    if (count > 0 && count <= limit) out[count - 1] = last;
  }
};
// The runs of one query tile, in order; at most `limit` of them are written.
template <class Mask>
static __device__ TileRuns runs_of_tile(const Mask& mask, const Grid& grid, int64 query_tile, int64 effort, Run* out,
                                        int64 limit) {
  const int64 begin = query_tile * grid.q_tile, end = lower(grid.queries, begin + grid.q_tile);
  TileRow<Mask> row = {mask, grid, grid.q_offset + begin, grid.q_offset + end, effort, out, limit, 0, {}, true, false, false};
  if (begin < end && grid.keys > 0) halve(row, 0, (grid.keys - 1) / grid.k_tile + 1);
  row.finish();
  return {row.count, row.exact};
}
}  // namespace bounds_math
)";

}  // namespace

std::string bounds_prelude() {
  std::string text(head);
  text.append(shared_intervals()).append(shared_summaries()).append(shared_decisions()).append(tail);
  return text;
}

}  // namespace tessera::emit
