// Derivatives of expressions: graphs again.
// Must not know: tiles, tensors, backends.
#pragma once
#include <cstddef>

#include "tessera/mods.hpp"

namespace tessera::mods {

// d(result) / d(s) of the graph of a score change (no nodes: s itself). Real, over the same parameters and captures, in
// canonical order. Where a derivative jumps it is one of its sides: of min and max the first argument's when both are
// equal; of abs 0 at 0; conditions, sign and integers are constant between their jumps. Throws Error(invalid_mod) when
// the derivative, written out, is beyond the limits of a graph.
Graph derivative(const Graph& score);
// The same by the real node `node` of the graph: of an element of a captured tensor, its contribution to the gradient.
Graph derivative(const Graph& score, std::size_t node);

}  // namespace tessera::mods
