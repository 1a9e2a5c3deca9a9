// Device kernels as files, and what makes them: the GPUs and the compiler that are found, the cache on disk, packs.
// No call of attention() needs any of this; docs/cuda.md says where each is looked for.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/problem.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {

struct GpuInfo {
  std::string name;  // "NVIDIA H200"
  int arch = 0;      // compute capability: 90 is 9.0
  int sms = 0;       // multiprocessors
  std::int64_t smem_block_bytes = 0, l2_bytes = 0;
  double dram_bytes_s = 0, tensor_flops = 0;  // by clock and width; 0: not known
};
struct KernelCompiler {
  std::string path, found, version;  // which NVRTC, by which of the places ("the toolkit"), "13.0"
  std::vector<int> archs;            // that it compiles for
  std::string missing;               // empty, or that there is none: what was tried, and what would help
};
struct GpuReport {
  std::string driver, driver_version;  // the library's file; "13.0" is the newest CUDA that it can run
  std::string missing;                 // empty, or why there is no GPU, what was tried, and what would help
  std::vector<GpuInfo> gpus;           // as the driver numbers them
  KernelCompiler compiler;
  std::string cache;               // folder of the cache on disk; empty: there is none
  std::vector<std::string> packs;  // those that were accepted
  std::vector<std::string> notes;  // what went wrong and was worked around
};
// Opens the driver and the compiler, if they are there. Throws nothing but bad_alloc.
GpuReport gpu_report();

// Which NVRTC shall compile: a file, or a folder that has one; that one or none. Throws Error(invalid_option) once one
// is in use.
void use_nvrtc(std::string_view path);

// A kernel in the cache, or in a pack.
struct KernelFile {
  std::string path;  // of the file
  std::string name, spec, arch, compiler;
  std::uint64_t bytes = 0;
  std::string damage;  // empty, or what is wrong with it; then only path and bytes are known
};
std::vector<KernelFile> kernel_cache();
// Removes all, or what is damaged only. Returns how many files are gone.
std::size_t clear_kernel_cache(bool damaged_only = false);
// All kernels of a pack, each looked at. Throws Error(io) when the pack as a whole is refused.
std::vector<KernelFile> read_kernel_pack(const std::string& path);

// A kernel that was made ahead of its use, and what it takes of a device.
struct CompiledKernel {
  std::string name, spec, arch;
  int registers = 0, stack_bytes = 0, spill_bytes = 0, threads = 0;
  std::int64_t smem_bytes = 0;  // static and dynamic
  std::uint64_t code_bytes = 0;
  double seconds = 0;  // that compiling it took
};
// Makes the kernels that the plans of `problems` (of CUDA tensors) need on GPUs of each architecture ("sm_80",
// "sm_90a") and writes them to `path`, for machines that may not compile (TESSERA_PACK). No GPU is needed. `done` hears
// of each as it is made, from one thread at a time. Throws Error: unsupported when a problem cannot be run there or
// there is no compiler, io when the pack cannot be written.
std::vector<CompiledKernel> compile_kernels(const std::string& path, const std::vector<std::string>& archs,
                                            const std::vector<Problem>& problems,
                                            const std::function<void(const CompiledKernel&)>& done = {});

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
