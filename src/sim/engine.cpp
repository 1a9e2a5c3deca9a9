// Tables of kernels and workspaces around compile.hpp and launch.hpp.
#include "sim/engine.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <unordered_map>

#include "sim/kept_files.hpp"
#include "sim/tensor_map.hpp"
#include "tessera/error.hpp"

namespace tessera::sim {
namespace {

struct SimKernel final : gpu::Kernel {
  std::string name, spec;
  const LoadedCode* code = nullptr;
  int threads = 0;
  std::size_t smem_bytes = 0;
};

void need_device(int device) {
  if (device != 0)
    throw Error(Code::invalid_device, "device " + std::to_string(device) + ": there is one emulated device, number 0");
}

gpu::Resources resources_of(const gpu::KernelText& text, const gpu::Caps& caps) {
  gpu::Resources r;  // registers and spills are not known here: NVRTC knows them
  r.smem_bytes = int(text.smem_bytes);
  const int by_threads = caps.threads_sm / std::max(1, text.threads);
  const int by_smem = caps.smem_sm_bytes / std::max(1, r.smem_bytes + caps.smem_reserved_bytes);
  r.blocks_per_sm = std::min({by_threads, by_smem, 32});
  return r;
}

}  // namespace

gpu::Caps emulated_sm80() {
  gpu::Caps caps;
  caps.name = "emulated sm_80";
  caps.arch = 80;
  caps.sms = 108;
  caps.smem_block_bytes = 163 << 10;
  caps.smem_sm_bytes = 164 << 10;
  caps.smem_reserved_bytes = 1 << 10;
  caps.threads_sm = 2048;
  caps.registers_sm = 65536;
  caps.l2_bytes = 40 << 20;
  caps.dram_bytes_s = 1.555e12;
  caps.tensor_flops = 312e12;
  return caps;
}

gpu::Caps emulated_sm90() {
  gpu::Caps caps;
  caps.name = "emulated sm_90a";
  caps.arch = 90;
  caps.sms = 132;
  caps.smem_block_bytes = 227 << 10;
  caps.smem_sm_bytes = 228 << 10;
  caps.smem_reserved_bytes = 1 << 10;
  caps.threads_sm = 2048;
  caps.registers_sm = 65536;
  caps.l2_bytes = 50 << 20;
  caps.dram_bytes_s = 4.8e12;
  caps.tensor_flops = 989e12;
  caps.tensor_maps = true;
  return caps;
}

struct Engine::State {
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<SimKernel>> kernels;  // by their text
  std::map<std::pair<std::thread::id, void*>, std::unique_ptr<Memory>> workspaces;
  std::atomic<std::uint64_t> launches{0};
};

Engine::Engine(EngineOptions options) : options_(std::move(options)), state_(std::make_unique<State>()) {
  if (options_.folder.empty()) options_.folder = "sim-cache";
  prune_once(options_.folder);
}
Engine::~Engine() = default;

std::string Engine::missing() const {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) return "";
#endif
  return "the emulated GPU needs an x86-64 processor with AVX2, FMA and F16C";
}

const gpu::Caps& Engine::caps(int device) const {
  need_device(device);
  return options_.caps;
}

const gpu::Kernel& Engine::kernel(int device, const gpu::KernelText& text) const {
  need_device(device);
  {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->kernels.find(text.source);
    if (found != state_->kernels.end()) return *found->second;
  }
  if (text.smem_bytes > std::size_t(options_.caps.smem_block_bytes))
    throw Error(Code::internal, text.name + " asks for " + std::to_string(text.smem_bytes) +
                                    " bytes of shared memory, a block of the emulated device has " +
                                    std::to_string(options_.caps.smem_block_bytes));
  auto made = std::make_unique<SimKernel>();
  made->name = text.name;
  made->spec = text.spec;
  made->code = &compiled({options_.compiler, options_.folder, options_.checked}, text.name, text.source);
  made->threads = text.threads;
  made->smem_bytes = text.smem_bytes;
  made->resources = resources_of(text, options_.caps);
  const std::lock_guard lock(state_->mutex);
  return *state_->kernels.try_emplace(text.source, std::move(made)).first->second;
}

gpu::Found Engine::where(int device, const gpu::KernelText& text) const {
  need_device(device);
  switch (where_kept({options_.compiler, options_.folder, options_.checked}, text.name, text.source)) {
    case Kept::memory:
      return gpu::Found::memory;
    case Kept::disk:
      return gpu::Found::disk;
    case Kept::nowhere:
      break;
  }
  return gpu::Found::nowhere;
}

void Engine::prefetch(const std::vector<gpu::KernelText>& texts, int jobs) const {
  std::vector<NamedText> named;
  for (const gpu::KernelText& t : texts) named.push_back({t.name, t.source});
  compile_ahead({options_.compiler, options_.folder, options_.checked}, named, jobs);
}

Result Engine::run(const gpu::Kernel& kernel, std::int64_t blocks, const void* params, std::size_t params_bytes,
                   const Schedule& in) const {
  const auto& k = static_cast<const SimKernel&>(kernel);
  if (params_bytes != k.code->params_bytes)
    throw Error(Code::internal, k.name + " takes " + std::to_string(k.code->params_bytes) +
                                    " bytes of parameters, the launch gives " + std::to_string(params_bytes));
  return sim::launch(*k.code, blocks, k.threads, k.smem_bytes, params, in);
}

void Engine::launch(int device, Stream, const gpu::Kernel& kernel, std::int64_t blocks, const void* params,
                    std::size_t params_bytes) const {
  need_device(device);
  Schedule in = schedule;
  if (options_.vary) {
    const std::uint64_t n = state_->launches++;
    in = {schedule.seed + n % 1000, n % 2 ? Timing::random : n % 4 ? Timing::eager : Timing::late, int(1 + n % 3)};
  }
  const Result result = run(kernel, blocks, params, params_bytes, in);
  if (result.ok()) return;
  const auto& k = static_cast<const SimKernel&>(kernel);
  const char* timing[] = {"late", "eager", "random"};
  throw Error(Code::internal, "emulated launch of " + k.name + " (" + k.spec + "), " + std::to_string(blocks) +
                                  " blocks, seed " + std::to_string(in.seed) + ", copies " + timing[int(in.timing)] +
                                  ", " + std::to_string(in.resident) + " resident:\n" + text_of(result));
}

void Engine::upload(int device, Stream, void* to, const void* from, std::size_t bytes) const {
  need_device(device);
  if (bytes) std::memcpy(to, from, bytes);
  mark_written(to, bytes);
}

void Engine::download(int device, Stream, void* to, const void* from, std::size_t bytes) const {
  need_device(device);
  if (bytes) std::memcpy(to, from, bytes);
}

void Engine::synchronise(int device, Stream) const { need_device(device); }

void* Engine::workspace(int device, Stream stream, std::size_t bytes) const {
  need_device(device);
  const std::lock_guard lock(state_->mutex);
  auto& memory = state_->workspaces[{std::this_thread::get_id(), stream.handle}];
  if (memory && memory->bytes() == bytes) {
    std::memset(memory->as<>(), 0xff, bytes);
    mark_written(memory->as<>(), bytes, false);
  } else {
    memory.reset();
    memory = std::make_unique<Memory>("workspace", bytes, Content::nothing, 256);
  }
  return memory->as<>();
}

void Engine::tensor_map(const gpu::TensorMapSpec& spec, void* map) const {
  const EncodedMap made = encoded(spec);
  if (!options_.caps.tensor_maps) throw Error(Code::unsupported, options_.caps.name + " has no tensor maps");
  std::memcpy(map, &made, sizeof made);
}

std::shared_ptr<void> Engine::allocate(int device, std::size_t bytes) const {
  need_device(device);
  const auto memory = std::make_shared<Memory>("memory of a plan", bytes, Content::nothing, 256);
  return {memory, memory->as<void>()};
}

}  // namespace tessera::sim
