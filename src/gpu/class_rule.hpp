// Which class of kernels is expected to be faster where both can run a problem: the rule behind the order of the list.
// Must not know: tiles, addresses, data.
#pragma once
#include <string>

#include "tessera/problem.hpp"

namespace tessera::gpu {

// Why cuda:sm_80 is the better choice than cuda:sm_90, with the number that decides; empty: it is not.
std::string left_to_sm80(const Problem& problem);

}  // namespace tessera::gpu
