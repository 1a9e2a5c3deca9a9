// The work list of a call's query tiles, laid out as the kernel reads it.
// Must not know: engines, addresses of tensors.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/decision.hpp"
#include "kernels/params.cuh"
#include "tiles/run_maps.hpp"

namespace tessera::gpu {

struct WorkList {
  std::vector<tessera_kernels::RunRange> ranges;  // [maps, query tiles]
  std::vector<tessera_kernels::KeyRun> runs;
  // The map of (b, h) begins at (b * batch + h * head) * tiles; packed: batch 0, tiles counted over all sequences.
  std::int64_t batch = 0, head = 0, tiles = 0;
  void clear() { ranges.clear(), runs.clear(); }
};

// One sequence as the mask sees it.
struct Extent {
  std::int64_t queries = 0, keys = 0, q_offset = 0;
};

// Of a mask whose maps are the same in every call.
void fixed_work_list(const Problem& problem, const Decision& decision, WorkList& list);
// From the values of this call. `tables` are bound to the mask's captures, in order.
void work_list_of(const Problem& problem, const Decision& decision, std::span<const Extent> sequences,
                  std::span<const mods::Table> tables, WorkList& list);

}  // namespace tessera::gpu
