// Where NVRTC, NVIDIA's run-time compiler, may be: a list of places in a fixed order (docs/cuda.md), each looked at,
// and what was found there. Must not know: kernels; how to use what is found.
#pragma once
#include <string>
#include <vector>

namespace tessera::cuda {

struct NvrtcPlaces {
  std::string option;                // by use_nvrtc() or --nvrtc: a file, or a folder that has one; this or nothing
  std::string variable;              // TESSERA_NVRTC: likewise
  std::vector<std::string> loaded;   // files that the process has loaded
  std::vector<std::string> python;   // site-packages of the running Python, and of the environment that is active
  std::vector<std::string> toolkit;  // CUDA_HOME, CUDA_PATH, /usr/local/cuda, /usr/local/cuda-*
  bool system = true;                // whether to ask the system's loader in the end
};
// As they are for this process, now.
NvrtcPlaces nvrtc_places(std::string option, std::string variable);

struct NvrtcCandidate {
  std::string path;  // a file that is there; for the system's loader, a name that it may find
  std::string how;   // "TESSERA_NVRTC", "the package nvidia-cuda-nvrtc"
  int major = 0;     // by the file's name; 0: it does not say
  bool operator==(const NvrtcCandidate&) const = default;
};
struct NvrtcSearch {
  std::vector<NvrtcCandidate> candidates;  // in the order in which they are tried
  std::vector<std::string> looked_at;      // every place, also those where there is none
};
// `driver_major`: the CUDA version of the driver, which runs no code of a later one: such compilers come last. 0: any.
NvrtcSearch search_nvrtc(const NvrtcPlaces& places, int driver_major);

}  // namespace tessera::cuda
