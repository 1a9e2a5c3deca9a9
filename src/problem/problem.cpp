// The problem as a value: made from a call, hashed, printed.
// Must not know: devices' abilities, tile sizes, data.
#include "tessera/problem.hpp"

#include <cmath>
#include <limits>
#include <locale>
#include <ostream>
#include <sstream>
#include <utility>

#include "problem/bindings.hpp"
#include "problem/indices.hpp"
#include "problem/validate.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {
namespace {

Problem make(const Inputs& inputs, const Outputs* outputs, const Options& options) {
  const problem::Facts facts = problem::examine(inputs, outputs);
  problem::check_options(options, inputs);
  Problem p;
  p.dtype = facts.dtype, p.out_dtype = facts.out_dtype, p.device = facts.device;
  p.packed = facts.packed, p.lengths = facts.lengths, p.paged = facts.paged;
  p.wants_lse = facts.wants_lse, p.offset_per_sequence = facts.offset_per_sequence;
  p.sinks = facts.sinks;
  p.batch = facts.batch, p.heads_q = facts.heads_q, p.heads_kv = facts.heads_kv;
  p.tokens_q = facts.tokens_q, p.tokens_kv = facts.tokens_kv;
  p.page_size = facts.page_size, p.dim = facts.dim, p.dim_v = facts.dim_v;
  p.align = facts.align, p.shared_rows = facts.shared_rows, p.on_device = facts.on_device;
  p.deterministic = options.deterministic, p.batch_invariant = options.batch_invariant;
  p.q_offset = options.q_offset;
  p.scale = options.scale ? *options.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(facts.dim)));
  problem::check_bindings("mask", options.mask.graph(), inputs.bind, facts.device);
  problem::check_bindings("score", options.score.graph(), inputs.bind, facts.device);
  p.on_device.mask = problem::on_device(options.mask.graph(), inputs.bind);
  p.on_device.score = problem::on_device(options.score.graph(), inputs.bind);
  problem::check_indices("mask", options.mask.graph(), inputs.bind, p);
  problem::check_indices("score", options.score.graph(), inputs.bind, p);
  p.mask = options.mask, p.score = options.score;
  p.mask_tables = problem::table_dtypes(p.mask.graph(), inputs.bind);
  p.score_tables = problem::table_dtypes(p.score.graph(), inputs.bind);
  if (!options.backend.empty()) p.backend = detail::Frozen<char, 32>(std::span(options.backend));
  return p;
}

// Each word changes about half of the bits that come out (the finaliser of MurmurHash3).
class Hash {
 public:
  void add(std::uint64_t word) {
    state_ = (state_ ^ word) * 0xff51afd7ed558ccdu;
    state_ ^= state_ >> 32;
  }
  std::uint64_t value() const { return state_ * 0xc4ceb9fe1a85ec53u ^ state_ >> 29; }

 private:
  std::uint64_t state_ = 0x9e3779b97f4a7c15u;
};

void print_on_device(std::ostream& out, const OnDevice& there) {
  const std::pair<bool, const char*> flags[] = {{there.cu_q, "cu_q"},         {there.cu_k, "cu_k"},
                                                {there.lengths, "lengths"},   {there.block_table, "block_table"},
                                                {there.q_offset, "q_offset"}, {there.mask, "mask"},
                                                {there.score, "score"}};
  const char* before = " there=";
  for (const auto& [flag, name] : flags)
    if (flag) out << before << name, before = ",";
}

}  // namespace

std::string metadata_error_text(std::int32_t bits) {
  static constexpr std::pair<MetadataError, const char*> texts[] = {
      {MetadataError::prefix_sums, "prefix sums that decrease, start off 0 or pass the total"},
      {MetadataError::lengths, "lengths below 0, or of more keys than there is room for"},
      {MetadataError::block_table, "block-table entries that are no page"}};
  std::string text;
  for (const auto& [bit, what] : texts)
    if (bits & static_cast<std::int32_t>(bit)) {
      text.append(text.empty() ? "" : "; ").append(what);
      bits &= ~static_cast<std::int32_t>(bit);
    }
  if (bits != 0) text.append(text.empty() ? "" : "; ").append("unknown bits ").append(std::to_string(bits));
  return text;
}

Problem describe(const Inputs& inputs, const Outputs& outputs, const Options& options) {
  return make(inputs, &outputs, options);
}

Problem describe(const Inputs& inputs, const Options& options) { return make(inputs, nullptr, options); }

std::uint64_t hash(const Problem& p) {
  Hash hash_of;
  std::uint64_t kinds = 0;
  for (const std::uint64_t field : {static_cast<std::uint64_t>(p.dtype), static_cast<std::uint64_t>(p.out_dtype),
                                    static_cast<std::uint64_t>(p.device.type), std::uint64_t{p.q_offset.has_value()}})
    kinds = kinds << 8 | field;
  const OnDevice& there = p.on_device;
  for (const bool flag : {p.packed, p.lengths, p.paged, p.wants_lse, p.deterministic, p.batch_invariant,
                          p.offset_per_sequence, p.sinks, p.shared_rows, there.cu_q, there.cu_k, there.lengths,
                          there.block_table, there.q_offset, there.mask, there.score})
    kinds = kinds << 1 | std::uint64_t{flag};
  hash_of.add(kinds);
  const float scale = p.scale == 0 ? 0 : p.scale;  // the two zeros are equal
  for (const std::int64_t field :
       {std::int64_t{p.device.index}, p.q_offset.value_or(0), p.batch, p.heads_q, p.heads_kv, p.tokens_q, p.tokens_kv,
        p.page_size, p.dim, p.dim_v, p.align.q | p.align.k << 8 | p.align.v << 16 | p.align.o << 24,
        std::int64_t{std::bit_cast<std::int32_t>(scale)}})
    hash_of.add(static_cast<std::uint64_t>(field));
  hash_of.add(hash(p.mask.graph()));
  if (!p.score.is_identity()) hash_of.add(hash(p.score.graph()));
  for (const auto* tables : {&p.mask_tables, &p.score_tables})
    for (const DType dtype : *tables) hash_of.add(static_cast<std::uint64_t>(dtype));
  for (const char c : p.pinned()) hash_of.add(static_cast<unsigned char>(c));
  return hash_of.value();
}

std::ostream& operator<<(std::ostream& out, const Problem& p) {
  std::ostringstream text;  // whatever base, precision and locale the caller's stream has
  text.imbue(std::locale::classic());
  text << p.dtype;
  if (p.out_dtype != p.dtype) text << " -> " << p.out_dtype;
  text << " b=" << p.batch << (p.packed ? " packed" : "") << " sq=" << p.tokens_q << " sk=" << p.tokens_kv
       << (p.paged     ? " paged"
           : p.lengths ? " lengths"
                       : "");
  if (p.paged) text << " page_size=" << p.page_size;
  text << " hq=" << p.heads_q << " hkv=" << p.heads_kv << " d=" << p.dim << " dv=" << p.dim_v << " mask=" << p.mask;
  if (!p.score.is_identity()) text << " score=" << p.score;
  text.precision(std::numeric_limits<float>::max_digits10);
  text << " scale=" << p.scale << " q_offset=";
  if (p.offset_per_sequence) text << "per sequence";
  else if (p.q_offset) text << *p.q_offset;
  else text << "keys-queries";
  if (p.sinks) text << " sinks";
  if (p.wants_lse) text << " lse";
  if (p.deterministic) text << " deterministic";
  if (p.batch_invariant) text << " batch_invariant";
  const Alignment& a = p.align;
  text << " align=" << a.q;
  if (a.k != a.q || a.v != a.q || a.o != a.q) text << '/' << a.k << '/' << a.v << '/' << a.o;
  if (p.shared_rows) text << " shared_rows";
  text << ' ' << p.device;
  print_on_device(text, p.on_device);
  if (!p.pinned().empty()) text << " backend=" << p.pinned();
  return out << text.str();
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
