// The tensors of a case: laid out as the case says, filled by its family, poisoned everywhere else.
// Must not know: subjects, tolerances.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cases.hpp"
#include "poison.hpp"

namespace tessera::conformance {

// An output view in a buffer of its own, and which elements of it may be written.
struct OutputSet {
  std::unique_ptr<Buffer> o_buffer, lse_buffer;
  Outputs outputs{};
  std::vector<char> o_owned, lse_owned;

  // Empty, or which guard or foreign element was written.
  std::string stray_write() const;
};

struct CaseData {
  std::vector<std::unique_ptr<Buffer>> buffers;  // of the inputs
  std::vector<std::unique_ptr<std::string>> captured_names;
  Inputs inputs{};
  Options options{};
  std::vector<Sequence> sequences;

  OutputSet make_outputs(const CaseSpec& spec) const;
  bool inputs_intact() const;
};
CaseData make_data(const CaseSpec& spec);

// Compares the bits of `count` queries of one sequence in two results that may lie differently in memory: empty, or the
// first element that differs. All NaNs are equal.
std::string first_difference(const Outputs& a, const Sequence& in_a, const Outputs& b, const Sequence& in_b,
                             std::int64_t query_in_a, std::int64_t query_in_b, std::int64_t count);

// The keys and values of one sequence, side by side, as a dense batch of one.
struct Contiguous {
  std::vector<std::unique_ptr<Buffer>> buffers;
  Tensor k, v;
};
Contiguous contiguous_keys(const Inputs& inputs, const Sequence& sequence);

// A view of some queries (and all keys, where they are not in pages) of a dense or packed tensor's sequence, as a dense
// batch of one.
Tensor rows_of(const Tensor& tensor, const Sequence& sequence, bool of_queries, std::int64_t first, std::int64_t count);

}  // namespace tessera::conformance
