// What this machine can do at most, measured: fp32 FMAs on registers, and reading from DRAM. On random data, because
// clocks and power depend on it: zeros flatter a processor.
// Must not know: attention.
#pragma once
#include <string_view>
#include <vector>

#include "cli/crew.hpp"
#include "cli/memory.hpp"

namespace tessera::cli {

struct FmaLoop;

// A probe measures once, in some milliseconds. The ceiling is the best of many, taken between other measurements.
class FmaProbe {
 public:
  // isa as the CPU backends name it. Throws Misuse for one without a loop.
  FmaProbe(std::string_view isa, int threads);
  double gflops();

 private:
  const FmaLoop* loop_;
  Crew crew_;
  std::vector<float> seeds_;
  long rounds_ = 1000;  // grows until a probe takes long enough
};

class DramProbe {
 public:
  explicit DramProbe(int threads);
  double gbytes_per_s();

 private:
  Crew crew_;
  Block data_;
};

}  // namespace tessera::cli
