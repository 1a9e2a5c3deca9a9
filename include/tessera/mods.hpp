// Masks: which (query, key) pairs take part. Score changes: what becomes of a score before the softmax. Coordinates are
// logical positions within the sequence (docs/contracts.md). How to write one: docs/mods.md.
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
  Graph graph_;                // no nodes: true
};

Mask full();    // every pair
Mask causal();  // k <= q
// q - left <= k <= q + right, both inclusive, q itself not counted. 0 is a width of zero; `unbounded` is no limit.
// The sides are run-time values: masks of different widths have equal nodes.
// Throws Error(invalid_option) for a negative side.
Mask window(std::int64_t left, std::int64_t right);

// Captured tensors below are named here and bound at each call; an index outside of one is clamped. Numbers are
// run-time values, as the sides of a window. Throws Error(invalid_option) for a number that is not allowed and
// Error(invalid_mod) for a name that is none.
Mask prefix_lm(std::string_view length);    // int [b]: k <= q, or k < length[b]
Mask key_lengths(std::string_view length);  // int [b]: k < length[b]
// int [token], or of rank 2 [b][token]: the same id at q and at k.
Mask documents(std::string_view ids, int rank = 1);
// int [document], or of rank 2 [b][document], ascending: the first token of each document, as prefix sums say it, with
// or without the 0 and the total at their ends. The same document at q and at k. Tokens before the first offset are one
// document, those at the last one and past it another.
Mask documents_from_offsets(std::string_view offsets, int rank = 1);
Mask chunked(std::int64_t size);  // the same chunk: q // size == k // size
Mask sinks(std::int64_t count);   // the first keys: k < count
Mask dilated(std::int64_t step);  // every step-th distance: (q - k) % step == 0
// Tokens are the cells of a grid, row by row. A query sees the rows x columns cells around it; near an edge the nearest
// ones that fit the grid.
Mask neighborhood_2d(std::int64_t grid_rows, std::int64_t grid_columns, std::int64_t rows, std::int64_t columns);
// int [token]: the token that each one follows, itself for one that follows none. A query sees itself and what it
// follows, up to `depth` (1 to 64) steps back. For drafts of speculative decoding: key_lengths(prefix) | tree(parents,
// 8).
Mask tree(std::string_view parents, int depth);
// bool [q][k]; of rank 1 [k], of rank 3 [h][q][k], of rank 4 [b][h][q][k]. An axis of one element serves all.
Mask mask_tensor(std::string_view name, int rank = 2);
// bool [q // q_block][k // k_block], of rank 3 and 4 as above.
Mask block_sparse(std::string_view layout, std::int64_t q_block, std::int64_t k_block, int rank = 2);

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

// A real expression over (s, b, h, q, k): what the score s becomes. Default: s itself. It is applied after the scale
// and before the mask.
class ScoreMod {
 public:
  ScoreMod() = default;
  // Brings the graph into canonical form; an integer result becomes a real. Throws Error(invalid_mod) as Mask does, and
  // when the result is a boolean.
  explicit ScoreMod(const Graph& graph);
  const Graph& graph() const { return graph_; }
  bool is_identity() const { return graph_.nodes.empty(); }
  bool operator==(const ScoreMod&) const = default;

 private:
  friend class mods::Builder;
  Graph graph_;  // no nodes: s
};

ScoreMod softcap(double cap);            // cap * tanh(s / cap)
ScoreMod alibi(std::string_view slope);  // real [h]: s + slope[h] * (k - q)
// T5: s + table[h][bucket of k - q]. Half of the buckets are one distance each, the others grow with its logarithm up
// to max_distance; in both directions: half of the buckets for keys after the query.
ScoreMod relative_bias(std::string_view table, std::int64_t buckets = 32, std::int64_t max_distance = 128,
                       bool both_directions = true);
// s + bias[q][k]; axes as in mask_tensor.
ScoreMod bias_tensor(std::string_view name, int rank = 2);

// First one, then the other, which sees the result as its score.
ScoreMod operator>>(const ScoreMod& first, const ScoreMod& second);

// As parse_mask; `s` is the identity.
ScoreMod parse_score(std::string_view text);
std::ostream& operator<<(std::ostream& out, const ScoreMod& score);

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
