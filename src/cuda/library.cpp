#include "cuda/library.hpp"

#include <dlfcn.h>

namespace tessera::cuda {

Library::Library(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_) return;
  const char* const why = dlerror();
  error_ = why ? why : "no reason given";
}

void* Library::find(const char* symbol) const { return handle_ ? dlsym(handle_, symbol) : nullptr; }

std::string Library::file_of(void* address) {
  Dl_info info{};
  return address && dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

}  // namespace tessera::cuda
