// A small but real kernel for the tests of what sm_90 adds: attention forward with one loading warp, a ring of stages
// of keys and values, and two warpgroups of 64 rows that multiply. Order in a warpgroup: start S = Q K[j]; start O += P
// V[j-1]; wait for S only; softmax of S; wait for O; rescale O. The two hand a named barrier back and forth, so that
// one multiplies while the other exponentiates. Must not know: masks other than causal, mods, splits.
#pragma once
#include "kernels/ptx/arithmetic.cuh"
#include "kernels/ptx/barriers.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/matrix.cuh"
#include "kernels/ptx/roles.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace small_forward_sm90 {

using ptx::bf16;
using ptx::i64;
using ptx::Major;
using ptx::u32;
using ptx::u64;

struct Params {
  ptx::TensorMap q, k, v, o;  // [tokens, heads, D]: boxes of 64 columns x 1 head x 64 (q, o) or Keys (k, v) tokens
  float* lse_ln;              // [heads, n_q]
  int n_q, n_k, heads;
  float scale_log2;
};

template <int D, int Keys, int Stages>
struct alignas(1024) Shared {
  bf16 q[2][D / 64][64 * 64];  // per consumer; O leaves through it
  bf16 k[Stages][D / 64][Keys * 64];
  bf16 v[Stages][D / 64][Keys * 64];
  ptx::MBarrier q_full, k_full[Stages], k_empty[Stages], v_full[Stages], v_empty[Stages];
};

template <int D, int Keys, int Stages, bool Causal>
struct Forward {
  using Smem = Shared<D, Keys, Stages>;
  static constexpr u32 kQBytes = 2 * 64 * D * 2, kTileBytes = Keys * D * 2;
  static constexpr u32 kTurn = 1, kEpilogue = 3;  // named barriers: kTurn + consumer, kEpilogue + consumer

  PTX int query_tile(const Params& p) { return (int)blockIdx.x / p.heads; }
  PTX int tiles(const Params& p) {
    int last = Causal ? query_tile(p) * 128 + 127 + p.n_k - p.n_q : p.n_k - 1;
    if (last > p.n_k - 1) last = p.n_k - 1;
    return last < 0 ? 0 : last / Keys + 1;
  }

  PTX void produce(const Params& p, Smem& s) {
    const int head = blockIdx.x % p.heads, n = tiles(p);
    ptx::mbarrier_arrive_expect(s.q_full, kQBytes);
    for (int c = 0; c < 2; ++c)
      for (int h = 0; h < D / 64; ++h)
        ptx::tensor_load(s.q[c][h], p.q, s.q_full, h * 64, head, query_tile(p) * 128 + c * 64);
    for (int j = 0; j < n; ++j) {
      const int stage = j % Stages, round = j / Stages;
      ptx::mbarrier_wait(s.k_empty[stage], (round & 1) ^ 1);
      ptx::mbarrier_arrive_expect(s.k_full[stage], kTileBytes);
      for (int h = 0; h < D / 64; ++h) ptx::tensor_load(s.k[stage][h], p.k, s.k_full[stage], h * 64, head, j * Keys);
      ptx::mbarrier_wait(s.v_empty[stage], (round & 1) ^ 1);
      ptx::mbarrier_arrive_expect(s.v_full[stage], kTileBytes);
      for (int h = 0; h < D / 64; ++h) ptx::tensor_load(s.v[stage][h], p.v, s.v_full[stage], h * 64, head, j * Keys);
    }
  }

  PTX void start_s(float (&x)[Keys / 2], const bf16 (&q)[D / 64][64 * 64], const bf16 (&k)[D / 64][Keys * 64]) {
#pragma unroll
    for (int i = 0; i < D / 16; ++i)
      ptx::wgmma<bf16, Major::k>(x, ptx::wgmma_descriptor(q[i / 4] + i % 4 * 16, 0),
                                 ptx::wgmma_descriptor(k[i / 4] + i % 4 * 16, 0), i > 0);
    ptx::wgmma_commit();
  }
  PTX void start_o(float (&o)[D / 2], const u32 (&pf)[Keys / 16][4], const bf16 (&v)[D / 64][Keys * 64],
                   bool accumulate) {
#pragma unroll
    for (int i = 0; i < Keys / 16; ++i)
      ptx::wgmma<bf16, Major::mn>(o, pf[i], ptx::wgmma_descriptor(v[0] + i * 16 * 64, Keys * 128), accumulate || i > 0);
    ptx::wgmma_commit();
  }
  PTX void convert(u32 (&pf)[Keys / 16][4], const float (&x)[Keys / 2]) {
#pragma unroll
    for (int i = 0; i < Keys / 16; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) pf[i][r] = ptx::pack_bf16(x[i * 8 + r * 2], x[i * 8 + r * 2 + 1]);
    }
  }
  // Masks tile j, raises the maxima, turns x into exp2, returns by how much the past shrinks.
  PTX void softmax(float (&x)[Keys / 2], float (&m)[2], float (&l)[2], float (&shrink)[2], const Params& p, int row,
                   int j) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int limit = Causal ? row + h * 8 + p.n_k - p.n_q : p.n_k - 1;
      if (limit > p.n_k - 1) limit = p.n_k - 1;
      float top = m[h];
      const bool edge = (j + 1) * Keys - 1 > limit;
#pragma unroll
      for (int n = 0; n < Keys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& y = x[n * 4 + h * 2 + e];
          if (edge && j * Keys + n * 8 + t * 2 + e > limit) y = -ptx::infinity();
          top = ptx::max(top, y);
        }
      }
      top = ptx::max(top, ptx::shfl_xor(top, 1));
      top = ptx::max(top, ptx::shfl_xor(top, 2));
      const float base = top == -ptx::infinity() ? 0.0f : top * p.scale_log2;
      shrink[h] = ptx::exp2(m[h] * p.scale_log2 - base);
      float sum = 0;
#pragma unroll
      for (int n = 0; n < Keys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) sum += x[n * 4 + h * 2 + e] = ptx::exp2(x[n * 4 + h * 2 + e] * p.scale_log2 - base);
      }
      l[h] = l[h] * shrink[h] + sum;
      m[h] = top;
    }
  }

  PTX void consume(const Params& p, Smem& s, int consumer) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, head = blockIdx.x % p.heads, n = tiles(p);
    const int row0 = query_tile(p) * 128 + consumer * 64, row = row0 + warp * 16 + lane / 4;
    float x[Keys / 2], o[D / 2], m[2] = {-ptx::infinity(), -ptx::infinity()}, l[2] = {}, shrink[2];
    u32 pf[Keys / 16][4];

    ptx::mbarrier_wait(s.q_full, 0);
    if (n > 0) {  // first tile, peeled: ptxas keeps wgmma asynchronous only in straight code
      ptx::mbarrier_wait(s.k_full[0], 0);
      ptx::named_barrier_sync(kTurn + consumer, 256);  // my turn for the tensor cores
      ptx::wgmma_fence();
      start_s(x, s.q[consumer], s.k[0]);
      if (consumer == 0 || n > 1) ptx::named_barrier_arrive(kTurn + 1 - consumer, 256);
      ptx::wgmma_wait<0>(x);
      if (lane == 0) ptx::mbarrier_arrive(s.k_empty[0]);
      softmax(x, m, l, shrink, p, row, 0);
      convert(pf, x);
    }
    for (int j = 1; j < n; ++j) {
      const int stage = j % Stages, past = (j - 1) % Stages;
      ptx::mbarrier_wait(s.k_full[stage], (j / Stages) & 1);
      ptx::mbarrier_wait(s.v_full[past], ((j - 1) / Stages) & 1);
      ptx::named_barrier_sync(kTurn + consumer, 256);
      ptx::wgmma_fence();
      start_s(x, s.q[consumer], s.k[stage]);
      start_o(o, pf, s.v[past], j > 1);
      if (consumer == 0 || j + 1 < n) ptx::named_barrier_arrive(kTurn + 1 - consumer, 256);
      ptx::wgmma_wait<1>(x);
      if (lane == 0) ptx::mbarrier_arrive(s.k_empty[stage]);
      softmax(x, m, l, shrink, p, row, j);
      ptx::wgmma_wait<0>(o);
      if (lane == 0) ptx::mbarrier_arrive(s.v_empty[past]);
#pragma unroll
      for (int i = 0; i < D / 2; ++i) o[i] *= shrink[i / 2 % 2];
      convert(pf, x);
    }
    if (n > 0) {
      const int past = (n - 1) % Stages;
      ptx::mbarrier_wait(s.v_full[past], ((n - 1) / Stages) & 1);
      ptx::wgmma_fence();
      start_o(o, pf, s.v[past], n > 1);
      ptx::wgmma_wait<0>(o);
    } else {
#pragma unroll
      for (int i = 0; i < D / 2; ++i) o[i] = 0;
    }

#pragma unroll
    for (int h = 0; h < 2; ++h) {
      l[h] += ptx::shfl_xor(l[h], 1);
      l[h] += ptx::shfl_xor(l[h], 2);
      if (lane % 4 == 0 && row + h * 8 < p.n_q)
        p.lse_ln[(i64)head * p.n_q + row + h * 8] =
            l[h] > 0 ? (m[h] * p.scale_log2 + ptx::log2(l[h])) * 0.69314718056f : -ptx::infinity();
      shrink[h] = l[h] > 0 ? ptx::rcp(l[h]) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < D / 16; ++i) {  // 16 rows x 16 columns each; rows are 128 bytes, swizzled
      const int r = warp * 16 + lane % 16, c = i % 4 * 2 + lane / 16;
      ptx::stmatrix_x4(s.q[consumer][i / 4] + r * 64 + (c ^ (r & 7)) * 8,
                       ptx::pack_bf16(o[i * 8] * shrink[0], o[i * 8 + 1] * shrink[0]),
                       ptx::pack_bf16(o[i * 8 + 2] * shrink[1], o[i * 8 + 3] * shrink[1]),
                       ptx::pack_bf16(o[i * 8 + 4] * shrink[0], o[i * 8 + 5] * shrink[0]),
                       ptx::pack_bf16(o[i * 8 + 6] * shrink[1], o[i * 8 + 7] * shrink[1]));
    }
    ptx::fence_async();
    ptx::named_barrier_sync(kEpilogue + consumer, 128);
    if (warp == 0 && ptx::elect()) {
      for (int h = 0; h < D / 64; ++h) ptx::tensor_store(p.o, s.q[consumer][h], h * 64, head, row0);
      ptx::bulk_commit();
      ptx::bulk_wait_read<0>();
    }
  }
};

template <int D, int Keys, int Stages, bool Causal>
PTX void forward(const Params& p) {
  using F = Forward<D, Keys, Stages, Causal>;
  auto& s = ptx::shared_memory<typename F::Smem>();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(s.q_full, 1);
    for (int i = 0; i < Stages; ++i) {
      ptx::mbarrier_init(s.k_full[i], 1);
      ptx::mbarrier_init(s.v_full[i], 1);
      ptx::mbarrier_init(s.k_empty[i], 8);  // one arrival per consumer warp
      ptx::mbarrier_init(s.v_empty[i], 8);
    }
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  const int group = threadIdx.x / 128;
  if (group == 0) {
    ptx::registers_lower<24>();
    if (threadIdx.x < 32 && ptx::elect()) F::produce(p, s);
  } else {
    ptx::registers_raise<240>();
    if (group == 2 && F::tiles(p) > 0) ptx::named_barrier_arrive(F::kTurn, 256);  // consumer 0 goes first
    F::consume(p, s, group - 1);
  }
}
}  // namespace small_forward_sm90
