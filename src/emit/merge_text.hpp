// The kernel that merges two partial results (kernels/merge.cuh): its text.
// Must not know: devices, drivers, data.
#pragma once
#include <iosfwd>

#include "emit/kernel_text.hpp"

namespace tessera::emit {

struct MergeSpec {
  DType a = DType::f32, b = DType::f32, out = DType::f32;  // of o: f32, bf16, f16
  int width = 8;  // elements that every pointer and stride allows at a time: 8, 4, 2, 1
  bool operator==(const MergeSpec&) const = default;
};
std::ostream& operator<<(std::ostream& out, const MergeSpec& spec);  // one line, all that the text depends on

// The parameter is a MergeParams (kernels/merge_params.cuh); a block for each merge_threads / 2^lanes_log2 rows. Throws
// Error(internal) for a spec that none is made of.
KernelText merge_text(const MergeSpec& spec);

}  // namespace tessera::emit
