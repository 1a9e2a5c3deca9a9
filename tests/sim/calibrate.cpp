// gpu-calibrate: every instruction of kernels/ptx/ on the GPUs that are here, beside the emulator. Exit code 1 if one
// differs, 0 if none does or if there is no GPU.
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include "cuda/engine.hpp"
#include "sim/calibration.hpp"
#include "sim/engine.hpp"
#include "sim/folder.hpp"

int main() {
  using namespace tessera;
  try {
    const gpu::Engine& gpus = cuda::engine();
    if (const std::string missing = gpus.missing(); !missing.empty()) {
      std::printf("skipped, there is no GPU: %s\n", missing.c_str());
      return 0;
    }
    const sim::Engine emulator({.checked = true, .folder = sim::cache_folder()});
    const sim::Engine hopper({.checked = true, .folder = sim::cache_folder(), .caps = sim::emulated_sm90()});
    const sim::Calibration wanted = sim::calibrate(emulator, 0), wanted_sm90 = sim::calibrate_sm90(hopper, 0);
    int bad = 0;
    for (int device = 0; device < gpus.devices(); ++device) {
      std::printf("%s\n", gpus.caps(device).name.c_str());
      std::vector<sim::Comparison> all = sim::compare(sim::calibrate(gpus, device), wanted);
      if (gpus.caps(device).arch == 90)
        for (sim::Comparison& c : sim::compare(sim::calibrate_sm90(gpus, device), wanted_sm90))
          all.push_back(std::move(c));
      for (const sim::Comparison& c : all) {
        std::printf("%s %s: %d of %d words differ", c.different ? "FAIL" : "ok  ", c.name.c_str(), c.different,
                    c.words);
        if (c.worst > 0) std::printf(", largest error %.2f of what is stated", c.worst);
        std::printf("%s%s\n", c.different ? "; " : "", c.first.c_str());
        bad += c.different != 0;
      }
    }
    return bad ? 1 : 0;
  } catch (const std::exception& e) {
    std::printf("failed: %s\n", e.what());
    return 1;
  }
}
