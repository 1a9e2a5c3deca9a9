// merge() on a GPU: which kernel two partial results need, its parameters, one launch. Nothing is allocated once a
// kernel is loaded, nothing is uploaded, so a captured stream replays it.
// Must not know: which engine that is, plans.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "emit/merge_text.hpp"
#include "gpu/engine.hpp"
#include "kernels/merge_params.cuh"
#include "tessera/plan.hpp"

namespace tessera::gpu {

// Which kernel, and what the launch hands over. The parts and the result are valid (problem::check_merge).
struct MergeLaunch {
  emit::MergeSpec spec;
  tessera_kernels::MergeParams params;
  std::int64_t blocks = 0;  // 0: there are no rows
};
MergeLaunch merge_launch(const Outputs& a, const Outputs& b, const Outputs& out);

// The kernels that partial results of such a problem are merged by, where they lie dense: into their own type and, of
// f32, into that of q. Without LSE nothing can be merged.
std::vector<emit::MergeSpec> merge_specs(const Problem& problem);

class Merge {
 public:
  explicit Merge(const Engine& engine) : engine_(engine) {}
  // Throws Error(invalid_device) for a device that is not there and for tensors that are not on it.
  void run(const Outputs& a, const Outputs& b, const Outputs& out, const Exec& exec) const;

 private:
  static constexpr std::size_t specs = 3 * 3 * 3 * 4;  // types of a, b and out; widths
  using Slots = std::array<std::atomic<const Kernel*>, specs>;
  const Kernel& kernel(int device, const emit::MergeSpec& spec) const;

  const Engine& engine_;
  mutable std::once_flag counted_;
  mutable std::unique_ptr<Slots[]> slots_;  // of each device
};

}  // namespace tessera::gpu
