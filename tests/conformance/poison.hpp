// Memory that tells on its users: poisoned with NaN, with guards on both sides.
// Must not know: attention.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "regions.hpp"
#include "tessera/tensor.hpp"

namespace tessera::conformance {

enum class Poison : std::uint8_t { input, output };  // two NaNs that can be told apart from each other

// Is this element still what the suite poisoned it with?
bool is_output_poison(const Tensor& tensor, std::int64_t offset);

// `elements` elements of one type, each a NaN (integers: a large number), between two guards.
class Buffer {
 public:
  // The first element lies `shift` elements behind a 64-byte boundary.
  Buffer(DType dtype, std::int64_t elements, std::int64_t shift, Poison poison);
  void* data() const { return data_; }
  std::int64_t elements() const { return elements_; }
  DType dtype() const { return dtype_; }
  void poison();  // again, with the guards

  bool guards_intact() const;
  void remember();         // what is in it now
  bool unchanged() const;  // since remember()
  // Elements outside of `owned` that are no longer poison; -1 if none, else the first one's index.
  std::int64_t first_stray_write(const std::vector<char>& owned) const;

 private:
  DType dtype_;
  std::int64_t elements_;
  Poison poison_;
  std::size_t bytes_ = 0;
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<unsigned char, Free> memory_;
  std::size_t memory_bytes_ = 0;
  unsigned char* data_ = nullptr;
  std::vector<unsigned char> before_;
  std::optional<KnownRegion> known_;
};

// Scratch memory of an exact size, 64-byte aligned, filled with NaN, guarded.
class GuardedWorkspace {
 public:
  explicit GuardedWorkspace(std::size_t bytes);
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  bool guards_intact() const;

 private:
  std::size_t bytes_;
  std::vector<unsigned char> memory_;
  unsigned char* data_ = nullptr;
  std::optional<KnownRegion> known_;
};

}  // namespace tessera::conformance
