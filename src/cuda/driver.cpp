#include "cuda/driver.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "cuda/library.hpp"
#include "problem/fail.hpp"

namespace tessera::cuda {
namespace {

using problem::fail;

// Dense 16-bit tensor-core operations of one multiprocessor in a clock, fp32 accumulation: the vendor's tables.
// Consumer cards of a generation do half of what its workstation cards do.
double tensor_flops_per_clock(int arch, bool consumer) {
  switch (arch) {
    case 80:
    case 87:
      return 2048;
    case 86:
    case 89:
    case 120:
    case 121:
      return consumer ? 512 : 1024;
    case 90:
      return 4096;
    case 100:
    case 103:
      return 8192;
    default:
      return 0;
  }
}

// What the driver's number for "it does not start" usually means.
const char* why_no_start(CUresult code) {
  switch (code) {
    case cuda_no_device:
      return "the driver sees no GPU: is one plugged in (nvidia-smi), does CUDA_VISIBLE_DEVICES hide it, was the "
             "container "
             "started with its GPUs?";
    case cuda_stub_library:
      return "this is the toolkit's stub for linking, not the driver: take the folder `stubs` out of LD_LIBRARY_PATH, "
             "or "
             "install an NVIDIA driver";
    case cuda_system_not_ready:
      return "the machine's GPUs are not up yet; where they are joined by NVSwitch, nvidia-fabricmanager must run";
    case cuda_driver_mismatch:
      return "the driver's library and its kernel module are of different versions: reboot after an update, or give "
             "the "
             "container the host's library";
    case cuda_unknown:
      return "the driver could not start: look for NVRM or Xid in the kernel's log; `nvidia-modprobe -u -c=0` where "
             "/dev/nvidia-uvm is missing";
    default:
      return "see whether nvidia-smi works here";
  }
}

const char* hint(CUresult code) {
  switch (code) {
    case cuda_illegal_address:
    case cuda_launch_failed:
      return "; a kernel that ran before, of whoever, has broken this context: compute-sanitizer finds it";
    case cuda_launch_out_of_resources:
      return "; the kernel needs more registers or shared memory than a block may have";
    case cuda_invalid_handle:
    case cuda_invalid_context:
      return "; the stream must belong to the device of the tensors and to the context that is current";
    case cuda_deinitialised:
      return "; the process is ending";
    case cuda_capture_unsupported:
    case cuda_capture_implicit:
      return "; a stream is being captured into a graph: make the call on that stream, or after the capture";
    default:
      return "";
  }
}

}  // namespace

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Driver::Driver(const std::string& path) : path_(path.empty() ? driver_name : path), process_(getpid()) {
  missing_ = opened(path_);
  if (missing_.empty()) missing_ = found_devices();
  if (!missing_.empty()) devices_.clear();
}

std::string Driver::opened(const std::string& path) {
  const Library library(path);
  if (!library)
    return "the CUDA driver " + path + " cannot be opened (" + library.error() +
           "): install an NVIDIA driver, start the container with its GPUs, or name the file in TESSERA_CUDA_DRIVER";
  std::string lacking;
#define TESSERA_FIND(member, name, parameters)                               \
  api.member = reinterpret_cast<CUresult(*) parameters>(library.find(name)); \
  if (!api.member && lacking.empty()) lacking = name;
#define TESSERA_FIND_OPTIONAL(member, name, parameters) \
  api.member = reinterpret_cast<CUresult(*) parameters>(library.find(name));
  TESSERA_CUDA_NEEDED(TESSERA_FIND)
  TESSERA_CUDA_OPTIONAL(TESSERA_FIND_OPTIONAL)
#undef TESSERA_FIND
#undef TESSERA_FIND_OPTIONAL
  if (const std::string file = Library::file_of(reinterpret_cast<void*>(api.init)); !file.empty()) path_ = file;
  if (api.driver_version)
    if (const CUresult code = api.driver_version(&version_); code != cuda_success)
      return "the CUDA driver " + path_ + " says " + words(code) + ": " + why_no_start(code);
  if (lacking.empty() && version_ >= oldest_driver) return "";
  return "the CUDA driver " + path_ +
         (version_ > 0 ? " is for CUDA " + version_text(version_) : " is of no known version") +
         (lacking.empty() ? "" : " and lacks " + lacking) + "; at least " + version_text(oldest_driver) +
         " is needed: install a newer NVIDIA driver";
}

std::string Driver::found_devices() {
  int count = 0;
  CUresult code = api.init(0);
  if (code == cuda_success) code = api.device_count(&count);
  if (code == cuda_success && count == 0) code = cuda_no_device;
  if (code != cuda_success)
    return "the CUDA driver " + path_ + " (" + version_text(version_) + ") says " + words(code) + ": " +
           why_no_start(code);
  for (int i = 0; i < count; ++i) {
    auto device = std::make_unique<Device>();
    char name[256] = "";
    if (code = api.device_get(&device->handle, i); code == cuda_success)
      code = api.device_name(name, sizeof name, device->handle);
    auto get = [&](int attribute) {
      int value = 0;
      if (const CUresult got = api.device_attribute(&value, attribute, device->handle); got != cuda_success) value = 0;
      return value;
    };
    if (code != cuda_success)
      return "device " + std::to_string(i) + " of the CUDA driver " + path_ + ": " + words(code) + ": " +
             why_no_start(code);
    gpu::Caps& caps = device->caps;
    caps.name = name;
    caps.arch = get(attribute_major) * 10 + get(attribute_minor);
    caps.sms = get(attribute_sms);
    caps.smem_block_bytes = get(attribute_smem_block_optin);
    caps.smem_sm_bytes = get(attribute_smem_sm);
    caps.smem_reserved_bytes = get(attribute_smem_reserved);
    caps.threads_sm = get(attribute_threads_sm);
    caps.registers_sm = get(attribute_registers_sm);
    caps.l2_bytes = get(attribute_l2_bytes);
    // Both edges of the memory's clock carry a bit.
    caps.dram_bytes_s = 2e3 * get(attribute_memory_clock_khz) * get(attribute_memory_bus_bits) / 8;
    const bool consumer = std::string_view(name).find("GeForce") != std::string_view::npos;
    caps.tensor_flops = tensor_flops_per_clock(caps.arch, consumer) * caps.sms * 1e3 * get(attribute_clock_khz);
    caps.tensor_maps = api.tensor_map && caps.arch >= 90;
    device->pools = api.pool_allocate && api.pool_free && get(attribute_memory_pools) != 0;
    devices_.push_back(std::move(device));
  }
  return "";
}

const Driver::Device& Driver::at(int device) const {
  if (device < 0 || device >= devices()) [[unlikely]] {
    if (!missing_.empty()) fail(Code::unsupported, missing_);
    fail(Code::invalid_device, "device ", device, ": the driver has ", devices(), ", numbered from 0");
  }
  return *devices_[static_cast<std::size_t>(device)];
}

CUcontext Driver::primary(int device, CUcontext lost) const {
  const Device& d = at(device);
  CUcontext context = d.primary.load(std::memory_order_acquire);
  if (context && !lost) [[likely]]
    return context;
  std::lock_guard lock(retaining_);
  if (context = d.primary.load(std::memory_order_relaxed); context && context != lost) return context;
  check(api.primary_retain(&context, d.handle), "cuDevicePrimaryCtxRetain", device);
  d.primary.store(context, std::memory_order_release);
  return context;
}

std::string Driver::words(CUresult code) const {
  const char *name = nullptr, *text = nullptr;
  if (api.error_name) api.error_name(code, &name);
  if (api.error_string) api.error_string(code, &text);
  return std::string(name ? name : "error") + " (" + std::to_string(code) + ")" +
         (text ? ", " + std::string(text) : "");
}

void Driver::refuse(CUresult code, const std::string& what, int device) const {
  std::string where = " on device " + std::to_string(device);
  if (device >= 0 && device < devices()) where += " (" + caps(device).name + ")";
  std::string more = hint(code);
  if (getpid() != process_)
    more =
        "; this process was forked after CUDA had been started, which CUDA does not survive: start workers by spawn, "
        "or fork before the first call";
  fail(code == cuda_out_of_memory ? Code::out_of_memory : Code::internal, what, where, ": ", words(code), more);
}

}  // namespace tessera::cuda
