// A small but real kernel for the tests of the machine and of its detectors: attention forward by cp.async, ldmatrix
// and mma.sync, 64 queries x 64 keys a block, four warps of 16 rows, two stages of keys and values. Must not know:
// masks other than causal, mods, splits.
#pragma once
#include "kernels/ptx/arithmetic.cuh"
#include "kernels/ptx/base.cuh"
#include "kernels/ptx/copies.cuh"
#include "kernels/ptx/matrix.cuh"
#include "kernels/ptx/memory.cuh"
#include "kernels/ptx/warp.cuh"

namespace small_forward {

using ptx::bf16;
using ptx::i64;
using ptx::u32;

struct Params {
  const bf16 *q, *k, *v;  // [tokens, heads, D]
  bf16* o;                // [n_q, heads, D]
  float* lse_ln;          // [heads, n_q]
  int n_q, n_k, heads;
  float scale_log2;
};

template <int D>
struct Shared {
  bf16 q[64 * D];
  bf16 k[2][64 * D];
  bf16 v[2][64 * D];
};

// 16-byte chunk c of row r, its low three bits XORed with the row, so that eight rows meet eight groups of banks.
template <int D>
PTX int at(int r, int c) {
  return r * D + (c ^ (r & 7)) * 8;
}

template <int D>
PTX void load_tile(bf16* dst, const bf16* src, int row0, int n, i64 token_stride) {
  constexpr int chunks = D / 8;
#pragma unroll
  for (int i = threadIdx.x; i < 64 * chunks; i += 128) {
    const int r = i / chunks, c = i % chunks, row = row0 + r;
    const bool valid = row < n;
    ptx::cp_async16(dst + at<D>(r, c), src + (valid ? row : 0) * token_stride + c * 8, valid ? 16 : 0);
  }
}

template <int D, bool Causal>
PTX void forward(const Params& p) {
  auto& s = ptx::shared_memory<Shared<D>>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int query_tiles = (p.n_q + 63) / 64;
  const int row0 = (int)blockIdx.x % query_tiles * 64, head = (int)blockIdx.x / query_tiles, shift = p.n_k - p.n_q;
  const i64 token_stride = (i64)p.heads * D;
  const bf16 *q = p.q + head * D, *k = p.k + head * D, *v = p.v + head * D;
  int last = Causal ? row0 + 63 + shift : p.n_k - 1;
  if (last > p.n_k - 1) last = p.n_k - 1;
  const int tiles = last < 0 ? 0 : last / 64 + 1;

  u32 qf[D / 16][4];
  float o[D / 8][4] = {}, m[2] = {-ptx::infinity(), -ptx::infinity()}, l[2] = {};

  load_tile<D>(s.q, q, row0, p.n_q, token_stride);
  load_tile<D>(s.k[0], k, 0, p.n_k, token_stride);
  load_tile<D>(s.v[0], v, 0, p.n_k, token_stride);
  ptx::cp_async_commit();

  for (int j = 0; j < tiles; ++j) {
    const int stage = j & 1;
    if (j + 1 < tiles) {
      load_tile<D>(s.k[stage ^ 1], k, (j + 1) * 64, p.n_k, token_stride);
      load_tile<D>(s.v[stage ^ 1], v, (j + 1) * 64, p.n_k, token_stride);
    }
    ptx::cp_async_commit();
    ptx::cp_async_wait<1>();
    __syncthreads();  // tile j has landed, for everyone
    if (j == 0) {
#pragma unroll
      for (int i = 0; i < D / 16; ++i) ptx::ldmatrix_x4(qf[i], s.q + at<D>(warp * 16 + lane % 16, i * 2 + lane / 16));
    }
    float x[8][4] = {};  // S = Q K^T, 16 x 64
#pragma unroll
    for (int i = 0; i < D / 16; ++i) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        u32 b[4];
        ptx::ldmatrix_x4(b, s.k[stage] + at<D>(n * 16 + (lane & 7) + (lane >> 4) * 8, i * 2 + ((lane >> 3) & 1)));
        ptx::mma_m16n8k16_bf16(x[2 * n], qf[i], b[0], b[1]);
        ptx::mma_m16n8k16_bf16(x[2 * n + 1], qf[i], b[2], b[3]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {  // the lane's two rows: g and g + 8
      const int row = row0 + warp * 16 + g + h * 8;
      int limit = Causal ? row + shift : p.n_k - 1;
      if (limit > p.n_k - 1) limit = p.n_k - 1;
      float top = m[h];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& y = x[n][h * 2 + e];
          if (j * 64 + n * 8 + t * 2 + e > limit) y = -ptx::infinity();
          top = ptx::max(top, y);
        }
      }
      top = ptx::max(top, ptx::shfl_xor(top, 1));
      top = ptx::max(top, ptx::shfl_xor(top, 2));
      const float base = top == -ptx::infinity() ? 0.f : top * p.scale_log2;
      const float shrink = ptx::exp2(m[h] * p.scale_log2 - base);
      float sum = 0;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) sum += x[n][h * 2 + e] = ptx::exp2(x[n][h * 2 + e] * p.scale_log2 - base);
      }
      l[h] = l[h] * shrink + sum;
      m[h] = top;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        o[n][h * 2] *= shrink;
        o[n][h * 2 + 1] *= shrink;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // O += P V, 16 keys at a time
      const u32 a[4] = {ptx::pack_bf16(x[2 * i][0], x[2 * i][1]), ptx::pack_bf16(x[2 * i][2], x[2 * i][3]),
                        ptx::pack_bf16(x[2 * i + 1][0], x[2 * i + 1][1]),
                        ptx::pack_bf16(x[2 * i + 1][2], x[2 * i + 1][3])};
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        u32 b[4];
        ptx::ldmatrix_x4_trans(b, s.v[stage] + at<D>(i * 16 + (lane & 15), n * 2 + lane / 16));
        ptx::mma_m16n8k16_bf16(o[2 * n], a, b[0], b[1]);
        ptx::mma_m16n8k16_bf16(o[2 * n + 1], a, b[2], b[3]);
      }
    }
    __syncthreads();  // everyone has read tile j: its stage may be filled again
  }
  ptx::cp_async_wait<0>();
  if (tiles == 0) __syncthreads();  // Q of another warp's rows may still be on its way

  float inverse[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    l[h] += ptx::shfl_xor(l[h], 1);
    l[h] += ptx::shfl_xor(l[h], 2);
    inverse[h] = l[h] > 0 ? 1.f / l[h] : 0.f;
    const int row = row0 + warp * 16 + g + h * 8;
    if (t == 0 && row < p.n_q)
      p.lse_ln[(i64)head * p.n_q + row] =
          l[h] > 0 ? (m[h] * p.scale_log2 + ptx::log2(l[h])) * 0.69314718056f : -ptx::infinity();
  }
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {  // O leaves through the warp's own rows of Q's memory
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = warp * 16 + g + h * 8;
      *reinterpret_cast<u32*>(s.q + at<D>(r, n) + t * 2) =
          ptx::pack_bf16(o[n][h * 2] * inverse[h], o[n][h * 2 + 1] * inverse[h]);
    }
  }
  __syncwarp();
  constexpr int chunks = D / 8;
#pragma unroll
  for (int i = lane; i < 16 * chunks; i += 32) {
    const int r = warp * 16 + i / chunks, c = i % chunks;
    if (row0 + r < p.n_q)
      ptx::store16(p.o + (row0 + r) * token_stride + head * D + c * 8,
                   *reinterpret_cast<const uint4*>(s.q + at<D>(r, c)));
  }
}

}  // namespace small_forward
