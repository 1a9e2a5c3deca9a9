// The bounds of a mask as CUDA C++ text, for kernels that find on the device which tiles matter. The same text compiles
// with NVRTC, without any header, and with a host compiler for which __device__ is defined away; it allocates nothing,
// and needs no stack that grows.
// Must not know: kernels, devices.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "emit/mod_text.hpp"

namespace tessera::emit {

// What the bounds call, in namespace bounds_math: the texts of src/mods/shared and src/tiles/shared, which the host's
// own bounds, summaries and runs are compiled from, and what stands around them. Once, after mod_prelude().
std::string bounds_prelude();

// Text, in namespace bounds_math, of
//   struct NAME_cell_arguments                  of NAME_cell: as pack_arguments(..., {.reals = Reals::f64}) packs them
//   bool NAME_cell(float, b, h, q, k, args)     the mask itself, with reals of 64 bits: mod_function({.reals =
//   Reals::f64}) SummaryLayout NAME_layout_I(args)           for each captured tensor: the layout of its summary
//   Elements<...> NAME_elements_I(args, names)  and what made_entry() calls to read it
//   struct NAME { NAME(b, h, args, tables); Truth decide(const Box& box) const; bool cell(q, k) const; }
//   TileRuns NAME_runs(const Grid& grid, query_tile, b, h, args, tables, effort, Run* out, limit)
// `tables` are SummaryViews, one a captured tensor. NAME_runs is for one thread a query tile: called with a limit of 0
// it counts, called again with that limit it writes. `effort` bounds the boxes and pairs that are looked at, 2^63 - 1
// is no bound; without one the runs are exactly those of tiles::derive().
//
// decide() is sound for every mask. It goes the way of mods::Bounds, by the same interval arithmetic in the same
// rounding: integers are sums of positions and of what is no sum, built from the graph once for all; what depends on
// neither q nor k (parameters, b, h, elements such as len[b]) is computed where the mask is made. Sums are used where
// none of those is beyond 2^48, else plain intervals. Functions of the mathematical library are the device's own; their
// bounds are moved outward by 2^-46 of their size, as on the host, which covers the errors of either; a pair that is
// decided by the last bits of one may be decided otherwise than on the host.
// Equal nodes, captures and dtypes give equal text. Throws as mod_function does.
std::string bounds_text(std::string_view name, const Graph& mask, std::span<const DType> dtypes);

}  // namespace tessera::emit
