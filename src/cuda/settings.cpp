#include "cuda/settings.hpp"

#include <cstdlib>

namespace tessera::cuda {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

Settings settings_from_environment() {
  Settings settings;
  settings.driver = variable("TESSERA_CUDA_DRIVER");
  settings.nvrtc = variable("TESSERA_NVRTC");
  settings.dump = variable("TESSERA_DUMP");
  // Relative paths in XDG_CACHE_HOME are to be ignored, its specification says.
  if (const std::string own = variable("TESSERA_CACHE_DIR"); !own.empty()) settings.cache = own;
  else if (const std::string xdg = variable("XDG_CACHE_HOME"); xdg.starts_with("/")) settings.cache = xdg + "/tessera";
  else if (const std::string home = variable("HOME"); !home.empty()) settings.cache = home + "/.cache/tessera";
  else settings.no_cache = "none of TESSERA_CACHE_DIR, XDG_CACHE_HOME and HOME names a folder";
  const std::string packs = variable("TESSERA_PACK");
  for (std::size_t at = 0; at < packs.size();) {
    const std::size_t end = std::min(packs.find(':', at), packs.size());
    if (end > at) settings.packs.push_back(packs.substr(at, end - at));
    at = end + 1;
  }
  return settings;
}

}  // namespace tessera::cuda
