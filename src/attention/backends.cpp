// The ONE ordered list of backends, best first.
#include <vector>

#include "backend.hpp"
#include "cpu/cpu_backend.hpp"
#include "cuda/engine.hpp"
#include "gpu/gpu_backend.hpp"
#include "tessera/attention.hpp"

namespace tessera {

namespace {

std::vector<const Backend*>& list() {
  static std::vector<const Backend*>& made = [&]() -> std::vector<const Backend*>& {
    auto& all = *new std::vector<const Backend*>;
    static const gpu::GpuBackend& cuda_sm80 = *new gpu::GpuBackend("cuda", cuda::engine(), 80);
    all.push_back(&cuda_sm80);
    for (const Backend* backend : cpu::backends()) all.push_back(backend);
    return all;
  }();
  return made;
}

}  // namespace

const std::vector<const Backend*>& all_backends() { return list(); }

void append_backend(const Backend& backend) { list().push_back(&backend); }

inline namespace TESSERA_API_NAMESPACE {

std::vector<BackendInfo> backends() {
  std::vector<BackendInfo> list;
  for (const Backend* b : all_backends()) {
    const std::string missing = b->missing();
    list.push_back({b->full_name(), missing.empty(), b->device(), missing.empty() ? b->about() : missing});
  }
  return list;
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
