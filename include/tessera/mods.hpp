// Masks: which (query, key) pairs take part. Coordinates are logical positions within the sequence (docs/contracts.md).
#pragma once
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <string_view>

#include "tessera/expr.hpp"

namespace tessera {
namespace mods {
class Builder;
}
inline namespace TESSERA_API_NAMESPACE {

// The word for no limit on a side of a window.
inline constexpr std::int64_t unbounded = std::numeric_limits<std::int64_t>::max();

// A boolean expression over (b, h, q, k): true where query q may attend to key k. Default: everywhere.
class Mask {
 public:
  Mask() = default;
  // Brings the graph into canonical form. Throws Error(invalid_mod) when it is malformed, when its result is not
  // boolean, when it uses the score, and when it nests more than 500 or, written out, has more than 32768 operations.
  explicit Mask(const Graph& graph);
  const Graph& graph() const { return graph_; }
  bool is_full() const { return graph_.nodes.empty(); }  // the mask that removes nothing
  bool operator==(const Mask&) const = default;

 private:
  friend class mods::Builder;  // what it builds is typed and canonical
  Graph graph_;
};

Mask full();    // every pair
Mask causal();  // k <= q
// q - left <= k <= q + right, both inclusive, q itself not counted. 0 is a width of zero; `unbounded` is no limit.
// The sides are run-time values: masks of different widths have equal nodes.
// Throws Error(invalid_option) for a negative side.
Mask window(std::int64_t left, std::int64_t right);

Mask operator&(const Mask& a, const Mask& b);
Mask operator|(const Mask& a, const Mask& b);
Mask operator!(const Mask& a);

// The text form, fully parenthesised: `(k <= q)`, `((q - param(1023)) <= k)`. Reads what << prints, and the names of
// the ready-made masks (`causal`, `window(1023, 0)`, `full`), with the usual precedence where parentheses are left out
// (from loose to tight: |, &, comparisons, + -, * / // %, unary - and !; comparisons do not chain).
// Integers are int64: sums, differences and products that leave it become its nearest end; // and % round down, so that
// a remainder has the sign of the divisor; a division by zero is 0.
// Throws Error(parse) that shows the text and points at the offending part.
Mask parse_mask(std::string_view text);
std::ostream& operator<<(std::ostream& out, const Mask& mask);

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
