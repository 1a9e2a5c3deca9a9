// A stranger's file: read exactly, and told of in one way whatever its format.
// Must not know: formats.
#pragma once
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "problem/fail.hpp"

namespace tessera::io {

template <class... Parts>
[[noreturn]] void fail(const std::string& file, const Parts&... parts) {
  problem::fail(Code::io, file, ": ", parts...);
}

// Text from a file, made fit to be printed.
std::string printable(std::string_view text);

// Memory for a file's data, aligned to 64 bytes. Throws Error(out_of_memory).
std::shared_ptr<std::byte> allocate(std::uint64_t bytes, const std::string& file);

// A regular file, open for reading. Throws Error(io).
class File {
 public:
  explicit File(std::string path);
  std::uint64_t bytes() const { return bytes_; }
  void read(std::byte* to, std::uint64_t count);  // all of them, or Error(io)
  void seek(std::uint64_t offset) { stream_.seekg(static_cast<std::streamoff>(offset)); }

 private:
  std::string path_;
  std::uint64_t bytes_ = 0;
  std::ifstream stream_;
};

}  // namespace tessera::io
