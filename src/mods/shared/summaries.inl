// The pyramid over a captured tensor, as plain arrays, and the questions that are asked of it: one text for the host
// and for devices, after intervals.inl. A table is [outer][inner][row][column]; leading axes that it lacks have one
// element. Level 0 has an entry for each 64 elements of a row; a block of the next level is 8 blocks of this one.
// Tables of 64 rows and more have a second pyramid of squares, 64 x 64 elements at its level 0, made from level 0 of
// the first. All entries stand in one array, [level][outer][inner][row of blocks][column of blocks], the levels of the
// first pyramid, then those of the second.

constexpr int summary_block = 64, summary_fan = 8, summary_levels = 20;

struct SummaryLayout {
  int64 outer, inner, rows, columns;                                // elements; all 1 or more
  int64 along_entry[summary_levels], square_entry[summary_levels];  // of each level: its first entry
  int along_levels, square_levels;
  int64 entries;  // of all levels; after them one more, of all elements
};
// Names of a line, where each has been renumbered by first appearance (host only): sorted keys beside their numbers.
// Lines that are as they are have none. first: [lines + 1], or null.
struct SummaryNames {
  const int64* first;
  const int64* keys;
  const int64* numbers;
};
struct SummaryView {
  SummaryLayout layout;
  const SummaryEntry* entries;  // null: a table without elements, all zeros
  SummaryNames names;
};

SHARED int64 blocks_of(int64 elements, int64 size) { return (elements + size - 1) / size; }
SHARED SummaryEntry no_elements() { return {most_integer(), least_integer(), 0}; }
SHARED SummaryEntry any_element() { return {least_integer(), most_integer(), ~(uint64)0}; }
SHARED SummaryEntry zero_element() { return {0, 0, key_bit(0)}; }  // of a table without elements
SHARED void merge(SummaryEntry& sum, const SummaryEntry& e) {
  sum.lo = lower(sum.lo, e.lo), sum.hi = higher(sum.hi, e.hi), sum.signature |= e.signature;
}

// Blocks of a level: columns of a row, rows of a square level.
SHARED int64 blocks_at(int64 elements, int level) {
  int64 blocks = blocks_of(elements, summary_block);
  ROLLED
  for (int l = 0; l < level; ++l) blocks = blocks_of(blocks, summary_fan);
  return blocks;
}
LONG_SHARED SummaryLayout layout_of(int64 outer, int64 inner, int64 rows, int64 columns) {
  SummaryLayout layout = {outer, inner, rows, columns, {}, {}, 0, 0, 0};
  const int64 slices = outer * inner;
  ROLLED
  for (int64 across = blocks_at(columns, 0);; across = blocks_of(across, summary_fan)) {
    layout.along_entry[layout.along_levels++] = layout.entries;
    layout.entries += slices * rows * across;
    if (across == 1) break;
  }
  if (rows < summary_block) return layout;
  ROLLED
  for (int64 down = blocks_at(rows, 0), across = blocks_at(columns, 0);;
       down = blocks_of(down, summary_fan), across = blocks_of(across, summary_fan)) {
    layout.square_entry[layout.square_levels++] = layout.entries;
    layout.entries += slices * down * across;
    if (down == 1 && across == 1) break;
  }
  return layout;
}

// What an element's key is called within its line.
SHARED bool name_of(const SummaryNames& names, int64 line, int64 key, int64& number) {
  number = key;
  if (!names.first || names.first[line] == names.first[line + 1]) return true;
  int64 begin = names.first[line], end = names.first[line + 1];
  ROLLED
  while (begin < end) {
    const int64 middle = begin + (end - begin) / 2;
    if (names.keys[middle] < key) begin = middle + 1;
    else end = middle;
  }
  if (begin == names.first[line + 1] || names.keys[begin] != key) return false;  // written to since
  number = names.numbers[begin];
  return true;
}

// One more element of a line.
SHARED void add_element(SummaryEntry& sum, int64 key, bool real, const SummaryNames& names, int64 line) {
  int64 number;
  const bool known = name_of(names, line, key, number) && !(real && key == most_integer());  // else a NaN
  if (known) merge(sum, {number, number, key_bit(number)});
  else merge(sum, any_element());
}

// Below, scan(line, begin, end) is the entry of the elements [begin, end) of a line, read from the table. A line is a
// row of a slice: slice * rows + row.

// A summary is made pass after pass: the levels in order, then the entry of all elements. Entries of one pass are
// made in any order, from those of the passes before.
SHARED int passes_of(const SummaryLayout& layout) { return layout.along_levels + layout.square_levels + 1; }
SHARED int64 first_entry(const SummaryLayout& layout, int pass) {
  if (pass < layout.along_levels) return layout.along_entry[pass];
  pass -= layout.along_levels;
  return pass < layout.square_levels ? layout.square_entry[pass] : layout.entries + (pass - layout.square_levels);
}
SHARED int64 entries_of(const SummaryLayout& layout, int pass) {
  return first_entry(layout, pass + 1) - first_entry(layout, pass);
}
// The entry first_entry(layout, pass) + index.
template <class Scan>
SHARED SummaryEntry made_entry(const SummaryLayout& layout, const SummaryEntry* entries, const Scan& scan, int pass,
                               int64 index) {
  SummaryEntry sum = no_elements();
  if (pass == passes_of(layout) - 1) {
    ROLLED
    for (int64 i = first_entry(layout, pass - 1); i < layout.entries; ++i) merge(sum, entries[i]);
    return sum;
  }
  const bool squares = pass >= layout.along_levels;
  const int level = squares ? pass - layout.along_levels : pass;
  const int64 across = blocks_at(layout.columns, level), column = index % across;
  if (pass == 0) {
    const int64 begin = column * summary_block;
    return scan(index / across, begin, lower(begin + summary_block, layout.columns));
  }
  // Blocks of the level below: [rows of all slices][columns].
  const int64 rows = squares ? blocks_at(layout.rows, level) : layout.rows, row = index / across % rows;
  const int64 slice = index / across / rows;
  const bool lowest_square = squares && level == 0;  // made of the blocks of 64 rows
  const int64 rows_below = squares && level > 0 ? blocks_at(layout.rows, level - 1) : layout.rows;
  const int64 across_below = lowest_square ? across : blocks_at(layout.columns, level - 1);
  const int64 down = lowest_square ? summary_block : squares ? summary_fan : 1, side = lowest_square ? 1 : summary_fan;
  const SummaryEntry* below =
      entries + (lowest_square ? 0 : first_entry(layout, pass - 1)) + slice * rows_below * across_below;
  ROLLED
  for (int64 r = row * down; r < lower((row + 1) * down, rows_below); ++r)
    ROLLED
    for (int64 c = column * side; c < lower((column + 1) * side, across_below); ++c)
      merge(sum, below[r * across_below + c]);
  return sum;
}

// Elements [first, last] of one line.
template <class Scan>
LONG_SHARED SummaryEntry along_line(const SummaryLayout& layout, const SummaryEntry* entries, const Scan& scan, int64 line,
                               int64 first, int64 last) {
  int64 across = blocks_of(layout.columns, summary_block);
  // Whole blocks [begin, end); the last one may be short.
  int64 begin = blocks_of(first, summary_block), end = last + 1 == layout.columns ? across : (last + 1) / summary_block;
  if (begin >= end) return scan(line, first, last + 1);
  SummaryEntry sum = no_elements();
  if (first < begin * summary_block) merge(sum, scan(line, first, begin * summary_block));
  if (end * summary_block <= last) merge(sum, scan(line, end * summary_block, last + 1));
  ROLLED
  for (int level = 0; begin < end; ++level) {
    const SummaryEntry* here = entries + layout.along_entry[level] + line * across;
    if (level + 1 < layout.along_levels) {
      ROLLED
      while (begin < end && begin % summary_fan != 0) merge(sum, here[begin++]);
      // An end at the end of the level is an end of the next one too.
      ROLLED
      while (begin < end && end % summary_fan != 0 && end != across) merge(sum, here[--end]);
      if (begin == end) break;
      begin /= summary_fan, end = blocks_of(end, summary_fan), across = blocks_of(across, summary_fan);
    } else {
      ROLLED
      while (begin < end) merge(sum, here[begin++]);
    }
  }
  return sum;
}

// Rows [r0, r1] and columns [c0, c1] of a slice, from the squares: those that lie inside whole, as large as they can
// be, the rest line by line. Blocks are visited without a stack: after one that is done, the next on its level, or on
// the level above after the last of its parent.
template <class Scan>
LONG_SHARED SummaryEntry in_squares(const SummaryLayout& layout, const SummaryEntry* entries, const Scan& scan, int64 slice,
                               int64 r0, int64 r1, int64 c0, int64 c1) {
  SummaryEntry sum = no_elements();
  int level = layout.square_levels - 1;
  int64 row = 0, column = 0, side = summary_block;
  ROLLED
  for (int l = 0; l < level; ++l) side *= summary_fan;
  ROLLED
  for (;;) {
    const int64 top = row * side, left = column * side;
    const int64 bottom = lower(top + side, layout.rows) - 1, right = lower(left + side, layout.columns) - 1;
    const int64 from_row = higher(r0, top), to_row = lower(r1, bottom);
    const int64 from_column = higher(c0, left), to_column = lower(c1, right);
    if (from_row <= to_row && from_column <= to_column) {
      if (from_row == top && to_row == bottom && from_column == left && to_column == right) {
        const int64 down = blocks_at(layout.rows, level), across = blocks_at(layout.columns, level);
        merge(sum, entries[layout.square_entry[level] + (slice * down + row) * across + column]);
      } else if (level == 0) {
        ROLLED
        for (int64 r = from_row; r <= to_row; ++r)
          merge(sum, along_line(layout, entries, scan, slice * layout.rows + r, from_column, to_column));
      } else {
        --level, side /= summary_fan;
        row = from_row / side, column = from_column / side;
        continue;
      }
    }
    ROLLED
    for (;; ++level, side *= summary_fan, row /= summary_fan, column /= summary_fan) {
      if (level == layout.square_levels - 1) return sum;
      const int64 first_column = higher(c0, column / summary_fan * summary_fan * side) / side;
      const int64 parent_right = (column / summary_fan + 1) * summary_fan * side - 1;
      const int64 parent_bottom = (row / summary_fan + 1) * summary_fan * side - 1;
      if ((column + 1) * side <= lower(c1, parent_right)) {
        ++column;
        break;
      }
      if ((row + 1) * side <= lower(r1, parent_bottom)) {
        ++row, column = first_column;
        break;
      }
    }
  }
}

// Searches for the numbers in [first[3], last[3]] along the lines whose other indices lie in [first[i], last[i]], each
// clamped to the table: i is outer, inner, row. search(line, x) is the answer of one; it never falls as x grows,
// whatever the line holds (mods/arithmetic.hpp), so that of a line the two ends are enough.
template <class Search>
SHARED IntegerRange searches_between(const SummaryLayout& layout, const Search& search, const int64* first,
                                     const int64* last) {
  int64 from[3], to[3], lines = 1;
  const int64 extent[3] = {layout.outer, layout.inner, layout.rows};
  constexpr int64 many = 256;  // lines: rather less exact than slow
  ROLLED
  for (int i = 0; i < 3; ++i) {
    from[i] = lower(higher(first[i], (int64)0), extent[i] - 1);
    to[i] = lower(higher(last[i], (int64)0), extent[i] - 1);
    if (lines <= many) lines *= lower(to[i] - from[i] + 1, many + 1);
  }
  if (lines > many) return {0, layout.columns};
  IntegerRange all = {layout.columns, 0};  // nothing yet
  ROLLED
  for (int64 outer = from[0]; outer <= to[0]; ++outer)
    ROLLED
    for (int64 inner = from[1]; inner <= to[1]; ++inner)
      ROLLED
      for (int64 row = from[2]; row <= to[2]; ++row) {
        const int64 line = (outer * layout.inner + inner) * layout.rows + row;
        all = hull(all, {search(line, first[3]), search(line, last[3])});
      }
  return all;
}

// Of all elements.
SHARED SummaryEntry all_elements(const SummaryView& view) {
  return view.entries ? view.entries[view.layout.entries] : zero_element();
}

// Of the elements whose indices lie in [first[i], last[i]], each clamped to the table: i is outer, inner, row, column.
template <class Scan>
SHARED SummaryEntry elements_between(const SummaryLayout& layout, const SummaryEntry* entries, const Scan& scan,
                                     const int64* first, const int64* last) {
  if (!entries) return zero_element();
  int64 from[4], to[4];
  const int64 extent[4] = {layout.outer, layout.inner, layout.rows, layout.columns};
  ROLLED
  for (int i = 0; i < 4; ++i) {
    from[i] = lower(higher(first[i], (int64)0), extent[i] - 1);
    to[i] = lower(higher(last[i], (int64)0), extent[i] - 1);
  }
  constexpr int64 many = 256;  // slices: rather less exact than slow
  if ((to[0] - from[0] + 1) * (to[1] - from[1] + 1) > many) return entries[layout.entries];
  const bool squares = layout.square_levels > 0 && to[2] - from[2] >= summary_block / 2;
  SummaryEntry sum = no_elements();
  ROLLED
  for (int64 outer = from[0]; outer <= to[0]; ++outer)
    ROLLED
    for (int64 inner = from[1]; inner <= to[1]; ++inner) {
      const int64 slice = outer * layout.inner + inner;
      if (squares) merge(sum, in_squares(layout, entries, scan, slice, from[2], to[2], from[3], to[3]));
      else
        ROLLED
        for (int64 row = from[2]; row <= to[2]; ++row)
          merge(sum, along_line(layout, entries, scan, slice * layout.rows + row, from[3], to[3]));
    }
  return sum;
}
