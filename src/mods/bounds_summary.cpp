// Pyramids of {min, max, signature} over captured tensors.
// Must not know: graphs' operations but that a load is compared, tiles.
#include "mods/bounds_summary.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <unordered_map>
#include <utility>

namespace tessera::mods {
namespace {

using Entry = Summary::Entry;
constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

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

Summary::Summary(const Table& table, const Capture& capture, bool names_only) : table_(table), rank_(capture.rank) {
  std::array<std::int64_t, 4> extent{1, 1, 1, 1};
  bool empty = table.data == nullptr || table.dtype == DType::none;
  for (int i = 0; i < rank_; ++i) {
    const int place = 4 - rank_ + i;
    extent[place] = table.extent[i], stride_[place] = table.stride[i];
    empty = empty || table.extent[i] <= 0;
  }
  if (empty) return;
  layout_ = intervals::layout_of(extent[0], extent[1], extent[2], extent[3]);
  entries_.resize(static_cast<std::size_t>(layout_.entries) + 1);
  if (names_only && !is_real(table.dtype)) {
    names_.first.push_back(0);
    for (std::int64_t line = 0; line < extent[0] * extent[1] * extent[2]; ++line) renumber(line);
    if (names_.keys.empty()) names_ = {};
  }
  const auto read = [this](std::int64_t line, std::int64_t begin, std::int64_t end) { return scan(line, begin, end); };
  for (int pass = 0; pass < intervals::passes_of(layout_); ++pass)
    for (std::int64_t i = 0; i < intervals::entries_of(layout_, pass); ++i)
      entries_[static_cast<std::size_t>(intervals::first_entry(layout_, pass) + i)] =
          intervals::made_entry(layout_, entries_.data(), read, pass, i);
}

std::int64_t Summary::offset(std::int64_t line) const {
  const std::int64_t row = line % layout_.rows, slice = line / layout_.rows;
  return slice / layout_.inner * stride_[0] + slice % layout_.inner * stride_[1] + row * stride_[2];
}

// Names of a line in order of first appearance. Not where they are sorted already (nothing to gain), and not where most
// are different: the dictionary would be larger than the table.
void Summary::renumber(std::int64_t line) {
  const std::int64_t columns = layout_.columns, start = offset(line);
  const auto too_many = static_cast<std::size_t>(std::max<std::int64_t>(columns / 16, intervals::summary_block));
  std::int64_t last = least;
  bool keep = true;
  walk(table_, start, stride_[3], columns, [&](std::int64_t key) { keep = keep && key >= last, last = key; });
  std::unordered_map<std::int64_t, std::int64_t, std::hash<std::int64_t>, std::equal_to<>,
                     Kept<std::pair<const std::int64_t, std::int64_t>>>
      number;
  if (!keep)
    walk(table_, start, stride_[3], columns, [&](std::int64_t key) {
      if (number.size() < too_many) number.try_emplace(key, static_cast<std::int64_t>(number.size()));
      else keep = keep || !number.contains(key);
    });
  if (!keep) {
    Vector<std::pair<std::int64_t, std::int64_t>> sorted(number.begin(), number.end());
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [key, n] : sorted) names_.keys.push_back(key), names_.numbers.push_back(n);
  }
  names_.first.push_back(static_cast<std::int64_t>(names_.keys.size()));
}

Entry Summary::scan(std::int64_t line, std::int64_t begin, std::int64_t end) const {
  Entry e = intervals::no_elements();
  const bool reals = is_real(table_.dtype);
  const intervals::SummaryNames called = names();
  walk(table_, offset(line) + begin * stride_[3], stride_[3], end - begin,
       [&](std::int64_t key) { intervals::add_element(e, key, reals, called, line); });
  return e;
}

Entry Summary::range(const std::int64_t* first, const std::int64_t* last) const {
  std::int64_t from[4] = {}, to[4] = {};
  for (int i = 0; i < rank_; ++i) from[4 - rank_ + i] = first[i], to[4 - rank_ + i] = last[i];
  const auto read = [this](std::int64_t line, std::int64_t begin, std::int64_t end) { return scan(line, begin, end); };
  return intervals::elements_between(layout_, entries_.empty() ? nullptr : entries_.data(), read, from, to);
}

intervals::SummaryView Summary::view() const {
  if (entries_.empty()) return {};
  return {layout_, entries_.data(), names()};
}

intervals::IntegerRange Summary::upper_bound(const std::int64_t* first, const std::int64_t* last) const {
  if (entries_.empty()) return {0, 0};  // as the interpreter searches it
  std::array<std::int64_t, 4> from{}, to{};
  for (int i = 0; i < rank_; ++i) from[4 - rank_ + i] = first[i], to[4 - rank_ + i] = last[i];
  const auto search = [&](std::int64_t line, std::int64_t x) {
    const std::int64_t start = offset(line);
    const auto in = [&](auto like) {
      const auto* at = static_cast<const decltype(like)*>(table_.data) + start;
      return mods::upper_bound(layout_.columns, x,
                               [&](std::int64_t i) { return static_cast<std::int64_t>(at[i * stride_[3]]); });
    };
    if (table_.dtype == DType::i32) return in(std::int32_t{});
    return table_.dtype == DType::i64 ? in(std::int64_t{}) : in(std::uint8_t{});
  };
  return intervals::searches_between(layout_, search, from.data(), to.data());
}

std::size_t Summary::bytes() const {
  const std::size_t numbers = names_.first.capacity() + names_.keys.capacity() + names_.numbers.capacity();
  return entries_.capacity() * sizeof(Entry) + numbers * sizeof(std::int64_t);
}

Vector<Summary> summarise(const Graph& graph, std::span<const Table> tables) {
  // Captures whose elements are only ever compared for equality with elements of the same line (all indices but the
  // last are the same).
  Vector<bool> names_only(graph.captures.size(), true);
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
  Vector<Summary> summaries;
  summaries.reserve(graph.captures.size());
  for (std::size_t i = 0; i < graph.captures.size(); ++i)
    summaries.emplace_back(i < tables.size() ? tables[i] : Table{}, graph.captures[i], names_only[i]);
  return summaries;
}

}  // namespace tessera::mods
