// Compiled kernels in a folder, one file each. Any number of processes may use it at once, and each may be killed at
// any moment: files appear whole, by a rename, and are believed only after their digest has been looked at. What cannot
// be read, written or believed is told in a note and is otherwise as if it were not there. Must not know: compilers,
// the driver.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cuda/kernel_image.hpp"
#include "cuda/notes.hpp"

namespace tessera::cuda {

class DiskCache {
 public:
  // `directory`: made when it is first written to; empty: there is no cache, `why_not` says why.
  DiskCache(std::string directory, std::string why_not, Notes& notes);
  const std::string& directory() const { return directory_; }

  // By the compiler that is installed, named by its id; an empty id: by whichever.
  std::optional<KernelImage> find(const Digest& text, const std::string& arch, const std::string& compiler_id) const;
  bool store(const KernelImage& image) const;  // false: not kept, and noted
  std::string lock_path();                     // of the lock file, in a folder that exists; empty: none to be had

  struct File {
    std::string path;
    std::uint64_t bytes = 0;
    std::optional<KernelImage> image;  // nothing: damaged, or left half-written by a process that was killed
    std::string damage;
  };
  std::vector<File> files() const;  // ordered by name
  // Removes `which`; returns how many are gone.
  std::size_t remove(const std::vector<File>& which) const;

 private:
  bool make_directory() const;
  std::optional<KernelImage> read(const std::string& path) const;
  std::string directory_;
  Notes& notes_;
};

// Whole files. Empty optional: `why` is the system's word.
std::optional<std::string> read_file(const std::string& path, std::string& why);
// Under another name first, then renamed: whoever reads sees all of it or none.
bool write_file(const std::string& path, std::string_view bytes, std::string& why, unsigned mode = 0600);

}  // namespace tessera::cuda
