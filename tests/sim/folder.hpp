// Where tests keep compiled kernels from run to run: beside the build, so that an unchanged kernel is compiled once.
#pragma once
#include <cstdlib>
#include <string>

namespace tessera::sim {

inline std::string cache_folder() { return TESSERA_SIM_CACHE; }

}  // namespace tessera::sim
