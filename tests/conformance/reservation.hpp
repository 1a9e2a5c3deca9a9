// Address space for tensors of billions of elements.
// Must not know: attention.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <string>

#include "check.hpp"

namespace tessera::conformance {

// Address space without memory behind it until it is touched. Shared, so that limits of private memory do not count it.
class Reservation {
 public:
  explicit Reservation(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(data_ != MAP_FAILED, "no address space of " + std::to_string(bytes) + " bytes");
    madvise(data_, bytes, MADV_NOHUGEPAGE);  // a huge page for each row would be real memory
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() { munmap(data_, bytes_); }
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

}  // namespace tessera::conformance
