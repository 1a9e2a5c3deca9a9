// One case of small_forward.cuh: inputs in guarded memory, a launch, and how far the result is from double precision.
#pragma once
#include <memory>
#include <string>

#include "sim/compile.hpp"
#include "sim/launch.hpp"
#include "sim/region.hpp"

namespace tessera::sim {

struct SmallShape {
  int queries, keys, heads, dim;
  bool causal;
};

// The text of one specialisation, made from the text of small_forward.cuh (or of a mutant of it).
std::string small_forward_text(const std::string& kernel, int dim, bool causal);

// The same of small_forward_sm90.cuh: 64 keys a tile, two stages.
std::string small_forward_sm90_text(const std::string& kernel, int dim, bool causal);

class SmallCase {
 public:
  SmallCase(SmallShape shape, unsigned seed);
  Result run(const LoadedCode& code, const Schedule& schedule) const;
  Result run_sm90(const LoadedCode& code, const Schedule& schedule) const;
  // The largest error of O and LSE, as a fraction of what rounding may cost.
  double error() const;

 private:
  SmallShape shape_;
  Memory q_, k_, v_, o_, lse_;
};

}  // namespace tessera::sim
