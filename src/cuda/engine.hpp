// gpu::Engine by the CUDA driver and NVRTC.
// Must not know: attention.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/driver.hpp"
#include "cuda/kernel_store.hpp"
#include "cuda/memory.hpp"
#include "gpu/engine.hpp"

namespace tessera::cuda {

class CudaEngine final : public gpu::Engine {
 public:
  explicit CudaEngine(Settings settings);
  ~CudaEngine() override;

  std::string missing() const override;
  int devices() const override;
  const gpu::Caps& caps(int device) const override;
  const gpu::Kernel& kernel(int device, const gpu::KernelText& text) const override;
  gpu::Found where(int device, const gpu::KernelText& text) const override;
  void launch(int device, Stream stream, const gpu::Kernel& kernel, std::int64_t blocks, const void* params,
              std::size_t params_bytes) const override;
  void upload(int device, Stream stream, void* to, const void* from, std::size_t bytes) const override;
  void download(int device, Stream stream, void* to, const void* from, std::size_t bytes) const override;
  void synchronise(int device, Stream stream) const override;
  void* workspace(int device, Stream stream, std::size_t bytes) const override;
  std::shared_ptr<void> allocate(int device, std::size_t bytes) const override;
  std::shared_ptr<void> constant(int device, const void* from, std::size_t bytes) const override;
  void keep(int device, Stream stream, const std::shared_ptr<const void>& owner) const override;
  void tensor_map(const gpu::TensorMapSpec& spec, void* map) const override;
  std::vector<std::string> notes() const override { return notes_.all(); }
  Place place(const void* pointer) const override;

  // For `tessera info` and its kin.
  const Driver& driver() const;
  KernelStore& store() const;
  // Throws Error(invalid_option) when the compiler has been looked for already.
  void use_nvrtc(std::string path);

 private:
  class LoadedKernel;
  LoadedKernel& loaded(int device, const Digest& key) const;

  Settings settings_;
  mutable Notes notes_;
  // Opened when they are first needed: whoever stays on the CPU pays for neither.
  mutable std::once_flag driver_opened_, store_opened_;
  mutable std::shared_ptr<const Driver> driver_;
  mutable std::unique_ptr<Memory> memory_;
  mutable std::unique_ptr<KernelStore> store_;
  mutable std::mutex mutex_;  // of what follows, and of opening the store
  mutable std::map<std::pair<int, Digest>, std::unique_ptr<LoadedKernel>> kernels_;
};

// The one of the process, by the environment. Never destroyed: kernels and workspaces live as long as the process.
CudaEngine& engine();

}  // namespace tessera::cuda
