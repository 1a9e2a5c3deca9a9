// The CPU backend: one entry per instruction set, best first.
#pragma once
#include <vector>

#include "backend.hpp"

namespace tessera::cpu {

std::vector<const Backend*> backends();

}  // namespace tessera::cpu
