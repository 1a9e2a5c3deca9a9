// Indices of captured tensors against their extents: what no position can bring into a tensor, and axes that are
// indexed by a coordinate and are not as long as it reaches. The rules: docs/contracts.md.
// Must not know: devices' abilities, tile sizes, backends, data.
#pragma once
#include "tessera/problem.hpp"

namespace tessera::problem {

// Throws Error(invalid_shape) that shows the expression, points at the index, and says both values. The bindings were
// checked (check_bindings). `what`: "mask" or "score". Allocates nothing when all is well.
void check_indices(const char* what, const Graph& graph, const Bindings& bind, const Problem& problem);

}  // namespace tessera::problem
