// merge() of tensors on the cpu: two partial results over disjoint sets of keys become one.
// Must not know: plans, threads.
#pragma once
#include "tessera/problem.hpp"

namespace tessera::cpu {

// All three are valid (problem::check_merge). Weights are made in double precision.
void merge(const Outputs& a, const Outputs& b, const Outputs& out);

}  // namespace tessera::cpu
