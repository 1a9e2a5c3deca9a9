// Captured tensors: from the names in a graph to the tensors of a call.
// Must not know: devices' abilities, tile sizes, backends.
#pragma once
#include "mods/graph.hpp"
#include "tessera/problem.hpp"

namespace tessera::problem {

// Refuses a name without a tensor, and a tensor of another kind or rank than the graph reads, one that is neither on
// the cpu nor on `device`, where the others are, or without data.
// `what`: "mask" or "score". Allocates nothing when all is well.
void check_bindings(const char* what, const Graph& graph, const Bindings& bind, const Device& device);

// Whether some tensor that the graph reads is on a CUDA device. The bindings were checked.
bool on_device(const Graph& graph, const Bindings& bind);

// The tensor of a capture; null if there is none.
const Binding* find_binding(const Bindings& bind, const Capture& capture);

// The tables of the graph's captures, in their order. tables: room for Bindings::most.
void bind_tables(const Graph& graph, const Bindings& bind, mods::Table* tables);

// Their types, in the same order.
detail::Frozen<DType, 8> table_dtypes(const Graph& graph, const Bindings& bind);

}  // namespace tessera::problem
