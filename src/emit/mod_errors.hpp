// What errors of a function come to in the result of a score change: which of two texts for it will do.
// Must not know: text, kernels.
#pragma once
#include "mods/graph.hpp"

namespace tessera::emit {

// Whether the graph has hyperbolic tangents, and each of them moves the result by at most 128 times its own error: as
// softcap(cap) does with caps up to that. An error of 2^-21 is then one of 2^-14 in a score, below what a probability
// loses when it is rounded to 16 bits.
bool takes_absolute_tanh(const Graph& graph);

}  // namespace tessera::emit
