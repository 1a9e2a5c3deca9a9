// The warp's tensor core: fragment layouts of the PTX ISA (kernels/calibrate.cuh compares each with hardware).
// Compiled with AVX2, FMA and F16C; the engine refuses machines without them.
#include <immintrin.h>

#include <cstring>

#include "sim/machine.hpp"

namespace tessera::sim {
namespace {

typedef u32 Words __attribute__((vector_size(32), aligned(4)));
typedef float Floats __attribute__((vector_size(32), aligned(4)));

// The low and the high halves of eight registers.
void widen(Words x, Half type, Floats& lo, Floats& hi) {
  if (type == Half::bf16) {
    lo = Floats(x << 16);
    hi = Floats(x & 0xffff0000u);
    return;
  }
  const auto convert = [](Words w) {
    const __m256i v = __m256i(w);
    return Floats(_mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1))));
  };
  lo = convert(x & 0xffffu);
  hi = convert(x >> 16);
}

// The sum runs over k in the order of registers, which the kernels may not mind: hardware has an order of its own.
void multiply(Scratch& s, Half type) {
  alignas(64) float a[2][8][16], b[2][8][8];  // [half][row g][4 t + register]; [half][2 t + register][n]
  for (int g = 0; g < 8; ++g)
    for (int i = 0; i < 2; ++i) {
      Floats lo, hi;
      widen(*reinterpret_cast<const Words*>(&s.a[g * 4 + i * 2][0]), type, lo, hi);
      *reinterpret_cast<Floats*>(&a[0][g][i * 8]) = lo;
      *reinterpret_cast<Floats*>(&a[1][g][i * 8]) = hi;
    }
  for (int j = 0; j < 8; ++j) {
    Floats lo, hi;
    widen(*reinterpret_cast<const Words*>(s.b[j]), type, lo, hi);
    *reinterpret_cast<Floats*>(b[0][j]) = lo;
    *reinterpret_cast<Floats*>(b[1][j]) = hi;
  }
  for (int g = 0; g < 8; g += 4) {
    Floats c[4][2];
    for (int i = 0; i < 4; ++i) {
      c[i][0] = *reinterpret_cast<const Floats*>(s.c[g + i]);
      c[i][1] = *reinterpret_cast<const Floats*>(s.c[g + i + 8]);
    }
    for (int half = 0; half < 2; ++half)
      for (int j = 0; j < 8; ++j) {  // t = j / 2; registers 0, 1: rows g, g + 8 of the first eight k; 2, 3: of the last
        const Floats y = *reinterpret_cast<const Floats*>(b[half][j]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const float* x = &a[half][g + i][j / 2 * 4 + j % 2 * 2];
          c[i][0] += x[0] * y;
          c[i][1] += x[1] * y;
        }
      }
    for (int i = 0; i < 4; ++i) {
      *reinterpret_cast<Floats*>(s.c[g + i]) = c[i][0];
      *reinterpret_cast<Floats*>(s.c[g + i + 8]) = c[i][1];
    }
  }
}

}  // namespace

Reg4 ldmatrix(const void* row, u32 matrices, bool trans) {
  Scratch& s = meet_scratch();
  const u32 lane = self()->lane;
  if (lane < matrices * 8) {
    const void* pc = TESSERA_SIM_PC;
    need_smem(row, 16, 16, "ldmatrix row", pc);
    if (m->checked) shared_access(offset(row), 16, now(self()), 0, pc);
    s.row[lane] = static_cast<const char*>(row);
  }
  u32* flat = &s.r[0][0];  // [matrix][32 words]
  if (meet(trans ? "ldmatrix.trans" : "ldmatrix", matrices, TESSERA_SIM_PC)) {
    for (u32 i = 0; i < matrices; ++i) {
      if (!trans) {
        for (u32 r = 0; r < 8; ++r) std::memcpy(flat + i * 32 + r * 4, s.row[i * 8 + r], 16);
        continue;
      }
      u16 x[8][8], y[8][8];
      for (u32 r = 0; r < 8; ++r) std::memcpy(x[r], s.row[i * 8 + r], 16);
      for (u32 r = 0; r < 8; ++r)
        for (u32 c = 0; c < 8; ++c) y[c][r] = x[r][c];
      std::memcpy(flat + i * 32, y, 128);
    }
    release_warp();
  }
  // Lane l takes word l % 4 of row l / 4 of each matrix; where there are fewer than four, nobody reads the others.
  return {{flat[lane], flat[32 + lane], flat[64 + lane], flat[96 + lane]}};
}

void stmatrix(void* row, u32 matrices, bool trans, Reg4 r) {
  Scratch& s = meet_scratch();
  const u32 lane = self()->lane;
  if (lane < matrices * 8) {
    const void* pc = TESSERA_SIM_PC;
    need_smem(row, 16, 16, "stmatrix row", pc);
    if (m->checked) shared_access(offset(row), 16, now(self()), writes, pc);
    s.row[lane] = static_cast<const char*>(row);
  }
  u32* flat = &s.r[0][0];  // [matrix][32 words]
  for (u32 i = 0; i < matrices; ++i) flat[i * 32 + lane] = r.v[i];
  if (meet(trans ? "stmatrix.trans" : "stmatrix", matrices, TESSERA_SIM_PC)) {
    for (u32 i = 0; i < matrices; ++i) {
      u16 x[8][8], y[8][8];
      std::memcpy(x, flat + i * 32, 128);
      for (u32 k = 0; k < 8; ++k)
        for (u32 c = 0; c < 8; ++c) y[c][k] = x[k][c];
      for (u32 k = 0; k < 8; ++k) std::memcpy(const_cast<char*>(s.row[i * 8 + k]), trans ? y[k] : x[k], 16);
    }
    release_warp();
  }
}

Acc4 mma_16816(Acc4 d, Reg4 a, u32 b0, u32 b1, Half type) {
  Scratch& s = meet_scratch();
  const u32 lane = self()->lane, g = lane / 4, t = lane % 4;
  std::memcpy(s.a[lane], a.v, 16);
  s.b[t * 2][g] = b0;
  s.b[t * 2 + 1][g] = b1;
  std::memcpy(&s.c[g][t * 2], d.v, 8);
  std::memcpy(&s.c[g + 8][t * 2], d.v + 2, 8);
  if (meet("mma.m16n8k16", u32(type), TESSERA_SIM_PC)) {
    multiply(s, type);
    release_warp();
  }
  std::memcpy(d.v, &s.c[g][t * 2], 8);
  std::memcpy(d.v + 2, &s.c[g + 8][t * 2], 8);
  return d;
}

}  // namespace tessera::sim
