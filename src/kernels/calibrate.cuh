// One block that does what every instruction of ptx/ does, once on small numbers whose results are exact or on chosen
// bit patterns, and writes down what each thread got. The same text runs on a GPU and on the emulated one: equal words
// make the emulator's layouts and roundings evidence rather than opinion. Approximations are compared within their
// stated errors. tests/sim/calibration.cpp reads the words; the groups below say which are which. What sm_90 adds is in
// calibrate_sm90.cuh. Must not know: tiles, attention.
#pragma once
#include "calibrate_log.cuh"
#include "ptx/arithmetic.cuh"
#include "ptx/barriers.cuh"
#include "ptx/base.cuh"
#include "ptx/copies.cuh"
#include "ptx/matrix.cuh"
#include "ptx/memory.cuh"
#include "ptx/warp.cuh"

namespace tessera_kernels {

struct CalibrateParams {
  u32* out;            // [words][128], word i of thread t at i * 128 + t
  const u32* numbers;  // [16][128], 0, 1, 2 ...
  const u32* floats;   // [16][128], bit patterns of floats: special ones, and a grid for the approximations
  u32* cells;          // [8][128], zeros: what stores and atomic operations write
};
struct alignas(16) CalibrateShared {
  u32 words[128][16];
  u16 tiles[4][16][16];
};

PTX void calibrate_arithmetic(const CalibrateParams& p, CalibrateLog& log, u32 t) {
  float x[16];
  for (int i = 0; i < 16; ++i) x[i] = ptx::as_float(p.floats[i * 128 + t]);
  log.mark('m', 'a', 'x', ' ');
  for (int i = 0; i < 8; ++i) log.put(ptx::max(x[i], x[15 - i]));
  log.mark('m', 'i', 'n', ' ');
  for (int i = 0; i < 8; ++i) log.put(ptx::min(x[i], x[15 - i]));
  log.mark('f', 'm', 'a', ' ');
  for (int i = 0; i < 8; ++i) log.put(ptx::fma(x[i], x[i + 1], x[i + 8]));
  log.mark('m', 'u', 'l', ' ');
  for (int i = 0; i < 8; ++i) log.put(ptx::mul(x[i], x[i + 1]));
  log.mark('a', 'd', 'd', ' ');  // of a product that must have been rounded by itself
  for (int i = 0; i < 8; ++i) log.put(ptx::add(ptx::mul(x[i], x[i + 1]), x[i + 8]));
  log.mark('b', 'f', '1', '6');
  for (int i = 0; i < 8; ++i) log.put(ptx::pack_bf16(x[2 * i], x[2 * i + 1]));
  for (int i = 0; i < 8; ++i) log.put((u32)ptx::to_bf16(x[i]).bits);
  log.mark('f', '1', '6', ' ');
  for (int i = 0; i < 8; ++i) log.put(ptx::pack_f16(x[2 * i], x[2 * i + 1]));
  for (int i = 0; i < 8; ++i) log.put((u32)ptx::to_f16(x[i]).bits);
  log.mark('w', 'i', 'd', 'e');  // every half once
#pragma unroll 1
  for (u32 i = 0; i < 512; ++i) {
    log.put(ptx::to_float(f16{(u16)(i * 128 + t)}));
    log.put(ptx::to_float(bf16{(u16)(i * 128 + t)}));
  }
  log.mark('e', 'x', 'p', '2');
  for (int i = 0; i < 16; ++i) log.put(ptx::exp2(x[i]));
  log.mark('l', 'o', 'g', '2');
  for (int i = 0; i < 16; ++i) log.put(ptx::log2(x[i]));
  log.mark('r', 'c', 'p', ' ');
  for (int i = 0; i < 16; ++i) log.put(ptx::rcp(x[i]));
  log.mark('r', 's', 'q', 'r');
  for (int i = 0; i < 16; ++i) log.put(ptx::rsqrt(x[i]));
  log.mark('t', 'a', 'n', 'a');
  for (int i = 0; i < 16; ++i) log.put(ptx::tanh_approx(x[i]));
  log.mark('t', 'a', 'n', 'h');
  for (int i = 0; i < 16; ++i) log.put(ptx::tanh(x[i]));
}

PTX void calibrate_memory(const CalibrateParams& p, CalibrateLog& log, u32 t) {
  log.mark('l', 'o', 'a', 'd');
  log.put(ptx::load16(p.numbers + t * 4));
  log.put(ptx::load8(p.numbers + t * 2));
  log.put(ptx::load4(p.numbers + t));
  log.put((u32)ptx::load2(reinterpret_cast<const u16*>(p.numbers) + t));
  log.put(ptx::load16_nc(p.numbers + t * 4));
  log.put(ptx::load8_nc(p.numbers + t * 2));
  log.put(ptx::load4_nc(p.numbers + t));
  log.put((u32)ptx::load2_nc(reinterpret_cast<const u16*>(p.numbers) + t));
  log.put(ptx::load_relaxed(p.numbers + t));
  log.put(ptx::load_acquire(p.numbers + t));
  log.mark('s', 't', 'o', 'r');
  u32* cell = p.cells + t * 4;
  ptx::store16(cell, uint4{t, t + 1, t + 2, t + 3});
  log.put(ptx::load16(cell));
  ptx::store8(cell + 2, uint2{t * 5, t * 7});
  log.put(ptx::load16(cell));
  ptx::store4(cell + 1, t * 11);
  log.put(ptx::load16(cell));
  ptx::store2(reinterpret_cast<u16*>(cell) + 1, (u16)(t * 13));
  log.put(ptx::load16(cell));
  ptx::store_relaxed(cell, 3);
  ptx::store_release(cell + 3, 4);
  ptx::threadfence();
  log.put(ptx::load16(cell));
  log.mark('a', 't', 'o', 'm');
  u32* word = p.cells + 4 * 128 + t;
  log.put(ptx::atomic_add(word, t));
  log.put(ptx::atomic_or(word, 0x100u));
  log.put(ptx::atomic_max(word, 0x120u));
  log.put(ptx::load4(word));
  float* real = reinterpret_cast<float*>(p.cells + 5 * 128 + t);
  log.put(ptx::atomic_add(real, (float)t));
  log.put(ptx::atomic_add(real, 0.5f));
  log.put(ptx::load4(real));
}

PTX void calibrate_copies(const CalibrateParams& p, CalibrateShared& s, CalibrateLog& log, u32 t) {
  log.mark('c', 'o', 'p', 'y');
  u32* mine = s.words[t];
  log.put(ptx::smem(mine) - ptx::smem(&s));
#pragma unroll 1
  for (u32 bytes = 0; bytes <= 16; ++bytes) {
    for (int i = 0; i < 8; ++i) mine[i] = 0xabcdef01u;
    ptx::cp_async16(mine, p.numbers + 1000 + (t + bytes) * 4, bytes);
    ptx::cp_async8(mine + 4, p.numbers + 1000 + t * 2, bytes / 2);
    ptx::cp_async4(mine + 6, p.numbers + 1000 + t, bytes / 4);
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    for (int i = 0; i < 8; ++i) log.put(mine[i]);
  }
}

PTX void calibrate_warp(CalibrateLog& log, u32 t) {
  const u32 lane = t % 32;
  log.mark('s', 'h', 'f', 'l');
  for (u32 mask = 0; mask < 32; ++mask) log.put(ptx::shfl_xor(t, mask));
  for (u32 from = 0; from < 40; ++from) log.put(ptx::shfl_idx(t, from));  // 32 and more: taken modulo 32
  log.put(ptx::shfl_idx((float)t, (lane * 5 + 3) % 32));                  // each from another
  log.put((u32)ptx::shfl_xor(-(i32)t, 7));
  const u32 half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  log.put(ptx::shfl_xor(t, 9, half));
  log.mark('v', 'o', 't', 'e');
  for (u32 i = 0; i < 8; ++i) log.put(ptx::ballot((lane * 7 + i) % 5 < 2));
  log.put(ptx::ballot(lane % 3 == 0, half));
  log.put((u32)(ptx::any(lane == 31) + 2 * ptx::any(false) + 4 * ptx::all(true) + 8 * ptx::all(lane != 8)));
  log.put((u32)(ptx::any(lane == 3, half) + 2 * ptx::all(lane < 16, half)));
}

PTX void calibrate_matrices(CalibrateShared& s, CalibrateLog& log, u32 t) {
  const u32 warp = t / 32, lane = t % 32;
  for (u32 i = lane; i < 256; i += 32) s.tiles[warp][i / 16][i % 16] = (u16)(warp * 256 + i);
  __syncwarp();
  const u16* row = &s.tiles[warp][lane % 16][lane / 16 * 8];
  u32 one, two[2], four[4];
  log.mark('l', 'd', 'm', ' ');
  ptx::ldmatrix_x1(one, row);
  log.put(one);
  ptx::ldmatrix_x1_trans(one, row);
  log.put(one);
  ptx::ldmatrix_x2(two, row);
  log.put(two[0]);
  log.put(two[1]);
  ptx::ldmatrix_x2_trans(two, row);
  log.put(two[0]);
  log.put(two[1]);
  ptx::ldmatrix_x4(four, row);
  for (int i = 0; i < 4; ++i) log.put(four[i]);
  ptx::ldmatrix_x4_trans(four, row);
  for (int i = 0; i < 4; ++i) log.put(four[i]);

  // Integers of which every sum is exact in any order; with each step larger ones join.
  float d[4], e[4];
  log.mark('m', 'm', 'a', ' ');
  for (u32 i = 0; i < 4; ++i) d[i] = e[i] = (float)(t + i * 1000);
  for (u32 step = 0; step < 4; ++step) {
    const float large = step < 2 ? 1.0f : 64.0f;
    u32 a[4], b[2], af[4], bf[2];
    for (u32 i = 0; i < 4; ++i) {
      const float lo = ((float)((t * 7 + i * 3 + step) % 11) - 5.0f) * large,
                  hi = (float)((t * 5 + i + step * 2) % 13) - 6.0f;
      a[i] = ptx::pack_bf16(lo, hi);
      af[i] = ptx::pack_f16(lo, hi);
    }
    for (u32 i = 0; i < 2; ++i) {
      const float lo = (float)((t + i + step) % 9) - 4.0f, hi = ((float)((t * 3 + i * 2) % 7) - 3.0f) * large;
      b[i] = ptx::pack_bf16(lo, hi);
      bf[i] = ptx::pack_f16(lo, hi);
    }
    ptx::mma_m16n8k16_bf16(d, a, b[0], b[1]);
    ptx::mma_m16n8k16_f16(e, af, bf[0], bf[1]);
    for (int i = 0; i < 4; ++i) log.put(d[i]);
    for (int i = 0; i < 4; ++i) log.put(e[i]);
  }
  // Denormal halves are numbers, the product of the smallest is exact; infinities and NaN go where they should.
  log.mark('m', 'm', 'a', 's');
  const u32 special[4] = {0x00010001u, 0x00020000u, 0x80010003u, 0x00000001u};
  for (u32 kind = 0; kind < 3; ++kind) {
    u32 a[4];
    for (u32 i = 0; i < 4; ++i) a[i] = special[i];
    if (kind == 1 && lane == 5) a[0] = 0x7c00u;        // inf as f16, a large number as bf16
    if (kind == 2 && lane == 6) a[1] = 0x7f80u << 16;  // inf as bf16, NaN as f16
    for (int i = 0; i < 4; ++i) d[i] = e[i] = 0;
    ptx::mma_m16n8k16_bf16(d, a, 0x3f803f80u, 0x3f803f80u);  // ones
    ptx::mma_m16n8k16_f16(e, a, 0x3c003c00u, 0x3c003c00u);
    for (int i = 0; i < 4; ++i) log.put(d[i]);
    for (int i = 0; i < 4; ++i) log.put(e[i]);
  }
}

PTX void calibrate_barriers(CalibrateShared& s, CalibrateLog& log, u32 t) {
  log.mark('b', 'a', 'r', ' ');
  __syncthreads();
  log.put((u32)ptx::syncthreads_or(t == 100));
  log.put((u32)ptx::syncthreads_or(t == 1000));
  log.put((u32)(t < 64 ? ptx::named_barrier_or(1, 64, t == 3) : ptx::named_barrier_or(2, 64, false)));
  if (t < 64) {  // the upper half sees what the lower has written, without making it wait
    s.words[t][15] = t * 3;
    ptx::named_barrier_arrive(3, 128);
    log.put(t);
  } else {
    ptx::named_barrier_sync(3, 128);
    log.put(s.words[t - 64][15]);
  }
  __syncthreads();
}

PTX void calibrate(const CalibrateParams& p) {
  auto& s = ptx::shared_memory<CalibrateShared>();
  const u32 t = threadIdx.x;
  CalibrateLog log{p.out + t};
  calibrate_arithmetic(p, log, t);
  calibrate_memory(p, log, t);
  calibrate_copies(p, s, log, t);
  calibrate_warp(log, t);
  calibrate_matrices(s, log, t);
  calibrate_barriers(s, log, t);
  log.mark('e', 'n', 'd', ' ');
}

}  // namespace tessera_kernels
