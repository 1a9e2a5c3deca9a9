#include "cuda/ahead.hpp"

#include "cuda/kernel_image.hpp"
#include "problem/fail.hpp"

namespace tessera::cuda {

using problem::fail;

namespace {

struct Kind {
  const char* name;
  int arch, sms, smem_block_bytes, smem_sm_bytes, threads_sm;
};
constexpr Kind kinds[] = {
    {"A100", 80, 108, 166912, 167936, 2048},       {"A30", 80, 56, 166912, 167936, 2048},
    {"RTX A6000", 86, 84, 101376, 102400, 1536},   {"A10", 86, 72, 101376, 102400, 1536},
    {"Orin", 87, 16, 166912, 167936, 1536},        {"L40S", 89, 142, 101376, 102400, 1536},
    {"RTX 4090", 89, 128, 101376, 102400, 1536},   {"L4", 89, 58, 101376, 102400, 1536},
    {"H100, H200", 90, 132, 232448, 233472, 2048}, {"H100 PCIe", 90, 114, 232448, 233472, 2048},
    {"H20", 90, 78, 232448, 233472, 2048},         {"B200", 100, 148, 232448, 233472, 2048},
    {"B300", 103, 148, 232448, 233472, 2048},      {"RTX PRO 6000", 120, 188, 101376, 102400, 1536},
    {"RTX 5090", 120, 170, 101376, 102400, 1536},  {"GB10", 121, 48, 101376, 102400, 1536},
};

[[noreturn]] void not_there() { fail(Code::internal, "a device that is not there was asked to do something"); }

}  // namespace

std::vector<gpu::Caps> known_devices(const std::string& arch) {
  std::vector<gpu::Caps> all;
  std::string known;
  for (const Kind& kind : kinds) {
    const std::string name = "sm_" + std::to_string(kind.arch);
    if (known.find(name) == std::string::npos) known += (known.empty() ? "" : ", ") + name;
    if (kind.arch != arch_number(arch)) continue;
    gpu::Caps caps;
    caps.name = kind.name, caps.arch = kind.arch, caps.sms = kind.sms;
    caps.smem_block_bytes = kind.smem_block_bytes, caps.smem_sm_bytes = kind.smem_sm_bytes;
    caps.smem_reserved_bytes = 1024, caps.threads_sm = kind.threads_sm, caps.registers_sm = 65536;
    caps.tensor_maps = kind.arch >= 90;
    all.push_back(caps);
  }
  if (all.empty())
    fail(Code::invalid_option, "'", arch, "' is no architecture for which kernels are made; known are ", known,
         ", from sm_90 on also with an a, as in sm_90a");
  return all;
}

const gpu::Kernel& AheadEngine::kernel(int, const gpu::KernelText&) const { not_there(); }
void AheadEngine::launch(int, Stream, const gpu::Kernel&, std::int64_t, const void*, std::size_t) const { not_there(); }
void AheadEngine::upload(int, Stream, void*, const void*, std::size_t) const { not_there(); }
void AheadEngine::download(int, Stream, void*, const void*, std::size_t) const { not_there(); }
void AheadEngine::synchronise(int, Stream) const { not_there(); }
void* AheadEngine::workspace(int, Stream, std::size_t) const { not_there(); }
std::shared_ptr<void> AheadEngine::allocate(int, std::size_t) const { not_there(); }
void AheadEngine::tensor_map(const gpu::TensorMapSpec&, void*) const { not_there(); }

}  // namespace tessera::cuda
