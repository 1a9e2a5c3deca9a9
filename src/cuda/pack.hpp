// Many compiled kernels in one file, made where there is a compiler and carried to where there is none.
// An index with a digest of its own at the front, then kernels as kernel_image.hpp encodes them: opening reads the
// index alone, and a kernel is looked at when it is wanted. Must not know: compilers, the driver.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cuda/kernel_image.hpp"

namespace tessera::cuda {

// Throws Error(io) when it cannot be written. Of kernels with the same text and architecture the last one counts.
void write_pack(const std::string& path, const std::vector<KernelImage>& kernels);

class Pack {
 public:
  // Throws Error(io): what is wrong with the file.
  explicit Pack(std::string path);
  const std::string& path() const { return path_; }

  struct Entry {
    Digest text{};
    std::string arch, name, spec;
    std::uint64_t offset = 0, bytes = 0;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  // For a text and a device; the code made for exactly that device first. Whichever compiler made it.
  const Entry* find(const Digest& text, int device) const;
  KernelImage read(const Entry& entry) const;  // throws Error(io)

 private:
  std::string path_;
  std::vector<Entry> entries_;
};

}  // namespace tessera::cuda
