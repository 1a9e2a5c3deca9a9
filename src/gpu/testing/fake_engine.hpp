// A device that does nothing: it remembers what it was asked to do. Its memory is the host's.
#pragma once
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpu/engine.hpp"

namespace tessera::tests {

inline gpu::Caps caps_of_h200() {
  return {.name = "NVIDIA H200",
          .arch = 90,
          .sms = 132,
          .smem_block_bytes = 232448,
          .smem_sm_bytes = 233472,
          .smem_reserved_bytes = 1024,
          .threads_sm = 2048,
          .registers_sm = 65536,
          .l2_bytes = 50 << 20,
          .dram_bytes_s = 4.8e12,
          .tensor_flops = 989e12,
          .tensor_maps = true};
}

class FakeEngine final : public gpu::Engine {
 public:
  struct Launch {
    std::string kernel;
    std::int64_t blocks;
    std::vector<std::byte> params;
    void* stream;
  };
  struct Upload {
    void* to;
    std::vector<char> bytes;
  };
  gpu::Caps device = caps_of_h200();
  std::string nothing_here{};
  bool forgets = false;  // launches are not noted: noting allocates
  mutable std::vector<Launch> launches{};
  mutable std::vector<Upload> uploads{};
  mutable std::vector<gpu::TensorMapSpec> maps{};
  mutable int compiled = 0, constants = 0, kept = 0;
  std::map<const void*, Place> places{};  // of what is not on device 0

  std::string missing() const override { return nothing_here; }
  int devices() const override { return 1; }
  const gpu::Caps& caps(int) const override { return device; }
  const gpu::Kernel& kernel(int, const gpu::KernelText& text) const override {
    auto& slot = kernels_[text.source];
    if (!slot) {
      slot = std::make_unique<Named>();
      slot->name = text.name, slot->resources = {.registers = 168, .smem_bytes = static_cast<int>(text.smem_bytes)};
      slot->resources.blocks_per_sm = 3;
      ++compiled;
    }
    return *slot;
  }
  gpu::Found where(int, const gpu::KernelText& text) const override {
    return kernels_.count(text.source) ? gpu::Found::memory : gpu::Found::nowhere;
  }
  void launch(int, Stream stream, const gpu::Kernel& kernel, std::int64_t blocks, const void* params,
              std::size_t bytes) const override {
    if (forgets) return;
    const auto* from = static_cast<const std::byte*>(params);
    launches.push_back({static_cast<const Named&>(kernel).name, blocks, {from, from + bytes}, stream.handle});
  }
  void upload(int, Stream, void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
    uploads.push_back({to, {static_cast<const char*>(from), static_cast<const char*>(from) + bytes}});
  }
  void download(int, Stream, void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  void synchronise(int, Stream) const override {}
  void* workspace(int, Stream, std::size_t bytes) const override {
    workspace_ = allocate(0, bytes);
    return workspace_.get();
  }
  std::shared_ptr<void> allocate(int, std::size_t bytes) const override {
    return {std::aligned_alloc(256, (bytes + 255) / 256 * 256), [](void* memory) { std::free(memory); }};
  }
  std::shared_ptr<void> constant(int device_index, const void* from, std::size_t bytes) const override {
    ++constants;
    std::shared_ptr<void> memory = allocate(device_index, bytes);
    std::memcpy(memory.get(), from, bytes);
    return memory;
  }
  void tensor_map(const gpu::TensorMapSpec& spec, void* map) const override {
    check(spec);
    std::memset(map, 0, gpu::tensor_map_bytes);
    std::memcpy(map, &spec.data, sizeof spec.data);
    maps.push_back(spec);
  }
  void keep(int, Stream, const std::shared_ptr<const void>& owner) const override { kept += owner != nullptr; }
  Place place(const void* pointer) const override {
    const auto found = places.find(pointer);
    return found == places.end() ? Place{0, ""} : found->second;
  }

 private:
  struct Named final : gpu::Kernel {
    std::string name;
  };
  mutable std::map<std::string, std::unique_ptr<Named>> kernels_;
  mutable std::shared_ptr<void> workspace_;
};

}  // namespace tessera::tests
