// From a mask's graph to bands: sets of distances d = k - q, solved exactly.
// Must not know: tile sizes, tensors, backends.
#include "tessera/tile_map.hpp"

#include <algorithm>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "mods/arithmetic.hpp"
#include "mods/graph.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {
namespace {

using mods::add;
using mods::sub;
using Wide = __int128;  // what int64 sums and products become before they saturate

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

using Bands = std::vector<Band>;  // sorted, disjoint, not adjacent
Bands all() { return {Band{}}; }
Bands none() { return {}; }

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

// The distances [lo, hi], which may lie beyond int64: no two positions are that far apart.
Bands between(Wide lo, Wide hi) {
  const Wide first = std::max(lo, Wide{lowest}), last = std::min(hi, Wide{highest});
  if (first > last) return none();
  return {{static_cast<std::int64_t>(first), static_cast<std::int64_t>(last)}};
}
Wide floor_div(Wide a, Wide b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

// c + q * query + k * key. `saturates`: it may leave int64 for some positions, where the graph sees the end of int64
// instead. Then it may still be compared with what stays inside, but no longer be calculated with.
struct Affine {
  Wide c = 0, q = 0, k = 0;
  bool saturates = false;
};

Wide magnitude(Wide x) { return x < 0 ? -x : x; }
// The largest absolute value over all positions.
Wide reach(const Affine& a) { return magnitude(a.c) + (magnitude(a.q) + magnitude(a.k)) * mods::farthest; }

std::optional<Affine> checked(Affine a) {
  if (magnitude(a.q) > highest || magnitude(a.k) > highest) return std::nullopt;  // keeps reach() inside 128 bits
  a.saturates = reach(a) > highest;
  return a;
}
std::optional<Affine> sum(const Affine& a, const Affine& b, int sign) {
  return checked({a.c + sign * b.c, a.q + sign * b.q, a.k + sign * b.k});
}
std::optional<Affine> scaled(const Affine& a, Wide factor) {
  return checked({a.c * factor, a.q * factor, a.k * factor});
}

// What is known of a node: of an integer, that it is affine; of a boolean, the distances where it is true.
struct Known {
  std::optional<Affine> affine;
  std::optional<Bands> bands;
};

std::optional<Affine> calculate(Op op, const std::optional<Affine>& a, const std::optional<Affine>& b) {
  if (!a || a->saturates) return std::nullopt;
  if (op == Op::neg) return scaled(*a, -1);
  if (!b || b->saturates) return std::nullopt;
  if (op == Op::add) return sum(*a, *b, 1);
  if (op == Op::sub) return sum(*a, *b, -1);
  if (b->q == 0 && b->k == 0) return scaled(*a, b->c);
  if (a->q == 0 && a->k == 0) return scaled(*b, a->c);
  return std::nullopt;
}

// a ? b  <=>  c + f * (k - q) ? 0
std::optional<Bands> compare(Op op, const std::optional<Affine>& a, const std::optional<Affine>& b) {
  if (!a || !b) return std::nullopt;
  // A side that saturates stays on the same side of a value that lies strictly inside int64.
  if (a->saturates && reach(*b) >= highest) return std::nullopt;
  if (b->saturates && reach(*a) >= highest) return std::nullopt;
  const Wide c = a->c - b->c, f = a->k - b->k;
  if (a->q - b->q != -f) return std::nullopt;
  // Where c + f * d <= bound.
  const auto at_most = [&](Wide bound) {
    if (f == 0) return c <= bound ? all() : none();
    if (f > 0) return between(lowest, floor_div(bound - c, f));
    return between(-floor_div(bound - c, -f), highest);
  };
  switch (op) {
    case Op::lt:
      return at_most(-1);
    case Op::le:
      return at_most(0);
    case Op::gt:
      return complement(at_most(0));
    case Op::ge:
      return complement(at_most(-1));
    default: {
      const Bands equal = both(at_most(0), complement(at_most(-1)));
      return op == Op::eq ? equal : complement(equal);
    }
  }
}

// Both decided, or one of them decides.
std::optional<Bands> join(Op op, const std::optional<Bands>& a, const std::optional<Bands>& b) {
  if (a && b) return op == Op::logical_and ? both(*a, *b) : either(*a, *b);
  const Bands decisive = op == Op::logical_and ? none() : all();
  if ((a && *a == decisive) || (b && *b == decisive)) return decisive;
  return std::nullopt;
}

std::optional<Bands> choose(const std::optional<Bands>& by, const std::optional<Bands>& a,
                            const std::optional<Bands>& b) {
  const auto otherwise = by ? std::optional(complement(*by)) : std::nullopt;
  return join(Op::logical_or, join(Op::logical_and, by, a), join(Op::logical_and, otherwise, b));
}

std::optional<Bands> solve(const Graph& graph) {
  std::vector<Known> known(graph.nodes.size());
  for (std::size_t i = 0; i < known.size(); ++i) {
    const Node& n = graph.nodes[i];
    const auto argument = [&](std::size_t a) -> const Known& { return known[n.arg[a]]; };
    Known& here = known[i];
    switch (n.op) {
      case Op::constant:
        if (n.type == Type::boolean) here.bands = n.value ? all() : none();
        if (n.type == Type::integer) here.affine = checked({n.value, 0, 0});
        break;
      case Op::param:
        if (n.type == Type::integer) here.affine = checked({graph.params[n.slot].value, 0, 0});
        break;
      case Op::query:
        here.affine = Affine{0, 1, 0};
        break;
      case Op::key:
        here.affine = Affine{0, 0, 1};
        break;
      case Op::neg:
      case Op::add:
      case Op::sub:
      case Op::mul:
        here.affine = calculate(n.op, argument(0).affine, argument(1).affine);
        break;
      case Op::lt:
      case Op::le:
      case Op::gt:
      case Op::ge:
      case Op::eq:
      case Op::ne:
        here.bands = compare(n.op, argument(0).affine, argument(1).affine);
        break;
      case Op::logical_not:
        if (argument(0).bands) here.bands = complement(*argument(0).bands);
        break;
      case Op::logical_and:
      case Op::logical_or:
        here.bands = join(n.op, argument(0).bands, argument(1).bands);
        break;
      case Op::select:
        if (n.type == Type::boolean) here.bands = choose(argument(0).bands, argument(1).bands, argument(2).bands);
        break;
      default:
        break;  // not known: everything that needs it is not decided
    }
  }
  return std::move(known.back().bands);
}

}  // namespace

TileMap::TileMap(const Mask& mask) {
  if (mask.is_full()) return;
  const auto solved = solve(mask.graph());
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
  const std::int64_t nearest = sub(first, q_last), farthest = sub(last, q_begin);
  for (std::size_t i = 0; i < count_; ++i)
    if (bands_[i].lo <= nearest && farthest <= bands_[i].hi) return {Coverage::full, first, last + 1};
  return {Coverage::partial, first, last + 1};
}

double TileMap::pairs(std::int64_t q_begin, std::int64_t q_end, std::int64_t keys) const {
  const Wide n = Wide{q_end} - q_begin, every = keys;
  if (n <= 0 || keys <= 0) return 0;
  if (!decided_) return static_cast<double>(n) * static_cast<double>(keys);
  // Sum over q of clamp(q + c, 0, keys), how many keys lie before q + c: nothing, a ramp, then all of them.
  const auto before = [&](Wide c) {
    const Wide start = q_begin + c;  // the first query's value; it grows by 1 a query
    const Wide skipped = std::clamp(-start, Wide{0}, n), capped = std::clamp(start + n - every, Wide{0}, n);
    const Wide ramp = n - skipped - capped;
    return ramp > 0 ? ramp * (start + skipped) + ramp * (ramp - 1) / 2 + capped * every : capped * every;
  };
  Wide count = 0;
  for (const Band& band : bands()) {
    count += band.hi == highest ? n * every : before(Wide{band.hi} + 1);
    count -= band.lo == lowest ? Wide{0} : before(band.lo);
  }
  return static_cast<double>(count);
}

std::ostream& operator<<(std::ostream& out, const TileMap& map) {
  if (!map.decided()) return out << "not by distance alone: decided tile by tile";
  if (map.bands().empty()) return out << "none";
  if (map == TileMap()) return out << "all";
  out << (map.bands().size() == 1 ? "band" : "bands") << " k - q in ";
  const char* separator = "";
  for (const Band& band : map.bands()) {
    out << separator;
    if (band.lo == lowest) out << "(-inf, ";
    else out << '[' << band.lo << ", ";
    if (band.hi == highest) out << "inf)";
    else out << band.hi << ']';
    separator = " or ";
  }
  return out;
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
