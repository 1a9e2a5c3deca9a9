// Score changes and captured tensors in the suite: what a graph means, read straight from its definition, and data for
// the names that it reads.
// Must not know: tiles, plans, backends, tolerances.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "mods/graph.hpp"
#include "oracle.hpp"
#include "random.hpp"

namespace tessera::conformance {

// A graph with its tensors: at a row and a key.
class Evaluated {
 public:
  Evaluated(const Graph& graph, const Inputs& inputs);
  bool is_empty() const { return graph_.nodes.empty(); }
  bool mask_at(const Sequence& sequence, std::int64_t head, std::int64_t query, std::int64_t key) const;
  // The score in fp64; and as an ordinary implementation has it: each operation on reals rounded to fp32.
  double score_at(const Sequence& sequence, std::int64_t head, std::int64_t query, std::int64_t key, double s) const;
  float score_fp32_at(const Sequence& sequence, std::int64_t head, std::int64_t query, std::int64_t key, float s) const;

 private:
  std::span<const mods::Table> tables() const { return {tables_.data(), graph_.captures.size()}; }
  Graph graph_;
  std::array<mods::Table, Bindings::most> tables_{};
};

// Which coordinates are indices of an axis of a captured tensor, as they are.
struct PlainIndices {
  bool b = false, h = false, q = false, k = false;
};
PlainIndices plain_indices(const Graph& graph, std::string_view name, int axis);

// What generated cases choose from. `keys`: the longest sequence. Score changes are continuous in the score: at a jump
// two right answers differ.
std::string random_score(Random& random);
std::string random_mod_mask(Random& random, std::int64_t keys, bool may_name_batch);

}  // namespace tessera::conformance
