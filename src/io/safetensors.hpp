// Safetensors files: named tensors in one file, a JSON header in front. The reader is strict: a file is data from a
// stranger, and one that is not exactly what it claims to be is refused. For tools; the library itself does no I/O.
// Must not know: attention.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensor.hpp"

namespace tessera::io {

// One tensor of a file; row-major. F32, BF16, F16, I32, I64, U8 and BOOL can be read and written.
struct Entry {
  std::string name;
  DType dtype = DType::none;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // the elements; those of a reader live as long as it or a copy of it
};

class Safetensors {
 public:
  // Both throw Error(io) that names the file, the tensor and both values.
  static Safetensors read(const std::string& path);
  static Safetensors parse(std::span<const std::byte> bytes, std::string name);  // `name` stands for the file in errors

  const std::vector<Entry>& entries() const { return entries_; }  // in the order of their bytes
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  // A read-only view, aligned for its type. Throws Error(io) when there is none of this name or its rank is over
  // max_rank.
  Tensor tensor(std::string_view name) const;

 private:
  Safetensors() = default;
  const Entry* find(std::string_view name) const;

  std::string name_;
  std::shared_ptr<const std::byte> data_;  // the file behind its header, 64-byte aligned
  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

// Writes a file that read() reads back. Tensors of larger elements come first, so that all are aligned.
// Throws Error(io) when an entry is not what it claims to be or the file cannot be written.
void write_safetensors(const std::string& path, std::span<const Entry> entries,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera::io
