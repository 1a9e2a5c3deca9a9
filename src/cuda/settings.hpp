// What the environment says to the CUDA runtime, read once (docs/contracts.md, "Manners").
// Must not know: anything else.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace tessera::cuda {

struct Settings {
  std::string driver;        // TESSERA_CUDA_DRIVER; empty: libcuda.so.1
  std::string nvrtc_option;  // by use_nvrtc() or --nvrtc
  std::string nvrtc;         // TESSERA_NVRTC
  std::string cache;         // the cache's folder; empty: none, and `no_cache` says why
  std::string no_cache;
  std::vector<std::string> packs;  // TESSERA_PACK, separated by colons
  std::string dump;                // TESSERA_DUMP
  // How long to wait for another process that compiles the same kernel, before compiling it here as well.
  std::chrono::milliseconds lock_patience{60'000};
};
Settings settings_from_environment();

}  // namespace tessera::cuda
