#include "cuda/engine.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <limits>

#include "problem/fail.hpp"

namespace tessera::cuda {

using problem::fail;

namespace {

CUstream handle(Stream stream) { return static_cast<CUstream>(stream.handle); }

// Old drivers cannot run what new compilers make; the driver's own words do not say so.
std::string load_hint(CUresult code, const Driver& driver, const KernelImage& image) {
  if (code != cuda_invalid_image && code != cuda_no_binary_for_gpu && code != cuda_unsupported_ptx) return "";
  return "; it was made by " + image.compiler + " for " + image.arch + ", the driver is for CUDA " +
         version_text(driver.version()) + ": a compiler of the driver's major version is needed (`pip install " +
         "nvidia-cuda-nvrtc" + (driver.version() / 1000 == 12 ? "-cu12" : "") +
         "`, or TESSERA_NVRTC), or a newer driver";
}

}  // namespace

// A kernel of one device, in each context where it was wanted. Contexts are few, and nothing is ever taken out, so a
// launch walks a list without a lock.
class CudaEngine::LoadedKernel final : public gpu::Kernel {
 public:
  struct In {
    std::uint64_t context;
    CUfunction function;
    const In* next;
  };
  ~LoadedKernel() override {
    for (const In* in = list.load(); in;) delete std::exchange(in, in->next);
  }
  CUfunction in(std::uint64_t context) const {
    for (const In* in = list.load(std::memory_order_acquire); in; in = in->next)
      if (in->context == context) return in->function;
    return nullptr;
  }
  // Loads it into the current context. Returns the driver's refusal, and its log.
  CUresult load(const Current& current, const KernelImage& code, std::string& log) const;

  std::string name;
  int device = -1;
  unsigned threads = 0, smem_bytes = 0;
  mutable std::mutex loading;
  mutable std::shared_ptr<const KernelImage> image;
  mutable std::atomic<const In*> list{nullptr};
};

CUresult CudaEngine::LoadedKernel::load(const Current& current, const KernelImage& code, std::string& log) const {
  const OutsideCapture outside(current.driver());
  const DriverApi& api = current.driver().api;
  char words[2048] = "";
  int options[] = {jit_error_log, jit_error_log_bytes};
  void* values[] = {words, reinterpret_cast<void*>(sizeof words)};
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUresult result = api.module_load(&module, code.cubin.data(), 2, options, values);
  log.assign(words);
  if (result != cuda_success) return result;
  result = api.module_function(&function, module, name.c_str());
  if (result == cuda_success && smem_bytes > 0)
    result = api.function_set(function, function_max_dynamic_smem, static_cast<int>(smem_bytes));
  if (result != cuda_success) {
    api.module_unload(module);
    return result;
  }
  list.store(new In{current.id(), function, list.load(std::memory_order_relaxed)}, std::memory_order_release);
  return cuda_success;
}

CudaEngine::CudaEngine(Settings settings) : settings_(std::move(settings)) {}
CudaEngine::~CudaEngine() = default;

const Driver& CudaEngine::driver() const {
  std::call_once(driver_opened_, [this] {
    driver_ = std::make_shared<const Driver>(settings_.driver);
    memory_ = std::make_unique<Memory>(driver_);
  });
  return *driver_;
}

KernelStore& CudaEngine::store() const {
  const int version = driver().version();
  std::call_once(store_opened_, [&] {
    std::lock_guard lock(mutex_);
    store_ = std::make_unique<KernelStore>(settings_, version, notes_);
  });
  return *store_;
}

void CudaEngine::use_nvrtc(std::string path) {
  std::lock_guard lock(mutex_);
  if (store_)
    fail(Code::invalid_option, "NVRTC ", path, ": the compiler is in use already; choose it before the first kernel");
  settings_.nvrtc_option = std::move(path);
}

std::string CudaEngine::missing() const { return driver().missing(); }
int CudaEngine::devices() const { return driver().devices(); }
const gpu::Caps& CudaEngine::caps(int device) const { return driver().caps(device); }

CudaEngine::LoadedKernel& CudaEngine::loaded(int device, const Digest& key) const {
  std::lock_guard lock(mutex_);
  std::unique_ptr<LoadedKernel>& kernel = kernels_[{device, key}];
  if (!kernel) kernel = std::make_unique<LoadedKernel>();
  return *kernel;
}

// Digests the whole text: plans keep what it returns.
const gpu::Kernel& CudaEngine::kernel(int device, const gpu::KernelText& text) const {
  const Driver& d = driver();
  const gpu::Caps& about = d.caps(device);
  if (text.smem_bytes > static_cast<std::size_t>(about.smem_block_bytes))
    fail(Code::unsupported, "the kernel ", text.name, " (", text.spec, ") needs ", text.smem_bytes,
         " bytes of shared memory, a block of device ", device, " (", about.name, ") may have ",
         about.smem_block_bytes);
  const Current current(d, device);
  const Digest key = text_key(text);
  LoadedKernel& kernel = loaded(device, key);
  std::lock_guard lock(kernel.loading);
  if (kernel.in(current.id())) return kernel;
  const OutsideCapture outside(d);  // also the questions below may load: the driver puts it off until then
  kernel.name = text.name, kernel.device = device;
  kernel.threads = static_cast<unsigned>(text.threads), kernel.smem_bytes = static_cast<unsigned>(text.smem_bytes);
  KernelStore::Code code{kernel.image, gpu::Found::memory};
  if (!code.image) code = store().get(text, key, about.arch);
  std::string log;
  CUresult result = kernel.load(current, *code.image, log);
  if (result != cuda_success && result != cuda_out_of_memory &&
      (code.found == gpu::Found::disk || code.found == gpu::Found::pack) &&
      store().compiler().about().missing.empty()) {
    notes_.add("the kernel " + text.name + " from " + (code.found == gpu::Found::disk ? "the cache" : "a pack") +
               " was refused by the driver (" + d.words(result) + "); compiled again");
    code = store().compiled_anew(text, key, about.arch);
    result = kernel.load(current, *code.image, log);
  }
  if (result != cuda_success)
    d.refuse(
        result,
        "loading the kernel " + text.name + (log.empty() ? "" : " (" + log + ")") + load_hint(result, d, *code.image),
        device);
  if (!kernel.image) {
    const CUfunction function = kernel.in(current.id());
    const auto get = [&](int attribute) {
      int value = 0;
      d.check(d.api.function_get(&value, attribute, function), "cuFuncGetAttribute", device);
      return value;
    };
    kernel.resources.registers = get(function_registers);
    kernel.resources.local_bytes = get(function_local);
    kernel.resources.smem_bytes = get(function_smem) + static_cast<int>(text.smem_bytes);
    d.check(d.api.occupancy(&kernel.resources.blocks_per_sm, function, text.threads, text.smem_bytes),
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", device);
    kernel.image = code.image;
  }
  return kernel;
}

gpu::Found CudaEngine::where(int device, const gpu::KernelText& text) const {
  const Digest key = text_key(text);
  {
    std::lock_guard lock(mutex_);
    const auto found = kernels_.find({device, key});
    if (found != kernels_.end() && found->second->list.load()) return gpu::Found::memory;
  }
  return store().where(key, caps(device).arch);
}

void CudaEngine::launch(int device, Stream stream, const gpu::Kernel& any, std::int64_t blocks, const void* params,
                        std::size_t params_bytes) const {
  if (blocks == 0) return;
  const LoadedKernel& kernel = static_cast<const LoadedKernel&>(any);
  const Driver& d = *driver_;  // which kernel() has opened
  if (blocks < 0 || blocks > std::numeric_limits<int>::max()) [[unlikely]]
    fail(Code::unsupported, "a launch of ", blocks, " blocks of ", kernel.name, ": a grid has at most 2147483647");
  if (kernel.device != device) [[unlikely]]
    fail(Code::invalid_device, "the kernel ", kernel.name, " was loaded on device ", kernel.device,
         " and is launched on device ", device);
  const Current current(d, device);
  CUfunction function = kernel.in(current.id());
  if (!function) [[unlikely]] {
    std::lock_guard lock(kernel.loading);
    std::string log;
    if (!kernel.in(current.id()))
      if (const CUresult result = kernel.load(current, *kernel.image, log); result != cuda_success)
        d.refuse(result, "loading the kernel " + kernel.name + " into another context", device);
    function = kernel.in(current.id());
  }
  void* arguments[] = {const_cast<void*>(params)};
  const CUresult result = d.api.launch(function, static_cast<unsigned>(blocks), 1, 1, kernel.threads, 1, 1,
                                       kernel.smem_bytes, handle(stream), params_bytes ? arguments : nullptr, nullptr);
  if (result != cuda_success) [[unlikely]]
    d.refuse(result,
             "launching " + kernel.name + " in " + std::to_string(blocks) + " blocks of " +
                 std::to_string(kernel.threads) + " threads with " + std::to_string(kernel.smem_bytes) +
                 " bytes of shared memory and " + std::to_string(params_bytes) + " of parameters",
             device);
}

void CudaEngine::upload(int device, Stream stream, void* to, const void* from, std::size_t bytes) const {
  const Current current(driver(), device);
  memory_->upload(current, handle(stream), to, from, bytes);
}

void CudaEngine::download(int device, Stream stream, void* to, const void* from, std::size_t bytes) const {
  const Current current(driver(), device);
  if (bytes > 0)
    driver_->check(driver_->api.copy_to_host(to, reinterpret_cast<CUdeviceptr>(from), bytes, handle(stream)),
                   "cuMemcpyDtoHAsync", device);
  driver_->check(driver_->api.stream_synchronise(handle(stream)), "cuStreamSynchronize", device);
}

void CudaEngine::synchronise(int device, Stream stream) const {
  const Current current(driver(), device);
  driver_->check(driver_->api.stream_synchronise(handle(stream)), "cuStreamSynchronize", device);
}

void* CudaEngine::workspace(int device, Stream stream, std::size_t bytes) const {
  const Current current(driver(), device);
  return memory_->workspace(current, handle(stream), bytes);
}

std::shared_ptr<void> CudaEngine::allocate(int device, std::size_t bytes) const {
  const Current current(driver(), device);
  return memory_->allocate(current, bytes);
}

std::shared_ptr<void> CudaEngine::constant(int device, const void* from, std::size_t bytes) const {
  const Current current(driver(), device);
  return memory_->constant(current, from, bytes);
}

void CudaEngine::keep(int device, Stream stream, const std::shared_ptr<const void>& owner) const {
  const Current current(driver(), device);
  memory_->keep(current, handle(stream), owner);
}

// Needs no context. In L2, lines of 256 bytes: tiles are read whole.
void CudaEngine::tensor_map(const gpu::TensorMapSpec& spec, void* map) const {
  gpu::check(spec);
  const Driver& d = driver();
  if (!d.api.tensor_map)
    fail(Code::unsupported, "the CUDA driver ", d.path(),
         " makes no tensor maps: one for CUDA 12.0 or later is needed");
  const int type = spec.type == DType::bf16  ? map_bf16
                   : spec.type == DType::f16 ? map_f16
                   : spec.type == DType::f32 ? map_f32
                   : spec.type == DType::i32 ? map_i32
                                             : map_u8;
  const int swizzle = spec.swizzle == gpu::TensorSwizzle::b128  ? 3
                      : spec.swizzle == gpu::TensorSwizzle::b64 ? 2
                      : spec.swizzle == gpu::TensorSwizzle::b32 ? 1
                                                                : 0;
  constexpr std::uint32_t side_by_side[5] = {1, 1, 1, 1, 1};
  struct alignas(map_alignment) {
    std::byte bytes[gpu::tensor_map_bytes];
  } made;
  const auto make = [&] {
    return d.api.tensor_map(&made, type, static_cast<std::uint32_t>(spec.rank), const_cast<void*>(spec.data), spec.dims,
                            spec.strides + 1, spec.box, side_by_side, 0, swizzle, map_l2_256, 0);
  };
  CUresult result = make();
  if (result == cuda_invalid_context) {  // the calling thread has none: that of the tensor's device will do
    const Current current(d, std::max(0, place(spec.data).device));
    result = make();
  }
  if (result != cuda_success) [[unlikely]] {
    std::string what = "a tensor map of dims";
    for (int i = 0; i < spec.rank; ++i) what += " " + std::to_string(spec.dims[i]);
    what += ", strides";
    for (int i = 1; i < spec.rank; ++i) what += " " + std::to_string(spec.strides[i]);
    what += " bytes, box";
    for (int i = 0; i < spec.rank; ++i) what += " " + std::to_string(spec.box[i]);
    d.refuse(result, what, 0);
  }
  std::memcpy(map, &made, sizeof made);
}

gpu::Engine::Place CudaEngine::place(const void* pointer) const {
  const Driver& d = driver();
  if (d.devices() == 0) return {-1, "host memory"};
  unsigned type = 0, managed = 0;
  int ordinal = -1;
  int attributes[] = {pointer_memory_type, pointer_is_managed, pointer_device};
  void* values[] = {&type, &managed, &ordinal};
  CUresult result = d.api.pointer_attributes(3, attributes, values, reinterpret_cast<CUdeviceptr>(pointer));
  if (result == cuda_invalid_context || result == cuda_invalid_value) return {-1, "host memory"};
  d.check(result, "cuPointerGetAttributes", 0);
  if (managed) return {ordinal, "managed memory"};
  if (type == memory_device) return {ordinal, "device memory"};
  return {-1, type == memory_host ? "pinned host memory" : "host memory"};
}

CudaEngine& engine() {
  static CudaEngine* const one = new CudaEngine(settings_from_environment());
  return *one;
}

}  // namespace tessera::cuda
