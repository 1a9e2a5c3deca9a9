// Cases as values: one printable, parseable line each; generated from (suite seed, index) with a bias to edges; shrunk
// greedily when they fail.
// Must not know: backends beyond the Subject it is given.
#pragma once
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy.hpp"
#include "random.hpp"
#include "subject.hpp"

namespace tessera::conformance {

// How the views lie in memory.
enum class Layout : std::uint8_t {
  bshd,    // dense
  bhsd,    // dense with heads outside tokens, seen through a transpose
  sliced,  // a slice of a larger, poisoned buffer, odd strides
  qkv,     // q, k and v interleaved in one buffer (k and v alone where the token counts differ)
  shared,  // every sequence reads the same keys and values: batch stride 0
};

enum class Family : std::uint8_t {
  normal,
  outlier,       // a few large dims, keys and values; queries scaled up
  growing,       // scores grow along the keys: every block brings a new maximum
  falling,       // the first keys dominate
  huge,          // values near the type's limit
  tiny,          // everything near the smallest normals
  constant,      // every input the same number
  zeros,         // queries 0: equal scores, so the mean of v
  denormal,      // values below the smallest normal
  nan_masked,    // NaN and Inf in keys and values that at least one row does not attend to
  nan_attended,  // NaN somewhere in q, k, v
  neg_inf,       // keys whose score is -inf in every row
};

inline constexpr int family_count = 12;

enum class Scratch : std::uint8_t { arena, exact };  // workspace: the library's, or handed in at its exact size

struct Lengths {
  std::int64_t q = 0, k = 0;
  bool operator==(const Lengths&) const = default;
};

struct CaseSpec {
  std::int64_t batch = 1, tokens_q = 1, tokens_k = 1, heads_q = 1, heads_kv = 1, dim = 8, dim_v = 8;
  DType dtype = f32, out = f32;
  std::string mask = "full", score = "s";
  Layout layout = Layout::bshd;
  std::vector<Lengths> packed{};         // not empty: packed sequences; batch and tokens follow from it
  Lengths slack{};                       // packed: rows of the totals that belong to no sequence
  std::vector<std::int64_t> used{};      // dense: keys in use of each sequence, of tokens_k that there is room for
  std::int64_t room = 0;                 // packed: keys lie in caches with room for so many; 0: packed as queries are
  std::int64_t page = 0;                 // not 0: such caches are pages of so many tokens, in random order
  std::int64_t prefix = 0;               // pages that lie within the first so many tokens are shared by all sequences
  std::optional<std::int64_t> offset{};  // Options::q_offset
  std::vector<std::int64_t> offsets{};   // Inputs::q_offset
  bool wide_index = false;               // prefix sums and offsets in i64
  std::optional<float> scale{};
  bool sinks = false;  // Inputs::sinks, of the input's type or f32
  Family family = Family::normal;
  bool lse = true;
  int threads = 1;
  Scratch workspace = Scratch::arena;
  std::int64_t shift = 0;  // elements by which every pointer is off a 64-byte boundary
  bool invariant = false;  // batch_invariant
  std::int64_t rows = 0;   // rows judged, chosen by seed; 0: all
  std::uint64_t seed = 1;
  bool operator==(const CaseSpec&) const = default;
};
std::ostream& operator<<(std::ostream& out, const CaseSpec& spec);
std::string line(const CaseSpec& spec);
// Reads what line() writes; fields left out keep their defaults. Throws Error(parse) naming the field.
CaseSpec parse_case(std::string_view text);
inline bool has_lengths(const CaseSpec& c) { return !c.used.empty() || c.room > 0; }
// Keys of a sequence that there is room for, where lengths say how many there are.
inline std::int64_t room_of(const CaseSpec& c) { return c.packed.empty() ? c.tokens_k : c.room; }
// Makes a hand-written spec self-consistent: heads that divide, lengths that agree.
CaseSpec normalised(CaseSpec spec);
double work(const CaseSpec& spec);  // multiply-adds of the oracle, about
// Multiply-adds of a machine that computes whole tiles of 16 queries and 64 keys, all rows, about.
double padded_work(const CaseSpec& spec);
// Why a subject is not given this case; empty: it is.
std::string unfit(const Subject& subject, const CaseSpec& spec);

// The index-th case of a suite, for one dtype.
CaseSpec generate(std::uint64_t suite_seed, std::int64_t index, DType dtype);

// What running a case found.
struct Outcome {
  std::string failure;                 // empty: all is well
  double worst = 0;                    // largest |error| / allowed
  std::vector<std::string> skipped{};  // lines of it that the subject was not given, and why
  bool passed() const { return failure.empty(); }
};
// Makes the data, runs the subject, judges; then runs again with other threads and workspace, and, where asked, alone
// and in chunks, and compares bits. Never throws on the subject's account.
Outcome run_case(const Subject& subject, const CaseSpec& spec);

// Halves and drops what the failure does not need, as long as `fails` says that it still fails.
CaseSpec shrink(const CaseSpec& spec, const std::function<bool(const CaseSpec&)>& fails, int max_tries = 300);

}  // namespace tessera::conformance
