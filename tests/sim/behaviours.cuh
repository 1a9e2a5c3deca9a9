// Small kernels, right ones and wrong ones, each for one thing that the emulated GPU does or notices. behaviours.cpp
// makes one text of them all, with a switch over Params::which in the order of this file.
#pragma once
#include "kernels/ptx/arithmetic.cuh"
#include "kernels/ptx/barriers.cuh"
#include "kernels/ptx/base.cuh"
#include "kernels/ptx/copies.cuh"
#include "kernels/ptx/matrix.cuh"
#include "kernels/ptx/memory.cuh"
#include "kernels/ptx/warp.cuh"

using ptx::u16;
using ptx::u32;

struct Params {
  u32 which;
  u32* out;       // [1024]
  const u32* in;  // [1024], 0, 1, 2 ...
  u32* fresh;     // [64], nobody has written it
};
struct alignas(16) Shared {
  u32 a[1024];
};

#define BEHAVIOUR(name) PTX void name(const Params& p, Shared& s, u32 t, u32 lane)

// --- the block's barriers
BEHAVIOUR(deadlock_at_syncthreads) {
  if (t < 64) __syncthreads();
}
BEHAVIOUR(deadlock_beside_a_block_that_ends) {  // which does so last
  if (blockIdx.x == 1) {
    if (t < 64) __syncthreads();
    if (t == 127) ptx::store_release(p.out, 1);
  } else if (t == 0) {
    while (ptx::load_acquire(p.out) == 0) {
    }
  }
}
BEHAVIOUR(barrier_with_two_counts) { ptx::named_barrier_sync(1, t < 32 ? 64 : 128); }
BEHAVIOUR(barrier_with_a_bad_id) { ptx::named_barrier_sync(16, 128); }
BEHAVIOUR(arrivals_left_over) {
  if (t < 64) ptx::named_barrier_arrive(3, 128);
}
BEHAVIOUR(producers_and_consumers) {
  if (t < 64) {
    for (u32 i = 0; i < 4; ++i) {
      if (i > 0) ptx::named_barrier_sync(2, 128);  // what was there has been read
      s.a[t] = i * 1000 + t;
      ptx::named_barrier_arrive(1, 128);
    }
  } else {
    for (u32 i = 0; i < 4; ++i) {
      ptx::named_barrier_sync(1, 128);
      p.out[i * 64 + t - 64] = s.a[t - 64];
      if (i < 3) ptx::named_barrier_arrive(2, 128);
    }
  }
}
BEHAVIOUR(consumers_do_not_wait) {
  if (t < 64) {
    s.a[t] = t;
    ptx::named_barrier_arrive(1, 128);
  } else {
    s.a[t] = s.a[t - 64];
    ptx::named_barrier_sync(1, 128);
  }
}
BEHAVIOUR(votes_of_the_block) {
  p.out[t] = ptx::syncthreads_or(t == 77) + 2 * ptx::syncthreads_or(false);
  if (t >= 64) p.out[t] += 4 * ptx::named_barrier_or(5, 64, t == 64);
}

// --- the warp
BEHAVIOUR(divergent_instructions) {
  if (lane < 16) p.out[t] = ptx::shfl_xor(t, 1);
  else p.out[t] = ptx::ballot(true);
}
BEHAVIOUR(half_a_warp_for_a_whole) {
  if (lane < 16) p.out[t] = ptx::shfl_xor(t, 1);
}
BEHAVIOUR(two_halves_by_themselves) {
  if (lane < 16) p.out[t] = ptx::shfl_xor(t, 3, 0xffffu) + 1000 * ptx::ballot(lane & 1, 0xffffu);
  else p.out[t] = ptx::shfl_idx(t, 17, 0xffff0000u);
}
BEHAVIOUR(mask_without_the_lane) { p.out[t] = ptx::shfl_xor(t, 1, 0xffffu); }
BEHAVIOUR(masks_that_overlap) { p.out[t] = ptx::ballot(true, lane < 16 ? 0x1ffffu : 0xffff8000u); }
BEHAVIOUR(warp_instructions) {
  p.out[t] = ptx::shfl_xor(t, 5) + 1000 * ptx::shfl_idx(t, 3);
  p.out[128 + t] = ptx::ballot(lane % 3 == 0);
  p.out[256 + t] = ptx::any(lane == 9) + 2 * ptx::any(false) + 4 * ptx::all(true) + 8 * ptx::all(lane > 0);
}

// --- shared memory
BEHAVIOUR(race_between_warps) { s.a[t % 64] = t; }
BEHAVIOUR(race_in_a_warp) {
  s.a[t] = t;
  p.out[t] = s.a[t ^ 1];
}
BEHAVIOUR(syncwarp_orders) {
  s.a[t] = t;
  __syncwarp();
  p.out[t] = s.a[t ^ 1];
}
BEHAVIOUR(syncwarp_of_some_orders_only_them) {
  s.a[t] = t;
  if (lane < 8) __syncwarp(0xffu);
  if (lane < 8) p.out[t] = s.a[(t & ~7u) + (lane + 1) % 8];
}
BEHAVIOUR(syncwarp_does_not_order_warps) {
  s.a[t] = t;
  __syncwarp();
  p.out[t] = s.a[t ^ 32];
}
BEHAVIOUR(a_shuffle_orders_nothing) {
  s.a[t] = t;
  p.out[t] = ptx::shfl_xor(t, 1) + s.a[t ^ 1];
}
BEHAVIOUR(syncthreads_orders) {
  s.a[t] = t;
  __syncthreads();
  p.out[t] = s.a[127 - t];
  __syncthreads();
  s.a[t] = 0;
}
BEHAVIOUR(overwritten_too_early) {
  s.a[t] = t;
  __syncthreads();
  p.out[t] = s.a[127 - t];
  s.a[t] = 0;
}
BEHAVIOUR(halves_of_a_word_are_two) {
  reinterpret_cast<u16*>(s.a)[t] = (u16)t;
  __syncthreads();
  p.out[t] = reinterpret_cast<u16*>(s.a)[127 - t];
}
struct Three {
  ptx::u64 a, b, c;
};
__attribute__((noinline)) static __device__ void copy_of(Three* to, const Three* from) { *to = *from; }
BEHAVIOUR(structs_of_its_own) {
  Three x{t, t + 1, t + 2}, y;
  copy_of(&y, &x);
  p.out[t] = (u32)(y.a + y.c);
}
BEHAVIOUR(never_written) { p.out[t] = s.a[t]; }
BEHAVIOUR(shared_out_of_bounds) { s.a[1024 + t] = t; }
BEHAVIOUR(shared_far_out_of_bounds) { s.a[1024 + 8192 + t] = t; }
BEHAVIOUR(shared_below_bounds) { s.a[(int)t - 128] = t; }
BEHAVIOUR(ldmatrix_misaligned) {
  u32 r[4];
  ptx::ldmatrix_x4(r, s.a + 2 * t);
  p.out[t] = r[0];
}
BEHAVIOUR(ldmatrix_past_the_end) {
  u32 r[4];
  ptx::ldmatrix_x4(r, s.a + 1024 - 31 * 4 + lane * 4);
  p.out[t] = r[0];
}

// --- asynchronous copies
BEHAVIOUR(copies_of_all_sizes) {
  u32* mine = s.a + t * 8;
  ptx::cp_async16(mine, p.in + t * 4, t % 17);
  ptx::cp_async8(mine + 4, p.in + t * 2, t % 9);
  ptx::cp_async4(mine + 6, p.in + t, t % 5);
  ptx::cp_async4(mine + 7, p.in + 1024, 0);  // past the end, but nothing is read
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  for (int i = 0; i < 8; ++i) p.out[t * 8 + i] = mine[i];
}
BEHAVIOUR(copy_read_before_its_wait) {
  ptx::cp_async4(s.a + t, p.in + t);
  ptx::cp_async_commit();
  p.out[t] = s.a[t];
  ptx::cp_async_wait<0>();
}
BEHAVIOUR(copy_with_too_weak_a_wait) {
  ptx::cp_async4(s.a + t, p.in + t);
  ptx::cp_async_commit();
  ptx::cp_async4(s.a + 128 + t, p.in + 128 + t);
  ptx::cp_async_commit();
  ptx::cp_async_wait<1>();
  p.out[t] = s.a[t] + s.a[128 + t];
  ptx::cp_async_wait<0>();
}
BEHAVIOUR(copy_without_a_commit) {
  ptx::cp_async4(s.a + t, p.in + t);
  ptx::cp_async_wait<0>();
  p.out[t] = s.a[t];
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
}
BEHAVIOUR(copy_without_a_barrier) {
  ptx::cp_async4(s.a + t, p.in + t);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  p.out[t] = s.a[127 - t];
}
BEHAVIOUR(copy_never_waited_for) {
  ptx::cp_async4(s.a + t, p.in + t);
  ptx::cp_async_commit();
}
BEHAVIOUR(copy_source_overwritten) {
  p.out[t] = t;
  ptx::cp_async4(s.a + t, p.out + t);
  ptx::cp_async_commit();
  p.out[t] = 7;
  ptx::cp_async_wait<0>();
}
BEHAVIOUR(copy_source_overwritten_later) {
  p.out[t] = t;
  ptx::cp_async4(s.a + t, p.out + t);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  p.out[t] = s.a[t] + 7;
}
BEHAVIOUR(copy_to_a_misaligned_place) { ptx::cp_async16(s.a + t * 2 + 1, p.in); }
BEHAVIOUR(copy_from_a_misaligned_place) { ptx::cp_async16(s.a + t * 4, p.in + 1); }
BEHAVIOUR(copy_past_shared_memory) { ptx::cp_async16(s.a + 1024, p.in); }
BEHAVIOUR(copy_past_the_input) {
  ptx::cp_async4(s.a + t, p.in + 1024 - 127 + t);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
}

// --- global memory
BEHAVIOUR(write_past_the_output) { p.out[1024 - 127 + t] = t; }
BEHAVIOUR(read_past_the_input) { p.out[t] = p.in[1024 - 127 + t]; }
BEHAVIOUR(write_to_the_input) { const_cast<u32*>(p.in)[t] = t; }
BEHAVIOUR(read_what_nobody_wrote) { p.out[t] = p.fresh[t % 64]; }
BEHAVIOUR(write_and_read_again) {
  if (t < 64) p.fresh[t] = t;
  __syncthreads();
  p.out[t] = p.fresh[63 - t % 64];
}
BEHAVIOUR(global_race_in_a_block) {
  p.out[t] = t;
  p.out[512 + t] = p.out[t ^ 64];
}
BEHAVIOUR(global_race_of_blocks) {
  if (t == 0) p.out[0] = blockIdx.x;
}
BEHAVIOUR(blocks_apart) { p.out[blockIdx.x * 128 + t] = gridDim.x; }
BEHAVIOUR(atomics_do_not_race) {
  ptx::atomic_add(p.out, 1u);
  ptx::atomic_max(p.out + 1, t);
  ptx::atomic_or(p.out + 2, 1u << lane);
  ptx::atomic_add(reinterpret_cast<float*>(p.out + 3), 0.5f);
}
BEHAVIOUR(atomic_beside_a_plain_read) {
  ptx::atomic_add(p.out, 1u);
  p.out[1 + t] = p.out[0];
}
BEHAVIOUR(load16_misaligned) { p.out[t] = ptx::load16(p.in + t).x; }
BEHAVIOUR(load4_of_shared_memory) {
  s.a[t] = t;
  p.out[t] = ptx::load4(s.a + t);
}
BEHAVIOUR(atomic_on_shared_memory) {
  s.a[t] = t;
  ptx::atomic_add(s.a + t, 1u);
}
BEHAVIOUR(read_only_load_of_what_is_written) {
  p.out[t] = 1;
  __syncthreads();
  p.out[128 + t] = ptx::load4_nc(p.out + t);
}
BEHAVIOUR(loads_and_stores_of_all_widths) {
  if (t < 32) ptx::store16(p.out + t * 4, ptx::load16_nc(p.in + t * 4));
  else if (t < 64) ptx::store8(p.out + t * 4, ptx::load8_nc(p.in + t * 2));
  else if (t < 96) ptx::store4(p.out + t * 4, ptx::load4_nc(p.in + t));
  else ptx::store2(p.out + t * 4, ptx::load2_nc(p.in + t));
}

// --- blocks that tell each other something: block 1 writes data, block 0 waits for its flag
PTX void wait_for_flag(const Params& p, bool acquire) {
  while ((acquire ? ptx::load_acquire(p.out) : ptx::load_relaxed(p.out)) == 0) {
  }
}
BEHAVIOUR(release_and_acquire) {
  if (blockIdx.x == 1) {
    p.out[128 + t] = t;
    __syncthreads();
    if (t == 0) ptx::store_release(p.out, 1);
  } else {
    if (t == 0) wait_for_flag(p, true);
    __syncthreads();
    p.out[256 + t] = p.out[128 + (127 - t)];
  }
}
BEHAVIOUR(relaxed_without_fences) {
  if (blockIdx.x == 1) {
    p.out[128 + t] = t;
    __syncthreads();
    if (t == 0) ptx::store_relaxed(p.out, 1);
  } else {
    if (t == 0) wait_for_flag(p, false);
    __syncthreads();
    p.out[256 + t] = p.out[128 + (127 - t)];
  }
}
BEHAVIOUR(relaxed_with_fences) {
  if (blockIdx.x == 1) {
    p.out[128 + t] = t;
    __syncthreads();
    if (t == 0) {
      ptx::threadfence();
      ptx::store_relaxed(p.out, 1);
    }
  } else {
    if (t == 0) {
      wait_for_flag(p, false);
      ptx::threadfence();
    }
    __syncthreads();
    p.out[256 + t] = p.out[128 + (127 - t)];
  }
}
BEHAVIOUR(flag_set_before_the_data) {
  if (blockIdx.x == 1) {
    if (t == 0) ptx::store_release(p.out, 1);
    __syncthreads();
    p.out[128 + t] = t;
  } else {
    if (t == 0) wait_for_flag(p, true);
    __syncthreads();
    p.out[256 + t] = p.out[128 + t];
  }
}
// The block that comes last adds up what all have written. The fences are those of the thread that counts: behind the
// barrier that gathers its block's writes, and before the barrier that lets its block read.
PTX void sum_by_the_last(const Params& p, Shared& s, u32 t, bool fence) {
  p.out[256 + blockIdx.x * 128 + t] = t;
  __syncthreads();
  if (t == 0) {
    if (fence) ptx::threadfence();
    s.a[0] = ptx::atomic_add(p.out + 1, 1u);
    if (fence) ptx::threadfence();
  }
  __syncthreads();
  if (s.a[0] + 1 != gridDim.x) return;
  u32 sum = 0;
  for (u32 b = 0; b < gridDim.x; ++b) sum += p.out[256 + b * 128 + t];
  p.out[128 + t] = sum;
}
BEHAVIOUR(last_block_adds_up) { sum_by_the_last(p, s, t, true); }
BEHAVIOUR(last_block_without_fences) { sum_by_the_last(p, s, t, false); }
BEHAVIOUR(tickets) {
  if (t == 0) p.out[blockIdx.x + 1] = ptx::atomic_add(p.out, 1u);
}
BEHAVIOUR(a_trap) {
  if (t == 5) ptx::trap();
}
BEHAVIOUR(index_beyond_its_array) {
  u32 mine[4] = {t, t + 1, t + 2, t + 3};
  p.out[t] = mine[p.in[t] % 5];
}
BEHAVIOUR(division_by_zero) { p.out[t] = t / p.in[0]; }
