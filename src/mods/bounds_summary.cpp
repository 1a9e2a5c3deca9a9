// Pyramids of {min, max, signature} over captured tensors.
// Must not know: graphs' operations but that a load is compared, tiles.
#include "mods/bounds_summary.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tessera::mods {
namespace {

using Entry = Summary::Entry;
constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t fan = 8;  // blocks a block of the next level, along an axis
constexpr Entry nothing{most, least, 0};
constexpr Entry unknown{least, most, ~std::uint64_t{0}};

void merge(Entry& sum, const Entry& e) {
  sum.lo = std::min(sum.lo, e.lo), sum.hi = std::max(sum.hi, e.hi), sum.signature |= e.signature;
}
std::int64_t blocks(std::int64_t elements, std::int64_t size) { return (elements + size - 1) / size; }

// Calls visit(key) for elements in order, once for equal neighbours: most tables that masks read are sorted or constant
// over long stretches, and there the loop is a comparison an element.
template <class T, class ToKey, class Visit>
void walk(const T* at, std::int64_t stride, std::int64_t count, ToKey to_key, Visit visit) {
  std::int64_t last = to_key(*at);
  visit(last);
  for (std::int64_t i = 1; i < count; ++i) {
    const std::int64_t key = to_key(at[i * stride]);
    if (key != last) visit(key), last = key;
  }
}
template <class Visit>
void walk(const Table& table, std::int64_t start, std::int64_t stride, std::int64_t count, Visit visit) {
  const auto at = [&](auto like) { return static_cast<const decltype(like)*>(table.data) + start; };
  const auto itself = [](auto x) { return static_cast<std::int64_t>(x); };
  const auto real = [](auto x) { return real_key(static_cast<float>(x)); };
  switch (table.dtype) {
    case DType::i32:
      return walk(at(std::int32_t{}), stride, count, itself, visit);
    case DType::i64:
      return walk(at(std::int64_t{}), stride, count, itself, visit);
    case DType::u8:
      return walk(at(std::uint8_t{}), stride, count, itself, visit);
    case DType::b8:
      return walk(
          at(std::uint8_t{}), stride, count, [](std::uint8_t x) { return std::int64_t{x != 0}; }, visit);
    case DType::f32:
      return walk(at(float{}), stride, count, real, visit);
    case DType::bf16:
      return walk(at(BFloat16{}), stride, count, real, visit);
    case DType::f16:
      return walk(at(Float16{}), stride, count, real, visit);
    case DType::none:
      break;
  }
}

bool is_real(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

}  // namespace

std::int64_t real_key(double value) {
  if (std::isnan(value)) return most;
  const auto bits = std::bit_cast<std::int64_t>(value + 0.0);
  return bits >= 0 ? bits : bits ^ most;
}
double key_real(std::int64_t key) { return std::bit_cast<double>(key >= 0 ? key : key ^ most); }

Summary::Summary(const Table& table, const Capture& capture, bool names_only) : table_(table), rank_(capture.rank) {
  const int rank = rank_;
  empty_ = table.data == nullptr || table.dtype == DType::none;
  for (int i = 0; i < rank; ++i) empty_ = empty_ || table.extent[i] <= 0;
  if (empty_) return;
  columns_ = table.extent[rank - 1], stride_ = table.stride[rank - 1];
  if (rank > 1) rows_ = table.extent[rank - 2], row_stride_ = table.stride[rank - 2];
  leading_ = std::max(0, rank - 2);
  for (int i = 0; i < leading_; ++i) {
    leading_extent_[i] = table.extent[i], leading_stride_[i] = table.stride[i];
    slices_ *= table.extent[i];
  }
  number_.resize(names_only && !is_real(table.dtype) ? static_cast<std::size_t>(slices_ * rows_) : 0);

  Level base;
  base.rows = rows_, base.columns = blocks(columns_, block);
  base.entries.reserve(static_cast<std::size_t>(slices_ * base.rows * base.columns));
  for (std::int64_t slice = 0; slice < slices_; ++slice) {
    const std::int64_t outer = slice / leading_extent_[1], inner = slice % leading_extent_[1];
    const std::int64_t offset = outer * leading_stride_[0] + inner * leading_stride_[1];
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::int64_t line = slice * rows_ + row, start = offset + row * row_stride_;
      if (!number_.empty()) renumber(line, start);
      for (std::int64_t c = 0; c < columns_; c += block)
        base.entries.push_back(scan(line, start + c * stride_, std::min<std::int64_t>(block, columns_ - c)));
    }
  }
  along_.push_back(std::move(base));
  while (along_.back().columns > 1) along_.push_back(above(along_.back(), 1, fan));
  if (rows_ >= block) {
    squares_.push_back(above(along_[0], block, 1));
    while (squares_.back().rows > 1 || squares_.back().columns > 1)
      squares_.push_back(above(squares_.back(), fan, fan));
  }
  everything_ = nothing;
  for (const Entry& e : (squares_.empty() ? along_ : squares_).back().entries) merge(everything_, e);
}

Summary::Level Summary::above(const Level& below, std::int64_t row_factor, std::int64_t column_factor) const {
  Level level;
  level.row_block = below.row_block * row_factor, level.column_block = below.column_block * column_factor;
  level.rows = blocks(below.rows, row_factor), level.columns = blocks(below.columns, column_factor);
  level.entries.assign(static_cast<std::size_t>(slices_ * level.rows * level.columns), nothing);
  const Entry* from = below.entries.data();
  for (std::int64_t slice = 0; slice < slices_; ++slice)
    for (std::int64_t row = 0; row < below.rows; ++row)
      for (std::int64_t column = 0; column < below.columns; ++column)
        merge(level.entries[static_cast<std::size_t>((slice * level.rows + row / row_factor) * level.columns +
                                                     column / column_factor)],
              *from++);
  return level;
}

// Names of a line in order of first appearance. Not where they are sorted already (nothing to gain), and not where most
// are different: the dictionary would be larger than the table.
void Summary::renumber(std::int64_t line, std::int64_t start) {
  const auto too_many = static_cast<std::size_t>(std::max<std::int64_t>(columns_ / 16, block));
  std::int64_t last = least;
  bool keep = true;
  walk(table_, start, stride_, columns_, [&](std::int64_t key) { keep = keep && key >= last, last = key; });
  if (keep) return;
  Numbers& number = number_[static_cast<std::size_t>(line)];
  walk(table_, start, stride_, columns_, [&](std::int64_t key) {
    if (number.size() < too_many) number.try_emplace(key, static_cast<std::int64_t>(number.size()));
    else keep = keep || !number.contains(key);
  });
  if (keep) number = {};
}

Entry Summary::scan(std::int64_t line, std::int64_t start, std::int64_t count) const {
  Entry e = nothing;
  const bool reals = is_real(table_.dtype);
  const Numbers* number = number_.empty() ? nullptr : &number_[static_cast<std::size_t>(line)];
  if (number && number->empty()) number = nullptr;
  walk(table_, start, stride_, count, [&](std::int64_t key) {
    if (reals && key == most) return merge(e, unknown);  // a NaN
    if (number) {
      const auto found = number->find(key);
      if (found == number->end()) return merge(e, unknown);  // written to since
      key = found->second;
    }
    merge(e, {key, key, bit(key)});
  });
  return e;
}

Entry Summary::along_row(std::int64_t slice, std::int64_t offset, std::int64_t row, std::int64_t first,
                         std::int64_t last) const {
  const std::int64_t start = offset + row * row_stride_;
  const auto piece = [&](std::int64_t from, std::int64_t to) {
    return scan(slice * rows_ + row, start + from * stride_, to - from);
  };
  // Whole blocks [begin, end); the last one may be short.
  std::int64_t begin = blocks(first, block), end = last + 1 == columns_ ? along_[0].columns : (last + 1) / block;
  if (begin >= end) return piece(first, last + 1);
  Entry sum = nothing;
  if (first < begin * block) merge(sum, piece(first, begin * block));
  if (end * block <= last) merge(sum, piece(end * block, last + 1));
  for (std::size_t l = 0; begin < end; ++l) {
    const Level& level = along_[l];
    const Entry* entries = level.entries.data() + (slice * level.rows + row) * level.columns;
    if (l + 1 < along_.size()) {
      while (begin < end && begin % fan != 0) merge(sum, entries[begin++]);
      // An end at the end of the level is an end of the next one too.
      while (begin < end && end % fan != 0 && end != level.columns) merge(sum, entries[--end]);
      if (begin == end) break;
      begin /= fan, end = blocks(end, fan);
    } else {
      while (begin < end) merge(sum, entries[begin++]);
    }
  }
  return sum;
}

// The part of one block of squares_[level] that lies in the window {first row, last row, first column, last column}.
void Summary::visit(std::size_t level, std::int64_t slice, std::int64_t offset, std::int64_t row, std::int64_t column,
                    const std::array<std::int64_t, 4>& window, Entry& sum) const {
  const Level& here = squares_[level];
  const std::int64_t row_begin = row * here.row_block, column_begin = column * here.column_block;
  const std::int64_t row_last = std::min(row_begin + here.row_block, rows_) - 1;
  const std::int64_t column_last = std::min(column_begin + here.column_block, columns_) - 1;
  const std::int64_t r0 = std::max(window[0], row_begin), r1 = std::min(window[1], row_last);
  const std::int64_t c0 = std::max(window[2], column_begin), c1 = std::min(window[3], column_last);
  if (r0 > r1 || c0 > c1) return;
  if (r0 == row_begin && r1 == row_last && c0 == column_begin && c1 == column_last)
    return merge(sum, here.entries[static_cast<std::size_t>((slice * here.rows + row) * here.columns + column)]);
  if (level == 0) {
    for (std::int64_t r = r0; r <= r1; ++r) merge(sum, along_row(slice, offset, r, c0, c1));
    return;
  }
  const Level& below = squares_[level - 1];
  for (std::int64_t r = r0 / below.row_block; r <= r1 / below.row_block; ++r)
    for (std::int64_t c = c0 / below.column_block; c <= c1 / below.column_block; ++c)
      visit(level - 1, slice, offset, r, c, window, sum);
}

Entry Summary::range(const std::int64_t* first, const std::int64_t* last) const {
  if (empty_) return {0, 0, bit(0)};  // as the interpreter reads it
  if (rank_ == 1)
    return along_row(0, 0, 0, std::clamp(first[0], std::int64_t{0}, columns_ - 1),
                     std::clamp(last[0], std::int64_t{0}, columns_ - 1));
  std::array<std::int64_t, 4> from{}, to{};  // outer, inner, row, column
  const auto take = [&](std::size_t place, int axis, std::int64_t extent) {
    from[place] = std::clamp(first[axis], std::int64_t{0}, extent - 1);
    to[place] = std::clamp(last[axis], std::int64_t{0}, extent - 1);
  };
  for (int i = 0; i < leading_; ++i) take(static_cast<std::size_t>(i), i, leading_extent_[i]);
  take(2, rank_ - 2, rows_);
  take(3, rank_ - 1, columns_);
  constexpr std::int64_t many = 256;  // slices: rather less exact than slow
  if ((to[0] - from[0] + 1) * (to[1] - from[1] + 1) > many) return everything_;
  Entry sum = nothing;
  for (std::int64_t outer = from[0]; outer <= to[0]; ++outer)
    for (std::int64_t inner = from[1]; inner <= to[1]; ++inner) {
      const std::int64_t slice = outer * leading_extent_[1] + inner;
      const std::int64_t offset = outer * leading_stride_[0] + inner * leading_stride_[1];
      if (squares_.empty() || to[2] - from[2] < block / 2) {
        for (std::int64_t row = from[2]; row <= to[2]; ++row) merge(sum, along_row(slice, offset, row, from[3], to[3]));
      } else {
        visit(squares_.size() - 1, slice, offset, 0, 0, {from[2], to[2], from[3], to[3]}, sum);
      }
    }
  return sum;
}

std::size_t Summary::bytes() const {
  std::size_t sum = number_.capacity() * sizeof(Numbers);
  for (const Numbers& number : number_)
    sum += number.size() * 6 * sizeof(std::int64_t);  // an entry in its memory and its bucket, about
  for (const auto* levels : {&along_, &squares_})
    for (const Level& level : *levels) sum += level.entries.capacity() * sizeof(Entry);
  return sum;
}

std::vector<Summary> summarise(const Graph& graph, std::span<const Table> tables) {
  // Captures whose elements are only ever compared for equality with elements of the same line (all indices but the
  // last are the same).
  std::vector<bool> names_only(graph.captures.size(), true);
  const auto slot_of = [&](std::uint16_t node) {
    return graph.nodes[node].op == Op::load ? static_cast<int>(graph.nodes[node].slot) : -1;
  };
  const auto one_line = [&](const Node& a, const Node& b) {
    return std::equal(a.arg.begin(), a.arg.begin() + a.arg_count - 1, b.arg.begin());
  };
  for (const Node& node : graph.nodes) {
    if (node.op == Op::eq || node.op == Op::ne) {
      const int slot = slot_of(node.arg[0]);
      if (slot >= 0 && slot == slot_of(node.arg[1]) && one_line(graph.nodes[node.arg[0]], graph.nodes[node.arg[1]]))
        continue;
    }
    for (std::size_t a = 0; a < node.arg_count; ++a)
      if (const int slot = slot_of(node.arg[a]); slot >= 0) names_only[static_cast<std::size_t>(slot)] = false;
  }
  if (!graph.nodes.empty())
    if (const int slot = slot_of(static_cast<std::uint16_t>(graph.nodes.size() - 1)); slot >= 0)
      names_only[static_cast<std::size_t>(slot)] = false;
  std::vector<Summary> summaries;
  summaries.reserve(graph.captures.size());
  for (std::size_t i = 0; i < graph.captures.size(); ++i)
    summaries.emplace_back(i < tables.size() ? tables[i] : Table{}, graph.captures[i], names_only[i]);
  return summaries;
}

}  // namespace tessera::mods
