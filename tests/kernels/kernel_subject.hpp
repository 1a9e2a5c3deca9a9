// A forward kernel of a given shape on the emulated GPU as a subject of the conformance suite: what no plan would
// choose for so small a case is tested, too. Fills in the parameters by itself, apart from src/gpu.
#pragma once
#include <cstdint>
#include <string>

#include "conformance/subject.hpp"
#include "emit/kernel_spec.hpp"

namespace tessera::tests {

// What a case leaves open.
struct KernelShape {
  int q_tile = 64, k_tile = 64, warps = 4, stages = 2;
  bool q_registers = false;
  int warps_n = 1;          // warps that share rows
  bool fixed = true;        // the softmax's reference, where the types allow it
  int heads = 1;            // query heads that share a tile; cut to what divides the group
  std::int64_t splits = 1;  // of the keys
  int copy = 16;            // at most: bytes that are copied at a time
  bool runs = true;         // masks that bands do not describe get a work list; else they are evaluated everywhere
  std::int64_t page = 0;    // page size: dense keys and values are put into pages in a random order; 0: not
  bool lengths = false;     // and as many keys again lie behind those in use (always so with pages)
  bool checked = false;     // clocks, bounds, uninitialised reads
  std::uint64_t schedule = 0;
};

emit::ForwardSpec spec_of(const KernelShape& shape, const Inputs& inputs, const Outputs& outputs,
                          const Options& options);
conformance::Subject kernel_subject(const KernelShape& shape);

}  // namespace tessera::tests
