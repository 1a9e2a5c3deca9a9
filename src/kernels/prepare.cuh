// What has to be known on the device before the forward kernel starts and follows from metadata there: how many query
// tiles stand before each packed sequence, and whether lengths and prefix sums are what they should be. (What follows
// from captured tensors: prepare_runs.cuh.)
// Must not know: masks, heads.
#pragma once
#include "metadata.cuh"
#include "prepare_params.cuh"
#include "ptx/memory.cuh"
#include "ptx/warp.cuh"

namespace tessera_kernels {

struct PrefixShared {
  i64 warp_total[prepare_warps];
};

PTX i64 shfl_up(i64 x, unsigned by, unsigned lane) {
  const unsigned from = lane < by ? lane : lane - by;
  const unsigned low = ptx::shfl_idx((unsigned)(unsigned long long)x, from);
  const unsigned high = ptx::shfl_idx((unsigned)((unsigned long long)x >> 32), from);
  return lane < by ? 0 : (i64)((unsigned long long)high << 32 | low);
}

// tiles_before of all sequences, by one block: prepare_threads sequences at a time, each thread one. Prefix sums that
// are not ascending may count more tiles than there are blocks for: those are cut off.
PTX void count_tiles(const PrepareParams& p, int q_tile, PrefixShared& shared) {
  const unsigned thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  i64 before = 0;
  for (i64 first = 0; first < p.sequences.batch; first += prepare_threads) {
    const i64 b = first + thread;
    i64 sum = 0;
    if (b < p.sequences.batch) sum = (sequence_of(p.sequences, b).queries + q_tile - 1) / q_tile;
    for (unsigned by = 1; by < 32; by *= 2) sum += shfl_up(sum, by, lane);
    if (lane == 31) shared.warp_total[warp] = sum;
    __syncthreads();
    i64 all = 0;
    for (unsigned w = 0; w < (unsigned)prepare_warps; ++w) {
      if (w == warp) sum += before + all;
      all += shared.warp_total[w];
    }
    if (b < p.sequences.batch) p.tiles_before[b + 1] = clamp(sum, 0, p.tiles);
    before += all;
    __syncthreads();  // before the totals are written again
  }
  if (thread == 0) p.tiles_before[0] = 0;
}

// Sets the error bits of what had to be clamped.
PTX void check_sequences(const Sequences& s) {
  if (!s.error) return;
  unsigned errors = 0;
  for (i64 b = threadIdx.x; b < s.batch; b += prepare_threads) errors |= sequence_of(s, b).errors;
  if (errors != 0) ptx::atomic_or(s.error, errors);
}

// Without a mask whose runs are found here: one block.
template <class Spec>
PTX void prepare_tiles(const PrepareParams& p) {
  auto& shared = ptx::shared_memory<PrefixShared>();
  if (Spec::packed) count_tiles(p, Spec::q_tile, shared);
  check_sequences(p.sequences);
}

}  // namespace tessera_kernels
