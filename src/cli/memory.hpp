// Memory for what is measured: plain, aligned, and counted.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <memory>

namespace tessera::cli {

// Aligned memory that is not cleared. Throws std::bad_alloc.
class Block {
 public:
  Block() = default;
  explicit Block(std::size_t bytes);
  void* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  std::size_t bytes_ = 0;
  std::unique_ptr<void, Free> data_;
};

double available_bytes();  // of this machine's memory

}  // namespace tessera::cli
