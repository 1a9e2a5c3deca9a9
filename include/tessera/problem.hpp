// What is asked, validated: shapes, types and options, never data. The first stage of the flow.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <string>
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

// Keys and values in a cache. lengths: int32 or int64 [batch], how many keys each sequence has by now; keys past them
// are never looked at.
// With a block table, int32 [batch, width], k is [pages, page size, heads_kv, dim] and v [pages, page size, heads_kv,
// dim_v]: key n of sequence b lies in page block_table[b][n / page size], at place n % page size. Sequences may share
// pages. Entries past a sequence's last page are never looked at.
// Without one, k and v are dense, [batch, tokens, heads_kv, ..], with room for more keys than there are.
// In a packed call, lengths take the place of cu_k.
struct PagedKv {
  Tensor block_table{}, lengths{};
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
// Where q is on a CUDA device, so are k, v, sinks and the outputs. Prefix sums, lengths, the block table, q_offset and
// the tensors in bind may each be there too or on the cpu: numbers on the cpu are checked and, in the order of the
// stream, brought over; numbers on the device are never copied back, and those out of range are clamped.
struct Inputs {
  Tensor q, k, v;
  Packed packed{};
  PagedKv pages{};
  Tensor
      q_offset{};   // int32 or int64 [batch]: logical position of each sequence's first query. Else Options::q_offset.
  Bindings bind{};  // what the names in mask and score stand for
  // Learned sink logits, f32, bf16 or f16 [heads_q]: exp(sink of the head) joins the denominator of each row once, with
  // no value of its own, after the scale, the score change and the mask, which do not touch it; LSE includes it. A row
  // that attends to nothing has O = 0 and LSE = the sink. Of partial results that are to be merged, one has sinks.
  Tensor sinks{};
};

// What was wrong with numbers on a device, where they cannot be refused before the call: bits in Outputs::errors.
enum class MetadataError : std::int32_t {
  prefix_sums = 1,  // packed.cu_q or cu_k: they decrease, start off 0 or pass the total
  lengths = 2,      // pages.lengths: below 0, or more than there is room for
  block_table = 4,  // pages.block_table: an entry that is used, and is no page that there is
};
// Such bits in words, "" for 0.
std::string metadata_error_text(std::int32_t bits);

// What comes out: o like q with dim_v (the type of q, or f32); lse f32 [batch, heads_q, tokens_q] (packed:
// [heads_q, total_q]), natural logarithm of the softmax denominator, optional.
// errors: i32, one element, where q is, optional. Bits of MetadataError are or-ed into it for numbers on the device
// that were out of range and therefore clamped, of sequences that have queries (rows that two sequences claim hold the
// result of either); it is never cleared, so one word may serve many calls. Set it to 0 before, read it when the stream
// has come so far. Plans do not depend on it, and without it nothing is spent. Numbers on the cpu are checked before
// the call instead.
struct Outputs {
  Tensor o;
  Tensor lse{};
  Tensor errors{};
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

// Addresses and strides of q, k, v, o are multiples of so many bytes: powers of two, up to 64.
struct Alignment {
  std::int64_t q = 0, k = 0, v = 0, o = 0;
  bool operator==(const Alignment&) const = default;
};

// Which numbers about a CUDA call lie on its device, where the host does not see them; all others are on the cpu.
struct OnDevice {
  bool cu_q = false, cu_k = false, lengths = false, block_table = false, q_offset = false;
  bool mask = false, score = false;  // some tensor that the mask, or the score change, reads
  bool operator==(const OnDevice&) const = default;
};

// A valid problem. Made by describe() alone; a plain value that prints, compares and hashes.
struct Problem {
  DType dtype = DType::none;      // of q, k, v
  DType out_dtype = DType::none;  // of o
  Device device{};
  bool packed = false;   // queries by prefix sums; and keys, where no lengths are given
  bool lengths = false;  // the keys in use are given for each sequence
  bool paged = false;    // keys and values through a block table; lengths is true
  bool wants_lse = false;
  bool deterministic = false;
  bool batch_invariant = false;
  bool offset_per_sequence = false;        // Inputs::q_offset is given
  bool sinks = false;                      // Inputs::sinks is given
  std::optional<std::int64_t> q_offset{};  // Options::q_offset
  std::int64_t batch = 0, heads_q = 0, heads_kv = 0;
  // Of each sequence; packed: totals over all sequences. Where lengths are given, tokens_kv is the most keys that a
  // sequence can have, packed or not; paged: the width of the block table * page_size.
  std::int64_t tokens_q = 0, tokens_kv = 0;
  std::int64_t page_size = 0;  // paged: tokens of a page; else 0
  std::int64_t dim = 0, dim_v = 0;
  Alignment align{};
  // Some stride of 0 lets tokens of q, k or v share a row, or query heads: copies of whole tiles cannot express it.
  // Batches and key heads that share theirs do not count.
  bool shared_rows = false;
  OnDevice on_device{};
  float scale = 0;
  Mask mask{};
  ScoreMod score{};
  detail::Frozen<DType, 8> mask_tables{}, score_tables{};  // types of the tensors that they read, in the graphs' order
  detail::Frozen<char, 32> backend{};                      // the pinned backend, empty for the best that can

  bool packed_keys() const { return packed && !lengths; }
  // Whether the plan knows how many keys each sequence has.
  bool keys_known() const { return !packed && !lengths; }
  std::int64_t align_bytes() const { return std::min({align.q, align.k, align.v, align.o}); }
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
