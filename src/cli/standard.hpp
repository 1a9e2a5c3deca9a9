// The baseline: standard attention as a careful user would write it with a BLAS. For each (sequence, head): S = Q K^T
// by sgemm, a vectorised softmax over the attended keys, O = P V by sgemm; 16-bit inputs are widened first. S is
// written down whole, and used again for the next head. Must not know: plans, ceilings, how it is timed.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "tessera/attention.hpp"

namespace tessera::cli {

class StandardAttention {
 public:
  // Allocates what it needs. The tensors must have been accepted by describe(); the views are kept, not copied.
  StandardAttention(const Inputs& inputs, const Outputs& outputs, const Options& options, int threads);
  ~StandardAttention();
  StandardAttention(StandardAttention&&) noexcept;
  StandardAttention& operator=(StandardAttention&&) noexcept;

  static std::string library();  // the BLAS that it runs on, as that describes itself
  // Why it cannot be run: a mask without bands, a score change, or more memory than there is. Empty: it can.
  static std::string why_not(const Inputs& inputs, const Options& options);
  // Bytes that it allocates: scores, widened copies. Without what OpenBLAS takes for itself.
  static std::size_t bytes(const Inputs& inputs, const Options& options);

  void run();
  // With more than one thread OpenBLAS's threads spin for a while after a call: waits until they sleep, so that what
  // is measured next has the cores.
  void settle() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::cli
