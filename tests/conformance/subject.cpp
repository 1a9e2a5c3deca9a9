#include "subject.hpp"

#include "backend.hpp"
#include "device_subject.hpp"
#include "gpu/gpu_backend.hpp"

namespace tessera::conformance {
namespace {

// Where the memory of a backend's device is: that of CUDA devices is copied to; tests may say otherwise of theirs.
struct Memories {
  std::vector<std::pair<std::string, MakeMemory>> of;
};
Memories& memories() {
  static Memories& all = *new Memories;
  return all;
}

const gpu::GpuBackend* gpu_backend(const std::string& name) {
  for (const Backend* backend : all_backends())
    if (backend->full_name() == name) return dynamic_cast<const gpu::GpuBackend*>(backend);
  return nullptr;
}

Subject on_device(const std::string& backend, const gpu::GpuBackend& gpu) {
  const Device device{DeviceType::cuda, 0};
  for (const auto& [name, memory] : memories().of)
    if (name == backend) return device_subject(backend, device, Metadata::either, memory);
  return device_subject(backend, device, Metadata::either, copied_memory(gpu.engine(), device.index));
}

Subject pinned(const std::string& backend) {
  if (const gpu::GpuBackend* gpu = gpu_backend(backend)) return on_device(backend, *gpu);
  Subject s{.name = backend.empty() ? "auto" : backend};
  s.run = [backend](const Inputs& inputs, const Outputs& outputs, const Options& options, const Exec& exec) {
    Options with = options;
    with.backend = backend;
    attention(inputs, outputs, with, exec);
  };
  s.workspace_bytes = [backend](const Inputs& inputs, const Outputs& outputs, const Options& options, int threads) {
    Options with = options;
    with.backend = backend;
    return plan(describe(inputs, outputs, with)).workspace_bytes(threads);
  };
  s.merge = [](const Outputs& a, const Outputs& b, const Outputs& out, const Exec& exec) { merge(a, b, out, exec); };
  return s;
}

}  // namespace

void set_memory(const std::string& backend, MakeMemory memory) {
  memories().of.emplace_back(backend, std::move(memory));
}

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const BackendInfo& info : backends())
    if (info.available) all.push_back(pinned(info.name));
  return all;
}

Subject subject(const std::string& backend) {
  std::string names;
  for (const BackendInfo& info : backends()) {
    if (info.available && (backend.empty() || info.name == backend || info.name.starts_with(backend + ":")))
      return pinned(info.name);
    if (info.name == backend)
      throw Error(Code::unsupported, "backend '" + backend + "' cannot run here: " + info.detail);
    names += (names.empty() ? "" : ", ") + info.name;
  }
  throw Error(Code::unsupported, "there is no backend '" + backend + "': it is one of " + names);
}

}  // namespace tessera::conformance
