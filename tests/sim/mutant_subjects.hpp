// Kernels to plant bugs in, each with the runs that have to show them.
#pragma once
#include <functional>
#include <string>

#include "sim/compile.hpp"

namespace tessera::sim {

struct MutantSubject {
  std::string name;
  std::function<std::string()> text;    // of one specialisation
  std::function<std::string()> notice;  // what was wrong first, in the order of the runs; empty: nothing
};
// "small", "small_sm90", "forward", "forward_sm90" or "merge". Throws for another name.
const MutantSubject& mutant_subject(const std::string& name);

}  // namespace tessera::sim
