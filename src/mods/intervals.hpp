// Interval arithmetic and the questions asked of summaries, for the host: the texts of shared/, which are embedded for
// devices as well. Must not know: graphs, tiles.
#pragma once
#include <math.h>

#include <cstdint>

#include "mods/arithmetic.hpp"

namespace tessera::mods::intervals {

using int64 = std::int64_t;
using uint64 = std::uint64_t;

#define SHARED inline
#include "mods/shared/intervals.inl"
#include "mods/shared/summaries.inl"
#undef SHARED

}  // namespace tessera::mods::intervals
