// One call: what the host knows of its tensors, checked against the device, uploaded where it lies on the host, and
// packed into the struct that a launch hands over.
// Must not know: kernels' texts, how a plan was made.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/decision.hpp"
#include "gpu/engine.hpp"
#include "kernels/params.cuh"

namespace tessera::gpu {

// A work list on the device, of a mask that is the same in every call.
struct DeviceRuns {
  const tessera_kernels::RunRange* ranges = nullptr;  // [maps, query tiles]
  const tessera_kernels::KeyRun* runs = nullptr;
  std::int64_t batch = 0, head = 0, tiles = 0;  // the map of (b, h) begins at (b * batch + h * head) * tiles
};

// Lists of a persistent kernel's blocks, or none.
struct DeviceDeal {
  const unsigned *list = nullptr, *begin = nullptr;
};

// Of one tensor that is said to be on `device`. Throws Error(invalid_device) when its memory is elsewhere.
void check_place(const Engine& engine, const Device& device, const char* name, const Tensor& tensor);

// Tensors that have elements must be memory that the device can use; throws Error(invalid_device) naming the first one
// that is not. Metadata may be on the host instead.
void check_places(const Engine& engine, const Problem& problem, const Inputs& inputs, const Outputs& outputs,
                  const Workspace& workspace);

// The parameters of a launch: ForwardParams, then the arguments of the score change, then those of the mask.
class LaunchParams {
 public:
  // Uploads in stream order what lies on the host, into the call's workspace: the caller's, else the engine's. `runs`:
  // where the plan has a work list; one of this call alone is made here.
  LaunchParams(const Engine& engine, const Problem& problem, const TileMap& tiles, const Decision& decision,
               const DeviceRuns& runs, const DeviceDeal& dealt, const Inputs& inputs, const Outputs& outputs,
               const Exec& exec);

  const tessera_kernels::ForwardParams& forward() const { return *forward_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  // Launches what finds on the device what the forward kernel needs, where the plan says so.
  void prepare(const Engine& engine, const Kernel& kernel, int device, Stream stream) const;

 private:
  tessera_kernels::ForwardParams* forward_ = nullptr;  // in bytes_
  std::span<std::byte> bytes_;                         // the calling thread's own memory, until its next call
  std::span<std::byte> prepare_bytes_;                 // the same
  emit::PrepareLaunches prepare_launches_{};
};

}  // namespace tessera::gpu
