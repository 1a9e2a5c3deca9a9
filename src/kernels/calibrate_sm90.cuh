// What sm_90 adds to calibrate.cuh: rows of matrices stored, mbarriers, copies in bulk, products of the warpgroup.
// Shared memory is full of small integers whatever an operand's layout, so that a product shows where each half was
// read from. The products that it uses are emitted behind this text (tests/sim/calibration.cpp lists them). Must not
// know: tiles, attention.
#pragma once
#include "calibrate_log.cuh"
#include "ptx/barriers.cuh"
#include "ptx/bulk.cuh"
#include "ptx/copies.cuh"
#include "ptx/matrix.cuh"
#include "ptx/memory.cuh"
#include "ptx/roles.cuh"
#include "ptx/wgmma.cuh"

namespace tessera_kernels {

struct Calibrate90Params {
  // Of halves [2][100][72], rows 160 bytes apart: boxes of 64 x 24 x 2 with 128-byte swizzle, 24 x 8 x 1 without,
  // 32 x 16 x 1 with 64, 16 x 16 x 1 with 32.
  ptx::TensorMap cube, plain, narrow, thin;
  ptx::TensorMap tile;   // the same memory in 5 dimensions, 72 x 100 x 1 x 1 x 2: boxes of 64 x 32 x 1 x 1 x 2, 128
  ptx::TensorMap four;   // and in 4, 72 x 100 x 2 x 1: boxes of 64 x 8 x 2 x 1, 128
  ptx::TensorMap line;   // and in 1, 16000: boxes of 256
  ptx::TensorMap sheet;  // halves [48][72] at `cells`, boxes of 64 x 32, 128-byte swizzle
  ptx::TensorMap
      pages;  // halves [2][24][72] at `cells` + 2048 in 5 dimensions, 72 x 24 x 1 x 1 x 2: 64 x 16 x 1 x 1 x 2, 128
  u32* out;   // [words][128], word i of thread t at i * 128 + t
  const u32* numbers;  // [16][128], 0, 1, 2 ...
  u32* cells;          // [4096], zeros
};
struct alignas(1024) Calibrate90Shared {
  u16 a[16384], b[32768];
  u32 words[2048];
  ptx::MBarrier bars[4];
};

PTX void calibrate_rows(Calibrate90Shared& s, CalibrateLog& log, u32 t) {
  const u32 warp = t / 32, lane = t % 32, row = lane % 16 * 16 + lane / 16 * 8;
  u16* tile = s.a + warp * 1024;
  ptx::stmatrix_x4(tile + row, t, 1000 + t, 2000 + t * 65536, 3000 + t);
  ptx::stmatrix_x4_trans(tile + 256 + row, t, 1000 + t, 2000 + t * 65536, 3000 + t);
  ptx::stmatrix_x2(tile + 512 + lane % 16 * 8, 4000 + t, 5000 + t * 65536);
  __syncwarp();
  log.mark('s', 't', 'm', ' ');
  const u32* words = reinterpret_cast<const u32*>(tile);
  for (u32 i = 0; i < 10; ++i) log.put(words[i * 32 + lane]);
}

PTX void calibrate_mbarriers(const Calibrate90Params& p, Calibrate90Shared& s, CalibrateLog& log, u32 t) {
  log.mark('m', 'b', 'a', 'r');
  const auto both = [&] { log.put((u32)ptx::mbarrier_test(s.bars[0], 0) + 2 * (u32)ptx::mbarrier_test(s.bars[0], 1)); };
  both();
  __syncthreads();
  ptx::mbarrier_arrive(s.bars[0]);
  ptx::mbarrier_wait(s.bars[0], 0);
  both();
  __syncthreads();
  if (t == 7) ptx::mbarrier_arrive(s.bars[0], 128);
  ptx::mbarrier_wait(s.bars[0], 1);
  both();
  __syncthreads();
  ptx::cp_async16(s.words + t * 4, p.numbers + t * 4);
  ptx::cp_async_mbarrier_arrive(s.bars[0]);
  ptx::mbarrier_wait(s.bars[0], 0);
  log.put(s.words[511 - t]);
  log.put((u32)ptx::any_thread(t == 99, 1, 128) + 2 * (u32)ptx::any_thread(t == 200, 1, 128));
  u32 elected = ptx::ballot(ptx::elect()), one = 0;
  for (; elected; elected &= elected - 1) ++one;
  log.put(one);
  log.put(ptx::uniform(t / 32));
}

PTX void calibrate_bulk(const Calibrate90Params& p, Calibrate90Shared& s, CalibrateLog& log, u32 t) {
  u32 phase = 0;
  const auto show = [&](u32 bytes) {
    ptx::mbarrier_wait(s.bars[1], phase);
    phase ^= 1;
    for (u32 i = t; i < (bytes / 4 + 127) / 128 * 128; i += 128)
      log.put(i < bytes / 4 ? reinterpret_cast<const u32*>(s.a)[i] : 0);
    __syncthreads();
  };
  const auto expect = [&](u32 bytes) { ptx::mbarrier_arrive_expect(s.bars[1], bytes); };
  ptx::fence_async();  // rows of matrices were stored there
  __syncthreads();
  log.mark('b', 'o', 'x', '3');
  if (t == 0) expect(6144), ptx::tensor_load(s.a, p.cube, s.bars[1], 16, 90, 0);
  show(6144);
  log.mark('b', 'o', 'x', ' ');
  if (t == 0) expect(384), ptx::tensor_load(s.a, p.plain, s.bars[1], -8, -3, 1);
  show(384);
  if (t == 0) expect(1024), ptx::tensor_load(s.a, p.narrow, s.bars[1], 40, 5, 1);
  show(1024);
  if (t == 0) expect(512), ptx::tensor_load(s.a, p.thin, s.bars[1], 8, 60, 1);
  show(512);
  if (t == 0) expect(8192), ptx::tensor_load(s.a, p.tile, s.bars[1], 8, 77, 0, 0, 0);
  show(8192);
  if (t == 0) expect(2048), ptx::tensor_load(s.a, p.four, s.bars[1], 8, 96, 0, 0);
  show(2048);
  if (t == 0) expect(512), ptx::tensor_load(s.a, p.line, s.bars[1], 15800);
  show(512);
  log.mark('b', 'u', 'l', 'k');
  if (t == 0) expect(512), ptx::bulk_load(s.a, p.numbers + 100, 512, s.bars[1]);
  show(512);
  for (u32 i = t; i < 2048; i += 128) s.a[i] = (u16)(i * 3 + 1);
  ptx::fence_async();
  __syncthreads();
  if (t == 0) {
    ptx::tensor_store(p.sheet, s.a, 16, 24);
    ptx::tensor_store(p.pages, s.a, 8, 12, 0, 0, 0);
    ptx::bulk_store(p.cells + 1792, s.a, 512);
    ptx::bulk_commit();
    ptx::bulk_wait_read<0>();
    ptx::bulk_wait<0>();
  }
  __syncthreads();
  for (u32 i = 0; i < 30; ++i) log.put(ptx::load4(p.cells + i * 128 + t));
}

PTX u32 calibrate_hash(u32 i) { return (i * 2654435761u) >> 13; }
PTX u16 calibrate_half(float x, ptx::bf16) { return ptx::to_bf16(x).bits; }
PTX u16 calibrate_half(float x, ptx::f16) { return ptx::to_f16(x).bits; }
// kind 0: integers of which every sum is exact. 1: all bits of a half, exponents apart: sums are rounded.
template <class Element>
PTX void calibrate_fill(Calibrate90Shared& s, u32 t, u32 kind) {
  __syncthreads();
  const auto number = [&](u32 i) {
    const u32 h = calibrate_hash(i);
    if (kind == 0) return (float)(h % 15) - 7.0f;
    const float size = (1.0f + (float)(h % 128) * 0.0078125f) * (float)(1u << (h >> 7) % 5) * 0.25f;
    return h >> 10 & 1 ? -size : size;
  };
#pragma unroll 1
  for (u32 i = t; i < 16384; i += 128) s.a[i] = calibrate_half(number(i), Element{});
#pragma unroll 1
  for (u32 i = t; i < 32768; i += 128) s.b[i] = calibrate_half(number(i + 77777), Element{});
  ptx::fence_async();
  __syncthreads();
}

// Where an operand begins, and how far from one k16 step to the next.
struct CalibrateOperand {
  u64 at;
  u32 step;
};
template <class Element, int N, ptx::Major a_major, ptx::Major b_major>
PTX void calibrate_shared(CalibrateLog& log, CalibrateOperand a, CalibrateOperand b, u32 steps) {
  float d[N / 2];
  ptx::wgmma_fence();
#pragma unroll
  for (u32 k = 0; k < steps; ++k)
    ptx::wgmma<Element, b_major, a_major>(d, ptx::wgmma_advance(a.at, k * a.step), ptx::wgmma_advance(b.at, k * b.step),
                                          k > 0);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
#pragma unroll
  for (int i = 0; i < N / 2; ++i) log.put(d[i]);
}
template <class Element, int N, ptx::Major b_major>
PTX void calibrate_registers(CalibrateLog& log, CalibrateOperand b, u32 t) {
  float d[N / 2];
  u32 a[16];
#pragma unroll
  for (u32 i = 0; i < 16; ++i)
    a[i] = (u32)calibrate_half((float)((t * 7 + i * 3) % 11) - 5.0f, Element{}) |
           (u32)calibrate_half((float)((t * 5 + i) % 13) - 6.0f, Element{}) << 16;
#pragma unroll
  for (int i = 0; i < N / 2; ++i) d[i] = (float)(t + (u32)i * 100);
  ptx::pin(d);
  ptx::wgmma_fence();
#pragma unroll
  for (u32 k = 0; k < 4; ++k) ptx::wgmma<Element, b_major>(d, a + 4 * k, ptx::wgmma_advance(b.at, k * b.step), true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
#pragma unroll
  for (int i = 0; i < N / 2; ++i) log.put(d[i]);
}

PTX void calibrate_products(Calibrate90Shared& s, CalibrateLog& log, u32 t) {
  using ptx::bf16;
  using ptx::f16;
  using ptx::Swizzle;
  constexpr ptx::Major k = ptx::Major::k, mn = ptx::Major::mn;
  const auto of_a = [&](u32 leading, u32 stride, u32 step, Swizzle swizzle) {
    return CalibrateOperand{ptx::wgmma_descriptor(s.a, leading, stride, swizzle), step};
  };
  const auto of_b = [&](u32 leading, u32 stride, u32 step, Swizzle swizzle) {
    return CalibrateOperand{ptx::wgmma_descriptor(s.b, leading, stride, swizzle), step};
  };
  const CalibrateOperand ak = of_a(0, 1024, 32, Swizzle::b128), bk = of_b(0, 1024, 32, Swizzle::b128),
                         am = of_a(8192, 1024, 2048, Swizzle::b128), bm = of_b(8192, 1024, 2048, Swizzle::b128);
  calibrate_fill<bf16>(s, t, 0);
  log.mark('w', 'k', 'k', ' ');
  calibrate_shared<bf16, 64, k, k>(log, ak, bk, 4);
  log.mark('w', 'k', 'm', ' ');
  calibrate_shared<bf16, 128, k, mn>(log, ak, bm, 4);
  log.mark('w', 'm', 'k', ' ');
  calibrate_shared<bf16, 64, mn, k>(log, am, bk, 4);
  log.mark('w', 'm', 'm', ' ');
  calibrate_shared<bf16, 64, mn, mn>(log, am, bm, 4);
  log.mark('w', 'r', 'k', ' ');
  calibrate_registers<bf16, 64, k>(log, bk, t);
  log.mark('w', 'r', 'm', ' ');
  calibrate_registers<bf16, 128, mn>(log, bm, t);
  log.mark('w', '6', '4', ' ');
  calibrate_shared<bf16, 64, k, k>(log, of_a(0, 512, 32, Swizzle::b64), of_b(0, 512, 32, Swizzle::b64), 2);
  calibrate_shared<bf16, 64, mn, mn>(log, of_a(2048, 512, 1024, Swizzle::b64), of_b(2048, 512, 1024, Swizzle::b64), 2);
  log.mark('w', '3', '2', ' ');
  calibrate_shared<bf16, 64, k, k>(log, of_a(0, 256, 0, Swizzle::b32), of_b(0, 256, 0, Swizzle::b32), 1);
  calibrate_shared<bf16, 64, mn, mn>(log, of_a(1024, 256, 512, Swizzle::b32), of_b(1024, 256, 512, Swizzle::b32), 2);
  log.mark('w', '0', ' ', ' ');
  calibrate_shared<bf16, 64, k, k>(log, of_a(128, 512, 256, Swizzle::none), of_b(128, 512, 256, Swizzle::none), 2);
  calibrate_shared<bf16, 64, mn, mn>(log, of_a(128, 512, 256, Swizzle::none), of_b(128, 512, 256, Swizzle::none), 2);
  log.mark('w', 'n', ' ', ' ');
  calibrate_shared<bf16, 8, k, k>(log, ak, bk, 4);
  calibrate_shared<bf16, 24, k, k>(log, ak, bk, 2);
  calibrate_shared<bf16, 80, k, k>(log, ak, bk, 2);
  calibrate_shared<bf16, 176, k, k>(log, ak, bk, 2);
  calibrate_shared<bf16, 256, k, k>(log, ak, bk, 2);
  calibrate_fill<f16>(s, t, 0);
  log.mark('w', 'f', '1', '6');
  calibrate_shared<f16, 64, k, k>(log, ak, bk, 4);
  calibrate_registers<f16, 64, mn>(log, bm, t);
  calibrate_fill<bf16>(s, t, 1);
  log.mark('w', 's', 'u', 'm');
  calibrate_shared<bf16, 64, k, k>(log, ak, bk, 4);
  calibrate_fill<f16>(s, t, 1);
  calibrate_shared<f16, 64, k, k>(log, ak, bk, 4);
  // A row of each kind: denormals, whose products are numbers; an infinite half; infinities that meet; one that is
  // none.
  calibrate_fill<bf16>(s, t, 0);
  if (t < 64) {  // the first row of a panel is not exchanged with anything
    s.a[t] = (u16)(t + 1);
    s.a[8 * 64 + t] = t == 9 ? 0x7f80u : 0x3f80u;
    s.a[16 * 64 + t] = t == 9 ? 0x7f80u : t == 10 ? 0xff80u : 0x3f80u;
    s.a[24 * 64 + t] = t == 9 ? 0x7fc1u : 0x3f80u;
    s.b[t] = 0x3f80u;
    s.b[8 * 64 + t] = 0x0040u;
  }
  ptx::fence_async();
  __syncthreads();
  log.mark('w', 's', 'p', 'c');
  calibrate_shared<bf16, 24, k, k>(log, ak, bk, 4);
}

PTX void calibrate_sm90(const Calibrate90Params& p) {
  auto& s = ptx::shared_memory<Calibrate90Shared>();
  const u32 t = threadIdx.x;
  CalibrateLog log{p.out + t};
  if (t == 0) {
    ptx::mbarrier_init(s.bars[0], 128);
    ptx::mbarrier_init(s.bars[1], 1);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  calibrate_rows(s, log, t);
  calibrate_mbarriers(p, s, log, t);
  calibrate_bulk(p, s, log, t);
  calibrate_products(s, log, t);
  log.mark('e', 'n', 'd', ' ');
}

}  // namespace tessera_kernels
