#include "cli/memory.hpp"

#include <algorithm>
#include <fstream>
#include <new>
#include <string>

namespace tessera::cli {

Block::Block(std::size_t bytes) : bytes_(bytes) {
  constexpr std::size_t alignment = 64;
  const std::size_t whole = std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
  data_.reset(std::aligned_alloc(alignment, whole));
  if (!data_) throw std::bad_alloc();
}

double available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;)
    if (word == "MemAvailable:") {
      double kib = 0;
      file >> kib;
      return kib * 1024;
    }
  return 1e18;
}

}  // namespace tessera::cli
