// What is asked, validated: shapes, types and options, never data. The first stage of the flow.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <string_view>

#include "tessera/mods.hpp"
#include "tessera/tensor.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {

// Packed sequences: q, k, v, o are [total, heads, dim] and sequence i owns the rows [cu[i], cu[i+1]).
// int32 or int64 prefix sums of [batch + 1] that start at 0, never decrease, and end at or before the total. Rows past
// the end are neither read nor written.
struct Packed {
  Tensor cu_q, cu_k;
};

// Tensors for the names that masks and score changes read, at most as many as Bindings::most. They are read where they
// are at the time of the call; an index outside of one is clamped, unless it is known to be wrong (docs/contracts.md).
struct Binding {
  std::string_view name;
  Tensor tensor;
};
class Bindings {
 public:
  static constexpr std::size_t most = 8;
  Bindings() = default;
  Bindings(std::initializer_list<Binding> list);  // throws Error(invalid_option) beyond `most` and for a name twice
  void add(const Binding& binding);               // the same
  const Binding* begin() const { return items_.data(); }
  const Binding* end() const { return items_.data() + count_; }

 private:
  std::size_t count_ = 0;
  std::array<Binding, most> items_{};
};

// What goes in. q [batch, tokens_q, heads_q, dim], k [batch, tokens_kv, heads_kv, dim], v [.., heads_kv, dim_v].
struct Inputs {
  Tensor q, k, v;
  Packed packed{};
  Tensor
      q_offset{};   // int32 or int64 [batch]: logical position of each sequence's first query. Else Options::q_offset.
  Bindings bind{};  // what the names in mask and score stand for
  // Learned sink logits, f32, bf16 or f16 [heads_q]: exp(sink of the head) joins the denominator of each row once, with
  // no value of its own, after the scale, the score change and the mask, which do not touch it; LSE includes it. A row
  // that attends to nothing has O = 0 and LSE = the sink. Of partial results that are to be merged, one has sinks.
  Tensor sinks{};
};

// What comes out: o like q with dim_v (the type of q, or f32); lse f32 [batch, heads_q, tokens_q] (packed:
// [heads_q, total_q]), natural logarithm of the softmax denominator, optional.
struct Outputs {
  Tensor o;
  Tensor lse{};
};

// What is asked.
struct Options {
  Mask mask{};
  ScoreMod score{};                        // applied after the scale and before the mask
  std::optional<float> scale{};            // default: 1 / sqrt(dim)
  std::optional<std::int64_t> q_offset{};  // logical position of the first query; default: keys - queries
  bool deterministic = false;              // (backward) bitwise repeatable; the forward pass always is
  bool batch_invariant = false;            // a row's bits depend on its own queries, keys and options only
  std::string_view backend{};              // "cpu", "cpu:avx2", ...; empty: the best that can
};

// A valid problem. Made by describe() alone; a plain value that prints, compares and hashes.
struct Problem {
  DType dtype = DType::none;      // of q, k, v
  DType out_dtype = DType::none;  // of o
  Device device{};
  bool packed = false;
  bool wants_lse = false;
  bool deterministic = false;
  bool batch_invariant = false;
  bool offset_per_sequence = false;        // Inputs::q_offset is given
  bool sinks = false;                      // Inputs::sinks is given
  std::optional<std::int64_t> q_offset{};  // Options::q_offset
  std::int64_t batch = 0, heads_q = 0, heads_kv = 0;
  std::int64_t tokens_q = 0, tokens_kv = 0;  // per sequence; packed: totals over all sequences
  std::int64_t dim = 0, dim_v = 0;
  std::int64_t align_bytes =
      0;  // the largest power of two (up to 64) that divides every pointer and stride of q, k, v, o
  float scale = 0;
  Mask mask{};
  ScoreMod score{};
  detail::Frozen<DType, 8> mask_tables{}, score_tables{};  // types of the tensors that they read, in the graphs' order
  detail::Frozen<char, 32> backend{};  // the pinned backend, empty for the best that can

  std::int64_t group() const { return heads_kv == 0 ? 1 : heads_q / heads_kv; }  // query heads per key head
  std::string_view pinned() const { return {backend.data(), backend.size()}; }
  bool operator==(const Problem&) const = default;
};
std::uint64_t hash(const Problem& problem);
std::ostream& operator<<(std::ostream& out, const Problem& problem);

// Validates and describes a call. Throws Error with both values and what is allowed; touches no data.
Problem describe(const Inputs& inputs, const Outputs& outputs, const Options& options = {});
// The same without outputs: o of q's type, and no lse.
Problem describe(const Inputs& inputs, const Options& options = {});

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
