// The one place where arguments are refused. Everything here throws Error before anything is written.
// Must not know: devices' abilities, tile sizes, backends.
#pragma once
#include "tessera/problem.hpp"

namespace tessera::problem {

// What the tensors say by themselves. Named as in Problem.
struct Facts {
  DType dtype = DType::none, out_dtype = DType::none;
  Device device{};
  bool packed = false, lengths = false, paged = false;
  bool wants_lse = false, offset_per_sequence = false, sinks = false;
  std::int64_t batch = 0, heads_q = 0, heads_kv = 0;
  std::int64_t tokens_q = 0, tokens_kv = 0;
  std::int64_t page_size = 0;
  std::int64_t dim = 0, dim_v = 0;
  Alignment align{};
  bool shared_rows = false;
  OnDevice on_device{};  // but for the mask and the score change
};

// Refuses what is wrong with the tensors and tells what they say. Without outputs: o of q's type and no lse. Reads no
// data; allocates nothing when all is well.
Facts examine(const Inputs& inputs, const Outputs* outputs);

// Refuses what is wrong with the options of a call whose tensors were examined.
void check_options(const Options& options, const Inputs& inputs);

// Are these the tensors that `problem` describes? Shapes, types, packing, lse, offsets and alignment class (a higher
// one is welcome). Throws Error(plan_mismatch) naming the first thing that differs, with both values; and everything
// that describe() itself would refuse. Allocates nothing when all is well.
void check_tensors(const Problem& problem, const Inputs& inputs, const Outputs& outputs);

// What can only be refused with the data in hand, where it lies on the host: prefix sums (start at 0, never decrease,
// end within the total), lengths (no more than there is room for), the block table's entries that they use (pages that
// there are). Offsets are free. Throws Error naming the index and both values. Allocates nothing.
void check_values(const Problem& problem, const Inputs& inputs);

// Reads an int32 or int64 element of a rank-1 tensor (prefix sums, lengths, offsets).
std::int64_t integer_at(const Tensor& tensor, std::int64_t index);

// For merge(): shapes, types, strides and overlap of two partial results and their output.
void check_merge(const Outputs& a, const Outputs& b, const Outputs& out);

}  // namespace tessera::problem
