// In which order a persistent kernel takes the query tiles of a call whose sequences differ in length: long ones first.
// Cheap enough for every call: sequences are numbers of that call, not of its plan.
// Must not know: engines, addresses, data.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/work_list.hpp"

namespace tessera::gpu {

// Appends the query tiles of one unit of heads, numbered as the kernel numbers them over all sequences, to `order`:
// those with most key tiles first. `list`: the runs of this call, where the decision has them.
void order_tiles(const Problem& problem, const TileMap& map, const Decision& decision,
                 std::span<const Extent> sequences, const WorkList& list, std::vector<std::int64_t>& order);

// Units of heads that are worked on at once, a divisor of all: as many as half of the cache holds the keys of.
std::int64_t units_at_once(const Problem& problem, const Decision& decision, std::span<const Extent> sequences,
                           const Caps& caps);

}  // namespace tessera::gpu
