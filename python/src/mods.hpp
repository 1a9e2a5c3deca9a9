// Masks and score changes as Python has them: the library's, with the arrays that they read.
#pragma once
#include <nanobind/nanobind.h>

#include <string>
#include <utility>
#include <vector>

#include "tessera/mods.hpp"

namespace tessera::python {

namespace nb = nanobind;

using Bound = std::vector<std::pair<std::string, nb::object>>;  // by name

struct BoundMask {
  Mask mask;
  Bound bound;
};
struct BoundScore {
  ScoreMod score;
  Bound bound;
};

// From None, a mask, the text of one, or a function of (b, h, q, k), which is called once.
BoundMask mask_of(nb::handle what);
// From None, a score change, the text of one, or a function of (s, b, h, q, k).
BoundScore score_of(nb::handle what);
// Both in one; the same name for two arrays is Error(invalid_option).
void join(Bound& bound, const Bound& more);

void define_mods(nb::module_& module);
void define_calls(nb::module_& module);

}  // namespace tessera::python
