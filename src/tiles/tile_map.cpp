// From a mask's graph to bands: sets of distances d = k - q, solved exactly.
#include "tessera/tile_map.hpp"

#include <algorithm>
#include <optional>
#include <ostream>
#include <vector>

#include "mods/arithmetic.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {
namespace {

using mods::add;
using mods::sub;

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();
// Sums beyond this could saturate where the graph is evaluated; they are left undecided.
constexpr std::int64_t largest_term = std::int64_t{1} << 62;

using Bands = std::vector<Band>;  // sorted, disjoint, not adjacent

Bands complement(const Bands& a) {
  Bands out;
  std::int64_t from = lowest;
  for (const Band& band : a) {
    if (band.lo > from) out.push_back({from, band.lo - 1});
    if (band.hi == highest) return out;
    from = band.hi + 1;
  }
  out.push_back({from, highest});
  return out;
}
Bands both(const Bands& a, const Bands& b) {
  Bands out;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Band meet{std::max(a[i].lo, b[j].lo), std::min(a[i].hi, b[j].hi)};
    if (meet.lo <= meet.hi) out.push_back(meet);
    if (a[i].hi < b[j].hi) ++i;
    else ++j;
  }
  return out;
}
Bands either(const Bands& a, const Bands& b) { return complement(both(complement(a), complement(b))); }
Bands truth(bool value) { return value ? Bands{Band{}} : Bands{}; }

// c + kq * q + kk * k
struct Affine {
  std::int64_t c = 0, q = 0, k = 0;
};

std::optional<std::int64_t> bounded(std::int64_t value) {
  if (value > largest_term || value < -largest_term) return std::nullopt;
  return value;
}
std::optional<Affine> combined(const Affine& a, const Affine& b, std::int64_t sign) {
  const auto c = bounded(add(a.c, mods::mul(sign, b.c))), q = bounded(add(a.q, mods::mul(sign, b.q))),
             k = bounded(add(a.k, mods::mul(sign, b.k)));
  if (!c || !q || !k) return std::nullopt;
  return Affine{*c, *q, *k};
}
std::optional<Affine> scaled(const Affine& a, std::int64_t factor) {
  const auto c = bounded(mods::mul(a.c, factor)), q = bounded(mods::mul(a.q, factor)),
             k = bounded(mods::mul(a.k, factor));
  if (!c || !q || !k) return std::nullopt;
  return Affine{*c, *q, *k};
}

class Solver {
 public:
  explicit Solver(const Graph& graph) : graph_(graph) {}
  std::optional<Bands> solve(std::size_t i) const {
    const Node& n = graph_.nodes[i];
    switch (n.op) {
      case Op::constant:
        return n.type == Type::boolean ? std::optional(truth(n.value != 0)) : std::nullopt;
      case Op::logical_not:
        if (const auto a = solve(n.arg[0])) return complement(*a);
        return std::nullopt;
      case Op::logical_and:
      case Op::logical_or: {
        const auto a = solve(n.arg[0]);
        if (!a) return std::nullopt;
        const auto b = solve(n.arg[1]);
        if (!b) return std::nullopt;
        return n.op == Op::logical_and ? both(*a, *b) : either(*a, *b);
      }
      case Op::lt:
      case Op::le:
      case Op::gt:
      case Op::ge:
      case Op::eq:
      case Op::ne:
        return compare(n);
      default:
        return std::nullopt;
    }
  }

 private:
  std::optional<Affine> affine(std::size_t i) const {
    const Node& n = graph_.nodes[i];
    if (n.type != Type::integer) return std::nullopt;
    if (n.op == Op::constant || n.op == Op::param) {
      const auto c = bounded(n.op == Op::param ? graph_.params[n.slot].value : n.value);
      return c ? std::optional(Affine{*c, 0, 0}) : std::nullopt;
    }
    if (n.op == Op::query) return Affine{0, 1, 0};
    if (n.op == Op::key) return Affine{0, 0, 1};
    if (n.op != Op::add && n.op != Op::sub && n.op != Op::mul && n.op != Op::neg) return std::nullopt;
    const auto a = affine(n.arg[0]);
    if (!a) return std::nullopt;
    if (n.op == Op::neg) return scaled(*a, -1);
    const auto b = affine(n.arg[1]);
    if (!b) return std::nullopt;
    if (n.op != Op::mul) return combined(*a, *b, n.op == Op::add ? 1 : -1);
    if (b->q == 0 && b->k == 0) return scaled(*a, b->c);
    if (a->q == 0 && a->k == 0) return scaled(*b, a->c);
    return std::nullopt;
  }
  // a ? b  <=>  c + f * (k - q) ? 0
  std::optional<Bands> compare(const Node& n) const {
    const auto a = affine(n.arg[0]), b = affine(n.arg[1]);
    if (!a || !b) return std::nullopt;
    const auto d = combined(*a, *b, -1);
    if (!d || d->q != -d->k) return std::nullopt;
    const std::int64_t c = d->c, f = d->k;
    const bool reversed = n.op == Op::gt || n.op == Op::ge;  // a > b  <=>  -c - f d < 0
    switch (n.op) {
      case Op::lt:
      case Op::gt:
        return at_most_zero(reversed ? -c + 1 : c + 1, reversed ? -f : f);
      case Op::le:
      case Op::ge:
        return at_most_zero(reversed ? -c : c, reversed ? -f : f);
      default:
        break;
    }
    Bands equal;
    if (f == 0) equal = truth(c == 0);
    else if (c % f == 0) equal = {{-(c / f), -(c / f)}};
    return n.op == Op::eq ? equal : complement(equal);
  }
  static Bands at_most_zero(std::int64_t c, std::int64_t f) {  // c + f d <= 0
    if (f == 0) return truth(c <= 0);
    if (f > 0) return {{lowest, mods::floor_div(-c, f)}};
    return {{-mods::floor_div(-c, -f), highest}};  // d >= ceil(c / -f)
  }
  const Graph& graph_;
};

}  // namespace

TileMap::TileMap(const Mask& mask) {
  const Graph& graph = mask.graph();
  if (graph.nodes.empty()) return;
  const auto solved = Solver(graph).solve(graph.nodes.size() - 1);
  decided_ = solved && solved->size() <= max_bands;
  bands_ = {}, count_ = decided_ ? solved->size() : 0;
  if (decided_) std::copy(solved->begin(), solved->end(), bands_.begin());
}

Cover TileMap::cover(std::int64_t q_begin, std::int64_t q_end, std::int64_t k_begin, std::int64_t k_end) const {
  if (!decided_) return {Coverage::partial, k_begin, k_end};
  const std::int64_t q_last = q_end - 1;
  std::int64_t first = highest, last = lowest;
  for (std::size_t i = 0; i < count_; ++i) {
    const std::int64_t lo = bands_[i].lo == lowest ? k_begin : std::max(k_begin, add(q_begin, bands_[i].lo));
    const std::int64_t hi = bands_[i].hi == highest ? k_end - 1 : std::min(k_end - 1, add(q_last, bands_[i].hi));
    if (lo > hi) continue;
    first = std::min(first, lo), last = std::max(last, hi);
  }
  if (first > last) return {Coverage::empty, k_begin, k_begin};
  // Bands do not touch, so every pair is attended to exactly if one band holds every distance of the box.
  const std::int64_t nearest = first - q_last, farthest = last - q_begin;
  for (std::size_t i = 0; i < count_; ++i)
    if (bands_[i].lo <= nearest && farthest <= bands_[i].hi) return {Coverage::full, first, last + 1};
  return {Coverage::partial, first, last + 1};
}

double TileMap::pairs(std::int64_t q_begin, std::int64_t q_end, std::int64_t keys) const {
  const double n = static_cast<double>(q_end) - static_cast<double>(q_begin), all = static_cast<double>(keys);
  if (n <= 0 || keys <= 0) return 0;
  if (!decided_) return n * all;
  // Sum over q of clamp(q + c, 0, keys): nothing below 0, a ramp, then `keys` for every query beyond it.
  const auto below = [&](double c) {
    const double start = static_cast<double>(q_begin) + c;  // the first query's value; it grows by 1 a query
    const double skipped = std::clamp(-start, 0.0, n), capped = std::clamp(start + n - all, 0.0, n);
    const double ramp = std::max(0.0, n - skipped - capped);
    const double from = start + skipped;
    return ramp * from + ramp * (ramp - 1) / 2 + capped * all;
  };
  double sum = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    const double upto = bands_[i].hi == highest ? n * all : below(static_cast<double>(bands_[i].hi) + 1);
    const double before = bands_[i].lo == lowest ? 0 : below(static_cast<double>(bands_[i].lo));
    sum += upto - before;
  }
  return sum;
}

std::ostream& operator<<(std::ostream& out, const TileMap& map) {
  if (!map.decided()) return out << "undecided: the mask is evaluated for every pair";
  if (map.bands().empty()) return out << "none";
  if (map == TileMap()) return out << "all";
  out << (map.bands().size() == 1 ? "band" : "bands") << " k - q in ";
  const char* between = "";
  for (const Band& band : map.bands()) {
    out << between << (band.lo == lowest ? "(" : "[");
    if (band.lo != lowest) out << band.lo;
    out << ", ";
    if (band.hi != highest) out << band.hi;
    out << (band.hi == highest ? ")" : "]");
    between = " or ";
  }
  return out;
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
