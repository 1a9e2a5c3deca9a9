// Layouts of the PTX ISA's descriptors and fragments (kernels/calibrate_sm90.cuh compares them with hardware) and the
// arithmetic. Compiled with AVX2, FMA and F16C; the engine refuses machines without them.
#include <immintrin.h>

#include <cstring>

#include "sim/wgmma.hpp"

namespace tessera::sim {
namespace {

typedef float Floats __attribute__((vector_size(32), aligned(4)));

Floats widened(const void* eight, Half type) {
  const __m128i x = _mm_loadu_si128(static_cast<const __m128i*>(eight));
  if (type == Half::f16) return Floats(_mm256_cvtph_ps(x));
  return Floats(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

}  // namespace

Operand decoded(u64 d, bool mn_major, const char** wrong) {
  constexpr u32 spans[4] = {0, 128, 64, 32};
  const Operand x{u32(d & 0x3fff) << 4, u32(d >> 16 & 0x3fff) << 4, u32(d >> 32 & 0x3fff) << 4, spans[d >> 62]};
  *wrong = nullptr;
  if (d >> 46 & 7 || d >> 49 & 7) *wrong = "a field of the descriptor that must be 0 is not";
  // Atoms of 8 rows are aligned to their size: what is left of the start is a step inside of a row.
  else if (x.span && x.start % (8 * x.span) >= x.span)
    *wrong = "the operand does not begin in the first row of a swizzled atom";
  else if (!mn_major && x.span && x.start % x.span % 32) *wrong = "the operand does not begin at a multiple of 16 k";
  return x;
}

void gather(const char* smem, const Operand& x, bool mn_major, u32 rows, Half type, float* out, u32 pitch) {
  each_piece(x, mn_major, 0, rows, [&](u32 at, u32 row, u32 k) {
    const Floats eight = widened(smem + at, type);
    if (mn_major) {
      *reinterpret_cast<Floats*>(out + k * pitch + row) = eight;
    } else {
      float one[8];
      std::memcpy(one, &eight, sizeof one);
      for (u32 i = 0; i < 8; ++i) out[(k + i) * pitch + row] = one[i];
    }
  });
}

void scatter_fragment(const u32 (&registers)[4], u32 thread, Half type, float* a) {
  const Floats eight = widened(registers, type);
  float one[8];
  std::memcpy(one, &eight, sizeof one);
  for (u32 i = 0; i < 8; ++i) {
    const u32 k = thread % 4 * 2 + i % 2 + i / 4 * 8, row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
    a[k * 64 + row] = one[i];
  }
}

void multiply_add(float* d, const float* a, const float* b, u32 n) {
  u32 column = 0;
  for (; column + 16 <= n; column += 16)
    for (u32 row = 0; row < 64; row += 4) {
      Floats x[4][2];
      for (u32 i = 0; i < 4; ++i)
        for (u32 j = 0; j < 2; ++j) x[i][j] = *reinterpret_cast<const Floats*>(d + (row + i) * n + column + j * 8);
      for (u32 k = 0; k < 16; ++k) {
        const Floats b0 = *reinterpret_cast<const Floats*>(b + k * n + column),
                     b1 = *reinterpret_cast<const Floats*>(b + k * n + column + 8);
#pragma GCC unroll 4
        for (u32 i = 0; i < 4; ++i) {
          x[i][0] += a[k * 64 + row + i] * b0;
          x[i][1] += a[k * 64 + row + i] * b1;
        }
      }
      for (u32 i = 0; i < 4; ++i)
        for (u32 j = 0; j < 2; ++j) *reinterpret_cast<Floats*>(d + (row + i) * n + column + j * 8) = x[i][j];
    }
  if (column == n) return;
  for (u32 row = 0; row < 64; ++row) {  // eight columns are left
    Floats x = *reinterpret_cast<const Floats*>(d + row * n + column);
    for (u32 k = 0; k < 16; ++k) x += a[k * 64 + row] * *reinterpret_cast<const Floats*>(b + k * n + column);
    *reinterpret_cast<Floats*>(d + row * n + column) = x;
  }
}

}  // namespace tessera::sim
