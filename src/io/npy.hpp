// Npy files: one array of NumPy's. The reader is strict: a file is data from a stranger, and one that is not exactly
// what it claims to be is refused. For tools; the library itself does no I/O.
// Must not know: attention.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/tensor.hpp"

namespace tessera::io {

// Versions 1 and 2, little-endian, row-major; f4, f2, i4, i8, u1 and b1, which are f32, f16, i32, i64, u8 and b8 here.
class Npy {
 public:
  // Both throw Error(io) that names the file and both values.
  static Npy read(const std::string& path);
  static Npy parse(std::span<const std::byte> bytes, std::string name);  // `name` stands for the file in errors

  // A read-only view, aligned for its type; it lives as long as this or a copy of it.
  const Tensor& tensor() const { return tensor_; }
  std::shared_ptr<const std::byte> data() const { return data_; }

 private:
  Npy() = default;
  std::shared_ptr<const std::byte> data_;  // 64-byte aligned
  Tensor tensor_;
};

}  // namespace tessera::io
