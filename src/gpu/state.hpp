// What a GPU plan keeps: its decision, its kernels once they are loaded, the work list once it is uploaded. Shared by
// all copies of the plan and by calls on any stream.
// Must not know: tensors of a call.
#pragma once
#include <atomic>
#include <iosfwd>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "emit/kernel_text.hpp"
#include "gpu/call.hpp"
#include "gpu/decision.hpp"
#include "gpu/engine.hpp"
#include "plan/details.hpp"

namespace tessera::gpu {

class State final : public plans::Details {
 public:
  State(const Engine& engine, const PlanData& plan, int arch, std::span<const Tile> table);
  void print(std::ostream& out) const override;

  const Engine& engine() const { return engine_; }
  int device() const { return device_; }
  const Decision& decision() const { return decision_; }

  // The kernels, compiled when they are asked for first.
  const Kernel& forward() const { return loaded(forward_, &State::forward_text); }
  const Kernel& combine() const { return loaded(combine_, &State::combine_text); }
  const Kernel& prepare() const { return loaded(prepare_, &State::prepare_text); }
  KernelText forward_text() const;
  KernelText prepare_text() const;  // of plans that have something to find on the device
  KernelText combine_text() const;  // of plans whose keys are split
  std::vector<KernelText> texts() const;

  // The work list, uploaded when it is asked for first; nothing where the plan has none.
  DeviceRuns runs(Stream stream) const;

 private:
  using Slot = std::atomic<const Kernel*>;
  const Kernel& loaded(Slot& slot, KernelText (State::*text)() const) const {
    const Kernel* kernel = slot.load(std::memory_order_acquire);
    return kernel ? *kernel : load(slot, (this->*text)());
  }
  const Kernel& load(Slot& slot, const KernelText& text) const;

  const Engine& engine_;
  const int device_;
  const Decision decision_;
  const Cost cost_;
  const Problem problem_;
  mutable Slot forward_ = nullptr, combine_ = nullptr, prepare_ = nullptr;
  mutable std::mutex uploading_;
  mutable std::atomic<bool> uploaded_ = false;
  mutable std::shared_ptr<void> run_memory_;
  mutable DeviceRuns device_runs_;
};

}  // namespace tessera::gpu
