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
  // The same for the lists of a persistent kernel's blocks.
  DeviceDeal dealt(Stream stream) const;

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
  // What all calls read, on the device from the first one on.
  struct Upload {
    std::atomic<bool> done = false;
    std::shared_ptr<void> memory;
  };
  template <class Make>
  const char* uploaded(Upload& upload, Stream stream, const Make& make) const;
  mutable std::mutex uploading_;
  mutable Upload run_memory_, deal_memory_;
  mutable DeviceRuns device_runs_;  // pointers: offsets in that memory
};

}  // namespace tessera::gpu
