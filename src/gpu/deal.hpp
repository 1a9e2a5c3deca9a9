// Which block of a persistent kernel does what: a list for each, made once for a plan whose work is the same in every
// call, so that all blocks end at about the same time and those that run at once read the same keys.
// Must not know: kernels, data.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tessera::gpu {

struct DealList {
  std::vector<unsigned> list, begin;  // block b: list[begin[b]] to list[begin[b + 1] - 1]
};

// What is to be dealt: `tiles` query tiles of each of `heads` heads; item head * tiles + tile.
struct Work {
  std::int64_t heads = 0, tiles = 0;
  std::int64_t group = 1;    // heads that share their keys, one after another
  double bytes_of_keys = 0;  // of one such group
  std::vector<double> cost;  // of each tile, in key tiles
};

// Costly tiles first, within as many heads at a time as the cache holds the keys of; each to the block that is free
// first.
DealList deal(const Work& work, int blocks, double cache_bytes);

}  // namespace tessera::gpu
