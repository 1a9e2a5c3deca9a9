// From kernel text to code: the cache on disk, packs, or else the compiler; each text once, however many threads and
// processes ask for it.
// Must not know: the driver.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda/compiler.hpp"
#include "cuda/disk_cache.hpp"
#include "cuda/pack.hpp"
#include "cuda/settings.hpp"

namespace tessera::cuda {

// Thread-safe.
class KernelStore {
 public:
  KernelStore(const Settings& settings, int driver_version, Notes& notes);

  struct Code {
    std::shared_ptr<const KernelImage> image;
    gpu::Found found = gpu::Found::nowhere;  // where it was; nowhere: it was compiled
  };
  // For a device of compute capability `device`. Throws Error(unsupported), the same again for the same text.
  Code get(const gpu::KernelText& text, const Digest& key, int device);
  // The driver refused what get() returned: compile it anew, whatever the cache and packs hold.
  Code compiled_anew(const gpu::KernelText& text, const Digest& key, int device);
  gpu::Found where(const Digest& key, int device);

  Compiler& compiler() { return compiler_; }
  DiskCache& disk() { return disk_; }
  const std::vector<Pack>& packs();

 private:
  struct Slot {
    std::mutex mutex;
    Code code;
    std::string refusal;  // of the compiler
  };
  Slot& slot(const Digest& key, int device);
  Code fetch(const gpu::KernelText& text, const Digest& key, int device, Slot& slot);
  Code compile(const gpu::KernelText& text, const std::string& arch, Slot& slot);
  const Pack::Entry* packed(const Digest& key, int device, const Pack*& pack);
  std::string of_another_version(const gpu::KernelText& text, int device);
  void dump(const gpu::KernelText& text, const Digest& key, const Code* code) const;

  const Settings settings_;
  Notes& notes_;
  Compiler compiler_;
  DiskCache disk_;
  std::once_flag packs_opened_;
  std::vector<Pack> packs_;
  std::mutex mutex_;
  std::map<std::pair<Digest, int>, std::unique_ptr<Slot>> slots_;
};

}  // namespace tessera::cuda
