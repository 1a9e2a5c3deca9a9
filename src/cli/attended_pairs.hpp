// How much there is to do: the attended pairs of a shape, for any mask.
// Must not know: how it is computed or timed.
#pragma once
#include <array>
#include <span>

#include "cli/shape_flags.hpp"
#include "mods/graph.hpp"

namespace tessera::cli {

struct Pairs {
  double count = 0;  // over all sequences and heads
  bool exact = true;
};
// Exact unless more than 2^26 pairs of a head lie in tiles that the mask splits: those are sampled then. The shape has
// been accepted by describe().
Pairs attended_pairs(const Shape& shape);

// The tensors that a shape's mask reads, as its graph numbers them.
class MaskTables {
 public:
  explicit MaskTables(const Shape& shape);
  std::span<const mods::Table> all() const { return {tables_.data(), count_}; }

 private:
  std::array<mods::Table, Bindings::most> tables_{};
  std::size_t count_ = 0;
};

// Logical queries and keys of each sequence; where all are alike, of the first alone, `times` over.
struct Extent {
  std::int64_t q_offset = 0, queries = 0, keys = 0;
};
bool is_near(const Extent& extent);  // whether tile maps know its positions
struct Extents {
  std::vector<Extent> each;
  double times = 1;
};
// told_apart: whether sequences of one shape are different to the mask.
Extents extents_of(const Shape& shape, bool told_apart);

}  // namespace tessera::cli
