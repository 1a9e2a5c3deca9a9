// Small kernels with the instructions of sm_90, right ones and wrong ones, each for one thing that the emulated GPU
// does or notices. behaviours_sm90.cpp makes one text of them all, with a switch over Params::which in the order of
// this file.
#pragma once
#include "kernels/ptx/barriers.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/copies.cuh"
#include "kernels/ptx/matrix.cuh"
#include "kernels/ptx/memory.cuh"
#include "kernels/ptx/roles.cuh"
#include "kernels/ptx/wgmma.cuh"

using ptx::bf16;
using ptx::i32;
using ptx::Major;
using ptx::u16;
using ptx::u32;
using ptx::u64;
using ptx::u8;

struct Params {
  ptx::TensorMap cube;    // u16 [2][100][72], rows 160 bytes apart, in boxes of 64 x 24 x 2; 128-byte swizzle
  ptx::TensorMap plain;   // the same, in boxes of 24 x 8 x 1, no swizzle
  ptx::TensorMap narrow;  // the same as bytes by pairs: boxes of 32 x 16 x 1, 64-byte swizzle
  ptx::TensorMap thin;    // boxes of 16 x 16 x 1, 32-byte swizzle
  ptx::TensorMap result;  // u16 [48][72] in `sheet`, boxes of 64 x 32; 128-byte swizzle
  u32 which;
  u32* out;       // [4096]
  const u32* in;  // [1024], 0, 1, 2 ...
  u16* sheet;     // [48][72]
};
struct alignas(1024) Shared {
  u16 a[64][64];
  u16 b[128][64];
  u16 c[64][64];
  u32 words[256];
  ptx::MBarrier bars[4];
};

#define BEHAVIOUR(name) PTX void name(const Params& p, Shared& s, u32 t, u32 lane, u32 warp)

PTX void make(Shared& s, u32 t, u32 arrivals) {
  if (t == 0) {
    for (u32 i = 0; i < 4; ++i) ptx::mbarrier_init(s.bars[i], arrivals);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
}
// Halves of small integers, as wgmma expects them: 128-byte swizzle, one panel of 64.
PTX u16& swizzled(u16 (*tile)[64], u32 row, u32 column) {
  return tile[row][((column / 8) ^ (row % 8)) * 8 + column % 8];
}
PTX void fill(Shared& s, u32 t) {
  for (u32 i = t; i < 64 * 64; i += 256) swizzled(s.a, i / 64, i % 64) = (u16)(ptx::pack_bf16((float)(i % 7), 0));
  for (u32 i = t; i < 128 * 64; i += 256) swizzled(s.b, i / 64, i % 64) = (u16)(ptx::pack_bf16((float)(i % 5), 0));
}
// d = A B^T, 64 x 64 of the first 64 rows of b.
PTX void start(float (&d)[32], Shared& s) {
  const u64 a = ptx::wgmma_descriptor(s.a, 0), b = ptx::wgmma_descriptor(s.b, 0);
  for (u32 k = 0; k < 4; ++k)
    ptx::wgmma<bf16, Major::k>(d, ptx::wgmma_advance(a, k * 32), ptx::wgmma_advance(b, k * 32), k > 0);
  ptx::wgmma_commit();
}
PTX void write(const Params& p, const float (&d)[32], u32 t) {
  for (u32 i = 0; i < 32; ++i) p.out[i * 128 + t % 128] = ptx::as_bits(d[i]);
}

// --- mbarriers
BEHAVIOUR(phases_hand_data_on) {
  make(s, t, 1);
  for (u32 i = 0; i < 6; ++i) {
    if (t == 0) {
      if (i > 1) ptx::mbarrier_wait(s.bars[2 + i % 2], (i / 2 - 1) & 1);  // what was there has been read
      s.words[i % 2] = i * 100 + 7;
      ptx::mbarrier_arrive(s.bars[i % 2]);
    } else if (t == 32) {
      ptx::mbarrier_wait(s.bars[i % 2], i / 2 & 1);
      p.out[i] = s.words[i % 2];
      ptx::mbarrier_arrive(s.bars[2 + i % 2]);
    }
  }
}
BEHAVIOUR(the_wrong_parity) {
  make(s, t, 1);
  if (t == 32) {
    s.words[0] = 5;
    ptx::mbarrier_arrive(s.bars[0]);
  } else if (t == 0) {
    ptx::mbarrier_wait(s.bars[0], 1);
    p.out[0] = s.words[0];
  }
}
BEHAVIOUR(an_arrival_is_missing) {
  make(s, t, 3);
  if (t == 0) ptx::mbarrier_arrive(s.bars[1], 2);
  if (t >= 64 && t < 96) ptx::mbarrier_wait(s.bars[1], 0);
}
BEHAVIOUR(an_arrival_too_many) {
  make(s, t, 3);
  if (t == 0) ptx::mbarrier_arrive(s.bars[1], 2);
  if (t == 0) ptx::mbarrier_arrive(s.bars[1], 2);
}
BEHAVIOUR(no_mbarrier_there) {
  if (t == 0) ptx::mbarrier_arrive(s.bars[3]);
}
BEHAVIOUR(an_mbarrier_written_over) {
  make(s, t, 1);
  if (t == 0) {
    s.bars[0].state = 0;
    ptx::mbarrier_arrive(s.bars[0]);
  }
}
BEHAVIOUR(an_mbarrier_made_twice) {
  make(s, t, 1);
  make(s, t, 1);
}
BEHAVIOUR(memory_of_an_mbarrier_used_again) {
  make(s, t, 1);
  if (t != 0) return;
  ptx::mbarrier_invalidate(s.bars[0]);
  s.bars[0].state = 17;
  p.out[0] = (u32)s.bars[0].state;
  ptx::mbarrier_init(s.bars[0], 1);
  ptx::mbarrier_arrive(s.bars[0]);
  ptx::mbarrier_wait(s.bars[0], 0);
}
BEHAVIOUR(an_mbarrier_used_before_it_is_made) {
  if (t == 0) ptx::mbarrier_init(s.bars[0], 1);
  if (t == 0) ptx::mbarrier_init_fence();
  if (t == 1) ptx::mbarrier_arrive(s.bars[0]);
}
BEHAVIOUR(asking_again_and_again) {
  make(s, t, 64);
  if (t < 64) {
    s.words[t] = t;
    ptx::mbarrier_arrive(s.bars[0]);
  } else if (t == 64) {
    u32 asked = 0;
    while (!ptx::mbarrier_test(s.bars[0], 0)) ++asked;
    p.out[0] = s.words[63];
    p.out[1] = asked;
  }
}
BEHAVIOUR(asking_in_vain) {
  make(s, t, 1);
  if (t == 0)
    while (!ptx::mbarrier_test(s.bars[0], 0)) {
    }
}
PTX void small_copies(const Params& p, Shared& s, u32 t, bool arrives) {
  make(s, t, 64);
  if (t < 64) {
    ptx::cp_async16(s.a[t], p.in + t * 4);
    if (arrives) ptx::cp_async_mbarrier_arrive(s.bars[0]);
    else ptx::mbarrier_arrive(s.bars[0]);
  } else if (t < 128) {
    ptx::mbarrier_wait(s.bars[0], 0);
    p.out[t - 64] = *reinterpret_cast<const u32*>(s.a[127 - t]);
  }
}
BEHAVIOUR(small_copies_arrive) { small_copies(p, s, t, true); }
BEHAVIOUR(small_copies_do_not_arrive) { small_copies(p, s, t, false); }

// --- loads
PTX void show(const Params& p, const void* from, u32 words, u32 t) {
  for (u32 i = t; i < words; i += 256) p.out[i] = static_cast<const u32*>(from)[i];
}
BEHAVIOUR(a_box) {  // at (16, 90, 0): over the right and the far edge
  make(s, t, 1);
  if (t == 0) {
    ptx::tensor_prefetch(p.cube);
    ptx::mbarrier_arrive_expect(s.bars[0], 64 * 24 * 2 * 2);
    ptx::tensor_load(s.a, p.cube, s.bars[0], 16, 90, 0);
  }
  ptx::mbarrier_wait(s.bars[0], 0);
  show(p, s.a, 64 * 24, t);
}
BEHAVIOUR(boxes_of_other_kinds) {  // before the begin, in the middle, and with shorter swizzles
  make(s, t, 4);
  if (t < 128 && lane == 0) {
    ptx::mbarrier_arrive_expect(s.bars[0], warp < 2 ? 24 * 8 * 2 : warp == 2 ? 32 * 16 * 2 : 16 * 16 * 2);
    if (warp == 0) ptx::tensor_load(s.a, p.plain, s.bars[0], -8, -3, 1);
    if (warp == 1) ptx::tensor_load(s.a[8], p.plain, s.bars[0], 8, 50, 0);
    if (warp == 2) ptx::tensor_load(s.b, p.narrow, s.bars[0], 40, 5, 1);
    if (warp == 3) ptx::tensor_load(s.c, p.thin, s.bars[0], 8, 60, 1);
  }
  ptx::mbarrier_wait(s.bars[0], 0);
  show(p, s.a, 96, t);
  for (u32 i = t; i < 96; i += 256) p.out[96 + i] = reinterpret_cast<const u32*>(s.a[8])[i];
  for (u32 i = t; i < 256; i += 256) p.out[192 + i] = reinterpret_cast<const u32*>(s.b)[i];
  for (u32 i = t; i < 128; i += 256) p.out[448 + i] = reinterpret_cast<const u32*>(s.c)[i];
}
BEHAVIOUR(bytes_there_and_back) {
  make(s, t, 1);
  if (t == 0) {
    ptx::mbarrier_expect(s.bars[0], 512);
    ptx::bulk_load(s.a, p.in + 16, 512, s.bars[0]);
    ptx::mbarrier_arrive(s.bars[0]);
    ptx::mbarrier_wait(s.bars[0], 0);
    ptx::bulk_store(p.out + 64, s.a, 512);
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
    p.out[0] = p.out[64 + 127];
  }
}
PTX void load_words(const Params& p, Shared& s, u32 t, u32 expected) {
  make(s, t, 1);
  if (t == 0) {
    ptx::mbarrier_arrive_expect(s.bars[0], expected);
    ptx::bulk_load(s.a, p.in, 256, s.bars[0]);
    ptx::bulk_load(s.a[4], p.in + 128, 256, s.bars[0]);
  }
}
BEHAVIOUR(a_load_read_before_its_wait) {
  load_words(p, s, t, 512);
  if (t == 0) p.out[0] = *reinterpret_cast<const u32*>(s.a[4]);
  ptx::mbarrier_wait(s.bars[0], 0);
}
BEHAVIOUR(a_load_read_by_one_who_did_not_wait) {
  load_words(p, s, t, 512);
  if (warp == 0) {
    ptx::mbarrier_wait(s.bars[0], 0);
    ptx::named_barrier_arrive(1, 64);
  } else if (warp == 1) {
    p.out[t] = *reinterpret_cast<const u32*>(s.a[4]);
    ptx::named_barrier_sync(1, 64);
  }
}
BEHAVIOUR(too_few_bytes_expected) {
  load_words(p, s, t, 256);
  ptx::mbarrier_wait(s.bars[0], 0);
  if (t == 0) p.out[0] = *reinterpret_cast<const u32*>(s.a[4]);
}
BEHAVIOUR(too_many_bytes_expected) {
  load_words(p, s, t, 528);
  ptx::mbarrier_wait(s.bars[0], 0);
}
BEHAVIOUR(a_load_nobody_waits_for) { load_words(p, s, t, 512); }
BEHAVIOUR(an_mbarrier_made_without_a_fence) {
  if (t == 0) ptx::mbarrier_init(s.bars[0], 1);
  __syncthreads();
  if (t == 0) {
    ptx::mbarrier_arrive_expect(s.bars[0], 256);
    ptx::bulk_load(s.a, p.in, 256, s.bars[0]);
  }
  ptx::mbarrier_wait(s.bars[0], 0);
}
PTX void load_twice(const Params& p, Shared& s, u32 t, bool waits) {
  make(s, t, 1);
  if (t == 0) {
    for (u32 i = 0; i < 2; ++i) {
      if (i == 1 && waits) ptx::mbarrier_wait(s.bars[1], 0);
      ptx::mbarrier_arrive_expect(s.bars[0], 256);
      ptx::bulk_load(s.a, p.in + i * 64, 256, s.bars[0]);
      ptx::mbarrier_wait(s.bars[0], i);
    }
  } else if (t == 32) {
    ptx::mbarrier_wait(s.bars[0], 0);
    p.out[0] = *reinterpret_cast<const u32*>(s.a);
    ptx::mbarrier_arrive(s.bars[1]);
  }
}
BEHAVIOUR(a_place_loaded_again) { load_twice(p, s, t, true); }
BEHAVIOUR(a_place_loaded_again_too_early) { load_twice(p, s, t, false); }
BEHAVIOUR(a_load_to_a_misaligned_place) {
  make(s, t, 1);
  if (t == 0) ptx::tensor_load(s.a[4], p.cube, s.bars[0], 0, 0, 0);
}
BEHAVIOUR(a_load_with_too_few_coordinates) {
  make(s, t, 1);
  if (t == 0) ptx::tensor_load(s.a, p.cube, s.bars[0], 0, 0);
}
BEHAVIOUR(a_load_of_half_a_chunk) {
  make(s, t, 1);
  if (t == 0) ptx::tensor_load(s.a, p.cube, s.bars[0], 4, 0, 0);
}
BEHAVIOUR(a_load_past_shared_memory) {
  make(s, t, 1);
  if (t == 0) ptx::tensor_load(s.c[56], p.cube, s.bars[0], 0, 0, 0);
}
BEHAVIOUR(a_load_by_what_is_no_map) {
  make(s, t, 1);
  ptx::TensorMap map = p.cube;
  map.opaque[0] = 0;
  if (t == 0) ptx::tensor_load(s.a, map, s.bars[0], 0, 0, 0);
}
BEHAVIOUR(bytes_that_are_not_sixteen) {
  make(s, t, 1);
  if (t == 0) ptx::bulk_load(s.a, p.in, 24, s.bars[0]);
}
BEHAVIOUR(a_load_past_the_input) {
  make(s, t, 1);
  if (t == 0) {
    ptx::mbarrier_arrive_expect(s.bars[0], 256);
    ptx::bulk_load(s.a, p.in + 992, 256, s.bars[0]);
  }
  ptx::mbarrier_wait(s.bars[0], 0);
}

// --- stores
PTX void store_sheet(const Params& p, Shared& s, u32 t, bool fence, bool wait, bool commit, u32 rows = 32,
                     u32 columns = 64) {
  for (u32 i = t; i < 32 * 64; i += 256)
    if (i / 64 < rows && i % 64 < columns) swizzled(s.a, i / 64, i % 64) = (u16)i;
  if (fence) ptx::fence_async();
  __syncthreads();
  if (t == 0) {
    ptx::tensor_store(p.result, s.a, 16, 24);  // eight columns and eight rows are outside
    if (commit) ptx::bulk_commit();
    if (wait) ptx::bulk_wait_read<0>();
  }
}
BEHAVIOUR(a_box_stored) { store_sheet(p, s, t, true, true, true); }
BEHAVIOUR(a_box_whose_outside_was_never_written) { store_sheet(p, s, t, true, true, true, 24, 56); }
BEHAVIOUR(a_box_whose_last_column_was_never_written) { store_sheet(p, s, t, true, true, true, 24, 55); }
BEHAVIOUR(a_box_stored_without_a_fence) { store_sheet(p, s, t, false, true, true); }
BEHAVIOUR(a_box_stored_and_not_waited_for) { store_sheet(p, s, t, true, false, true); }
BEHAVIOUR(a_box_stored_and_not_committed) { store_sheet(p, s, t, true, true, false); }
BEHAVIOUR(a_source_written_over) {
  store_sheet(p, s, t, true, false, true);
  __syncthreads();
  for (u32 i = t; i < 32 * 64; i += 256) s.a[i / 64][i % 64] = 9;
  __syncthreads();
  if (t == 0) ptx::bulk_wait_read<0>();
}
BEHAVIOUR(a_source_written_over_after_the_wait) {
  store_sheet(p, s, t, true, true, true);
  __syncthreads();
  for (u32 i = t; i < 32 * 64; i += 256) s.a[i / 64][i % 64] = 9;
}
BEHAVIOUR(what_was_stored_is_read_too_early) {
  store_sheet(p, s, t, true, true, true);
  if (t == 0) p.out[0] = p.sheet[24 * 72 + 16];
  if (t == 0) ptx::bulk_wait<0>();
}
BEHAVIOUR(two_groups_of_stores) {
  s.words[t] = t;
  ptx::fence_async();
  __syncthreads();
  if (t == 0) {
    ptx::bulk_store(p.out, s.words, 256);
    ptx::bulk_commit();
    ptx::bulk_store(p.out + 64, s.words + 64, 256);
    ptx::bulk_commit();
    ptx::bulk_wait_read<1>();
    s.words[0] = 1000;  // the first group's
    ptx::bulk_wait<0>();
  }
}
BEHAVIOUR(the_other_group_of_stores) {
  s.words[t] = t;
  ptx::fence_async();
  __syncthreads();
  if (t == 0) {
    ptx::bulk_store(p.out, s.words, 256);
    ptx::bulk_commit();
    ptx::bulk_store(p.out + 64, s.words + 64, 256);
    ptx::bulk_commit();
    ptx::bulk_wait_read<1>();
    s.words[64] = 1000;  // the second group's
    ptx::bulk_wait<0>();
  }
}

// --- products
BEHAVIOUR(a_product) {
  fill(s, t);
  ptx::fence_async();
  __syncthreads();
  if (t >= 128) return;
  float d[32];
  ptx::wgmma_fence();
  start(d, s);
  ptx::wgmma_wait<0>(d);
  write(p, d, t);
}
BEHAVIOUR(a_product_of_two_groups) {  // two accumulators, the second from registers, MN-major B
  fill(s, t);
  ptx::fence_async();
  __syncthreads();
  if (t >= 128) return;
  float d[32], e[32];
  u32 ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
  for (u32 i = 0; i < 32; ++i) e[i] = 1.0f;
  ptx::wgmma_fence();
  start(d, s);
  ptx::wgmma<bf16, Major::mn>(e, ones, ptx::wgmma_descriptor(s.b, 8192), true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<1>(d);
  write(p, d, t);
  ptx::wgmma_wait<0>(e);
  for (u32 i = 0; i < 32; ++i) p.out[i * 128 + t] += (u32)e[i] << 16;
}
PTX void careless(const Params& p, Shared& s, u32 t, u32 what) {
  fill(s, t);
  if (what != 1) ptx::fence_async();
  __syncthreads();
  if (t >= 128) return;
  float d[32];
  for (u32 i = 0; i < 32; ++i) d[i] = 0;
  if (what != 2) ptx::wgmma_fence();
  start(d, s);
  if (what == 3) p.out[t] = ptx::as_bits(d[5]);
  if (what == 4) d[7] = 3.0f;
  if (what == 5) ptx::wgmma_wait<1>(d);
  if (what == 6) {  // all have asked: that orders nothing for the tensor core
    ptx::named_barrier_sync(1, 128);
    if (t < 64) s.b[3][t] = 0;
  }
  if (what == 7) return;
  ptx::wgmma_wait<0>(d);
  if (what == 8) {  // read and used again, without a fence
    p.out[t] = ptx::as_bits(d[0]);
    start(d, s);
    ptx::wgmma_wait<0>(d);
  }
  if (what == 9) {
    ptx::wgmma<bf16, Major::k>(d, ptx::wgmma_descriptor(s.a, 0), ptx::wgmma_descriptor(s.b, 0), false);
    ptx::wgmma_wait<0>(d);
  }
  write(p, d, t);
}
BEHAVIOUR(a_product_without_a_fence_of_the_proxy) { careless(p, s, t, 1); }
BEHAVIOUR(a_product_without_a_fence) { careless(p, s, t, 2); }
BEHAVIOUR(accumulators_read_before_the_wait) { careless(p, s, t, 3); }
BEHAVIOUR(accumulators_written_before_the_wait) { careless(p, s, t, 4); }
BEHAVIOUR(a_wait_that_leaves_the_accumulators) { careless(p, s, t, 5); }
BEHAVIOUR(an_operand_written_too_early) { careless(p, s, t, 6); }
BEHAVIOUR(a_product_nobody_waits_for) { careless(p, s, t, 7); }
BEHAVIOUR(a_second_product_without_a_fence) { careless(p, s, t, 8); }
BEHAVIOUR(a_product_in_no_group) { careless(p, s, t, 9); }
BEHAVIOUR(a_register_operand_written_too_early) {
  fill(s, t);
  ptx::fence_async();
  __syncthreads();
  if (t >= 128) return;
  float d[32];
  u32 a[4] = {t, t, t, t};
  ptx::wgmma_fence();
  ptx::wgmma<bf16, Major::mn>(d, a, ptx::wgmma_descriptor(s.b, 8192), false);
  ptx::wgmma_commit();
  a[2] = 7;
  ptx::wgmma_wait<0>(d);
  write(p, d, t + a[2]);
}
BEHAVIOUR(an_operand_that_is_not_ready) {  // one warp writes, nobody waits for it
  fill(s, t);
  ptx::fence_async();
  __syncthreads();
  if (t >= 128) return;
  if (warp == 2) {
    s.b[1][lane] = 0;
    ptx::fence_async();
  }
  float d[32];
  ptx::wgmma_fence();
  start(d, s);
  ptx::wgmma_wait<0>(d);
  write(p, d, t);
}
BEHAVIOUR(warps_with_different_operands) {
  fill(s, t);
  ptx::fence_async();
  __syncthreads();
  if (t >= 128) return;
  float d[32];
  ptx::wgmma_fence();
  const u64 a = ptx::wgmma_descriptor(s.a, 0), b = ptx::wgmma_descriptor(s.b[warp == 3 ? 64 : 0], 0);
  ptx::wgmma<bf16, Major::k>(d, a, b, false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
  write(p, d, t);
}
BEHAVIOUR(a_warp_without_its_product) {
  fill(s, t);
  ptx::fence_async();
  __syncthreads();
  if (t >= 96) return;
  float d[32];
  ptx::wgmma_fence();
  start(d, s);
  ptx::wgmma_wait<0>(d);
}
BEHAVIOUR(an_operand_that_begins_in_an_atom) {
  if (t >= 128) return;
  float d[32];
  ptx::wgmma_fence();
  ptx::wgmma<bf16, Major::k>(d, ptx::wgmma_descriptor(s.a[1], 0), ptx::wgmma_descriptor(s.b, 0), false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}
BEHAVIOUR(an_operand_past_shared_memory) {
  if (t >= 128) return;
  float d[32];
  ptx::wgmma_fence();
  ptx::wgmma<bf16, Major::k>(d, ptx::wgmma_descriptor(s.c[32], 0), ptx::wgmma_descriptor(s.b, 0), false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

// A ring of one place: a loading warp and a multiplying warpgroup.
PTX void ring(const Params& p, Shared& s, u32 t, u32 lane, u32 warp, bool every_warp) {
  if (t == 0) {
    ptx::mbarrier_init(s.bars[0], 1);
    ptx::mbarrier_init(s.bars[1], every_warp ? 4 : 1);
    ptx::mbarrier_init_fence();
  }
  fill(s, t);
  ptx::fence_async();
  __syncthreads();
  if (warp == 4) {
    ptx::registers_lower<24>();
    if (ptx::elect())
      for (u32 i = 0; i < 4; ++i) {
        if (i > 0) ptx::mbarrier_wait(s.bars[1], (i - 1) & 1);
        ptx::mbarrier_arrive_expect(s.bars[0], 64 * 24 * 2 * 2);
        ptx::tensor_load(s.a, p.cube, s.bars[0], 0, (i32)i * 24, 0);
      }
  } else if (warp < 4) {
    ptx::registers_raise<256>();
    float d[32];
    for (u32 i = 0; i < 4; ++i) {
      ptx::mbarrier_wait(s.bars[0], i & 1);
      ptx::wgmma_fence();
      start(d, s);
      ptx::wgmma_wait<0>(d);
      if (lane == 0 && (every_warp || warp == 0)) ptx::mbarrier_arrive(s.bars[1]);
      p.out[i * 128 + t] = ptx::as_bits(d[3]);
    }
  } else {
    ptx::registers_lower<24>();
  }
}
BEHAVIOUR(a_ring) { ring(p, s, t, lane, warp, true); }
BEHAVIOUR(a_ring_released_by_one_warp) { ring(p, s, t, lane, warp, false); }

// One warpgroup copies 16 bytes at a time, the other multiplies. fence: 0 nowhere, 1 by who copies, 2 by who
// multiplies.
PTX void fed_by_small_copies(const Params& p, Shared& s, u32 t, u32 fence) {
  fill(s, t);
  ptx::fence_async();
  make(s, t, 128);
  if (t >= 128) {
    for (u32 i = t - 128; i < 512; i += 128) ptx::cp_async16(&s.a[0][0] + i * 8, p.in + i % 256 * 4);
    if (fence == 1) {
      ptx::cp_async_commit();
      ptx::cp_async_wait<0>();
      ptx::fence_async();
      ptx::mbarrier_arrive(s.bars[0]);
    } else {
      ptx::cp_async_mbarrier_arrive(s.bars[0]);
    }
    return;
  }
  float d[32];
  ptx::mbarrier_wait(s.bars[0], 0);
  if (fence == 2) ptx::fence_async();
  ptx::wgmma_fence();
  start(d, s);
  ptx::wgmma_wait<0>(d);
  write(p, d, t);
}
BEHAVIOUR(small_copies_fenced_where_they_are_made) { fed_by_small_copies(p, s, t, 1); }
BEHAVIOUR(small_copies_fenced_where_they_are_read) { fed_by_small_copies(p, s, t, 2); }
BEHAVIOUR(small_copies_without_a_fence) { fed_by_small_copies(p, s, t, 0); }

// --- roles
BEHAVIOUR(registers_handed_over) {  // 384 threads: 168 registers each at first
  if (t < 128) ptx::registers_lower<24>();
  else ptx::registers_raise<240>();
  p.out[t] = t;
}
BEHAVIOUR(more_registers_than_there_are) {
  if (t < 128) ptx::registers_lower<32>();
  else ptx::registers_raise<240>();
}
BEHAVIOUR(registers_the_wrong_way) {
  if (t < 128) ptx::registers_raise<40>();
}
BEHAVIOUR(one_warp_sets_registers) {
  if (warp == 0) ptx::registers_lower<40>();
}
BEHAVIOUR(one_lane_of_a_warp) {
  const bool first = ptx::elect(), second = ptx::elect();
  p.out[t] = first + 2 * second + 4 * ptx::uniform(warp);
  p.out[256 + t] = ptx::any_thread(t == 5, 1 + t / 128, 128);
}
BEHAVIOUR(rows_of_matrices) {  // a 16 x 16 tile by each warp, as it is and transposed
  u16* tile = &s.b[0][0] + warp * 512;
  const u32 row = lane % 16, half = lane / 16;
  ptx::stmatrix_x4(tile + row * 16 + half * 8, lane, 100 + lane, 200 + lane, 300 + lane);
  ptx::stmatrix_x4_trans(tile + 256 + row * 16 + half * 8, lane, 100 + lane, 200 + lane, 300 + lane);
  ptx::stmatrix_x2(&s.c[0][0] + warp * 128 + row * 8, 400 + lane, 500 + lane);
  __syncthreads();
  if (t < 32)
    for (u32 i = 0; i < 8; ++i) p.out[i * 32 + t] = reinterpret_cast<const u32*>(s.b)[i * 32 + t];
  if (t < 32)
    for (u32 i = 0; i < 2; ++i) p.out[256 + i * 32 + t] = reinterpret_cast<const u32*>(s.c)[i * 32 + t];
}
