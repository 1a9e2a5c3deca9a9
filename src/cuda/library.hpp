// A shared library that is opened when it is needed, if it is there. Never closed: what it handed out lives as long as
// the process.
// Must not know: which library.
#pragma once
#include <string>

namespace tessera::cuda {

class Library {
 public:
  Library() = default;
  // `name`: a path, or a name that the system's loader finds. Not opened: error() says why.
  explicit Library(const std::string& name);
  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }
  // A function's address, or null.
  void* find(const char* symbol) const;
  // The file that `address`, one of the library's functions, comes from; empty: not known.
  static std::string file_of(void* address);

 private:
  void* handle_ = nullptr;
  std::string error_;
};

}  // namespace tessera::cuda
