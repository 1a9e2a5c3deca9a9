// How tiles are decided, for the host: the text of shared/, which is embedded for devices as well.
// Must not know: graphs, devices.
#pragma once
#include "mods/intervals.hpp"

namespace tessera::tiles {

using mods::intervals::int64;
using mods::intervals::lower;
using mods::intervals::Truth;

#define SHARED inline
#define LONG_SHARED inline
#define ROLLED
#include "tiles/shared/decisions.inl"
#undef ROLLED
#undef LONG_SHARED
#undef SHARED

}  // namespace tessera::tiles
