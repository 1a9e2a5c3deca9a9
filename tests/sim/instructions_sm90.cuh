// Every instruction that sm_90 adds to kernels/ptx/, once, so that the real compiler sees each. What they calculate is
// of no use; kernels/calibrate_sm90.cuh is for that. Comes with the products that the text in front of the entry emits.
#pragma once
#include "kernels/ptx/barriers.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/matrix.cuh"
#include "kernels/ptx/roles.cuh"
#include "kernels/ptx/wgmma.cuh"

using ptx::i32;
using ptx::u32;
using ptx::u64;
using ptx::u8;

struct Params {
  ptx::TensorMap maps[5];
  float* out;
  u8* bytes;
  u32 at;
};
struct alignas(1024) Shared {
  u8 a[16384], b[65536];
  ptx::MBarrier full, other;
};

PTX void copies(const Params& p, Shared& s) {
  const i32 c = (i32)p.at;
  ptx::tensor_prefetch(p.maps[0]);
  ptx::mbarrier_arrive_expect(s.full, 16384);
  ptx::tensor_load(s.a, p.maps[0], s.full, c);
  ptx::tensor_load(s.a, p.maps[1], s.full, c, c);
  ptx::tensor_load(s.a, p.maps[2], s.full, c, c, c);
  ptx::tensor_load(s.a, p.maps[3], s.full, c, c, c, c);
  ptx::tensor_load(s.a, p.maps[4], s.full, c, c, c, c, c);
  ptx::bulk_load(s.b, p.bytes, 1024, s.full);
  ptx::mbarrier_wait(s.full, 0);
  ptx::fence_async();
  ptx::tensor_store(p.maps[0], s.a, c);
  ptx::tensor_store(p.maps[1], s.a, c, c);
  ptx::tensor_store(p.maps[2], s.a, c, c, c);
  ptx::tensor_store(p.maps[3], s.a, c, c, c, c);
  ptx::tensor_store(p.maps[4], s.a, c, c, c, c, c);
  ptx::bulk_store(p.bytes, s.b, 1024);
  ptx::bulk_commit();
  ptx::bulk_wait_read<0>();
  ptx::bulk_wait<0>();
}

template <class Element, int N>
PTX void products(const Params& p, Shared& s, bool accumulate) {
  const u64 a = ptx::wgmma_descriptor(s.a, 0), b = ptx::wgmma_descriptor(s.b, 16384);
  float d[N / 2];
  u32 fragment[8];
  for (u32 i = 0; i < 8; ++i) fragment[i] = (p.at + threadIdx.x) * i;
  for (int i = 0; i < N / 2; ++i) d[i] = p.out[i];
  ptx::wgmma_fence();
  ptx::wgmma<Element, ptx::Major::k>(d, a, b, accumulate);
  ptx::wgmma<Element, ptx::Major::mn>(d, ptx::wgmma_advance(a, 32), ptx::wgmma_advance(b, 2048), true);
  ptx::wgmma<Element, ptx::Major::mn, ptx::Major::mn>(d, a, b, true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
  ptx::pin(fragment);
  ptx::wgmma_fence();
  ptx::wgmma<Element, ptx::Major::k>(d, fragment, b, accumulate);
  ptx::wgmma<Element, ptx::Major::mn>(d, fragment + 4, b, true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::pin(d);
  for (int i = 0; i < N / 2; ++i) p.out[i * 128 + threadIdx.x % 128] = d[i];
}

template <class Element, int N>
PTX void every_instruction(const Params& p) {
  auto& s = ptx::shared_memory<Shared>();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(s.full, 1);
    ptx::mbarrier_init(s.other, 128);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  if (ptx::uniform(threadIdx.x / 128) == 0) {
    ptx::registers_lower<40>();
    if (threadIdx.x < 32 && ptx::elect()) copies(p, s);
    ptx::cp_async_mbarrier_arrive(s.other);
    return;
  }
  ptx::registers_raise<232>();
  ptx::mbarrier_arrive(s.other);
  ptx::mbarrier_arrive(s.other, 2);
  ptx::mbarrier_expect(s.other, 16);
  if (ptx::mbarrier_test(s.other, 1)) ptx::mbarrier_wait(s.full, 0);
  products<Element, N>(p, s, ptx::any_thread(threadIdx.x == 200, 1, 128));
  ptx::stmatrix_x2(s.a + threadIdx.x % 32 * 16, 1, 2);
  ptx::stmatrix_x4(s.a + threadIdx.x % 32 * 16, 1, 2, 3, 4);
  ptx::stmatrix_x4_trans(s.a + threadIdx.x % 32 * 16, 1, 2, 3, 4);
  ptx::order_after(p.out[0], p.out[1]);
  if (threadIdx.x == 128) ptx::mbarrier_invalidate(s.other);
}
