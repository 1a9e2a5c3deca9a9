// Devices that are not there, for making their kernels: what each class of GPU can do, and an Engine that knows that
// and nothing else. Where a class comes in several sizes, there is a device of each: how keys are split, and with it
// which kernels are wanted, depends on the number of multiprocessors. Must not know: drivers, attention.
#pragma once
#include <string>
#include <vector>

#include "gpu/engine.hpp"

namespace tessera::cuda {

// Of "sm_90a": the GPUs of that compute capability. Throws Error(invalid_option) listing the known ones.
std::vector<gpu::Caps> known_devices(const std::string& arch);

class AheadEngine final : public gpu::Engine {
 public:
  explicit AheadEngine(std::vector<gpu::Caps> caps) : caps_(std::move(caps)) {}
  std::string missing() const override { return ""; }
  int devices() const override { return static_cast<int>(caps_.size()); }
  const gpu::Caps& caps(int device) const override { return caps_.at(static_cast<std::size_t>(device)); }
  gpu::Found where(int, const gpu::KernelText&) const override { return gpu::Found::nowhere; }
  Place place(const void*) const override { return {}; }
  // Whatever needs a device throws Error(internal).
  const gpu::Kernel& kernel(int device, const gpu::KernelText& text) const override;
  void launch(int, Stream, const gpu::Kernel&, std::int64_t, const void*, std::size_t) const override;
  void upload(int, Stream, void*, const void*, std::size_t) const override;
  void download(int, Stream, void*, const void*, std::size_t) const override;
  void synchronise(int, Stream) const override;
  void* workspace(int, Stream, std::size_t) const override;
  std::shared_ptr<void> allocate(int, std::size_t) const override;
  void tensor_map(const gpu::TensorMapSpec&, void*) const override;

 private:
  std::vector<gpu::Caps> caps_;
};

}  // namespace tessera::cuda
