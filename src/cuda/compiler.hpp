// NVRTC in use: kernel text in, code for one GPU out. Opened when there is something to compile; which one it would be
// is known before, from where it lies, so that a start from the cache does not pay for opening 100 MB of compiler. Must
// not know: the driver, caches.
#pragma once
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cuda/kernel_image.hpp"
#include "cuda/notes.hpp"
#include "cuda/nvrtc_search.hpp"

namespace tessera::cuda {

// What the assembler says of a kernel (--ptxas-options=-v).
struct AssemblerReport {
  int registers = 0, stack_bytes = 0, spill_bytes = 0, smem_bytes = 0;
  bool operator==(const AssemblerReport&) const = default;
};
AssemblerReport read_report(const std::string& log);

// The name of the code that a device gets: with everything its generation has, which from 9.0 on needs an "a".
std::string arch_name(int device);

// Thread-safe.
class Compiler {
 public:
  // `driver_version`: 12040, as the driver counts; 0: compile for whichever.
  Compiler(NvrtcPlaces places, int driver_version, Notes& notes);

  // Tells this compiler from every other one that may be installed; empty: there is none.
  std::string id();
  struct About {
    std::string path, how, version;  // "13.0"
    std::vector<int> archs;          // compute capabilities that it knows
    std::string missing;             // empty, or that there is none: what was tried, and what would help
  };
  const About& about();  // opens it

  // The code that a device can get from this compiler: arch_name(), or the nearest earlier one of its generation that
  // runs there. Throws Error(unsupported).
  std::string arch_for(int device);
  // Throws Error(unsupported): there is no compiler, or its log.
  KernelImage compile(const gpu::KernelText& text, const std::string& arch);

 private:
  struct Api;
  void locate();
  void open();
  bool open(const NvrtcCandidate& candidate);

  const NvrtcPlaces places_;
  const int driver_version_;
  Notes& notes_;
  std::mutex mutex_;
  bool located_ = false, opened_ = false;
  NvrtcSearch search_;
  std::string id_;
  About about_;
  const Api* api_ = nullptr;
};

}  // namespace tessera::cuda
