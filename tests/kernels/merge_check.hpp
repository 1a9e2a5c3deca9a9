// Random partial results merged on the emulated GPU, by the same host code as on a device, and what is wrong with the
// result by the definition in double precision. For tests and for planted bugs.
#pragma once
#include <cstdint>
#include <string>

#include "sim/engine.hpp"
#include "tessera/tensor.hpp"

namespace tessera::tests {

struct MergeShape {
  std::int64_t batch, tokens, heads, dim;
  std::int64_t gap = 0;    // elements between the rows of o
  std::int64_t shift = 0;  // of the first element, in elements
  bool packed = false;
};
struct MergeTypes {
  DType a, b, out;
};

// The first thing that is wrong; empty: nothing. Rows are of every kind: near each other, far apart, one part empty,
// both, NaN. With LSE also into the parts themselves, where the types allow it. The seed chooses data and schedule.
std::string merge_fault(sim::Engine& engine, const MergeShape& shape, const MergeTypes& types, std::uint64_t seed,
                        bool with_lse = true);

}  // namespace tessera::tests
