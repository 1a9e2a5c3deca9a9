// Products of the warpgroup's tensor core: what is asked for, and the arithmetic of it.
// Must not know: fibers, clocks.
#pragma once
#include "sim/device.hpp"

namespace tessera::sim {

// A descriptor of an operand in shared memory, taken apart; in bytes.
struct Operand {
  u32 start = 0, leading = 0, stride = 0;
  u32 span = 0;  // of the swizzle: 128, 64, 32, or 0
};
// *wrong: what is wrong with it, or null.
Operand decoded(u64 descriptor, bool mn_major, const char** wrong);

// In which places of shared memory an operand of `rows` (m or n) x 16 lies: pieces of 8 halves.
// f(offset, row, k): the halves go along k (K-major) or along rows (MN-major).
template <class F>
void each_piece(const Operand& x, bool mn_major, u32 first_row, u32 rows, F&& f) {
  const auto swizzled = [&](u32 at) { return x.span ? at ^ (at >> 7 & (x.span / 16 - 1)) << 4 : at; };
  if (mn_major) {
    const u32 side = x.span ? x.span / 2 : 8;  // halves side by side
    for (u32 row = first_row; row < first_row + rows; row += 8)
      for (u32 k = 0; k < 16; ++k) {
        const u32 along = row % side * 2, which = row / side;
        f(swizzled(x.span ? x.start + which * x.leading + along + k % 8 * x.span + k / 8 * x.stride
                          : x.start + which * x.stride + along + k % 8 * 16 + k / 8 * x.leading),
          row, k);
      }
    return;
  }
  for (u32 row = first_row; row < first_row + rows; ++row)
    for (u32 k = 0; k < 16; k += 8)
      f(swizzled(x.span ? x.start + row / 8 * x.stride + row % 8 * x.span + k * 2
                        : x.start + row / 8 * x.stride + row % 8 * 16 + k / 8 * x.leading),
        row, k);
}

// As floats: out[k * pitch + row] of `rows` x 16. `smem` is the block's shared memory.
void gather(const char* smem, const Operand& x, bool mn_major, u32 rows, Half type, float* out, u32 pitch);
// Four registers of one thread (of 128) as its part of a[k * 64 + row].
void scatter_fragment(const u32 (&registers)[4], u32 thread, Half type, float* a);
// d[64][n] += a[16][64] transposed times b[16][n], k in ascending order, each step rounded once.
void multiply_add(float* d, const float* a, const float* b, u32 n);

// Where accumulator i of a thread is in d[64][n].
inline u32 accumulator_place(u32 thread, u32 i, u32 n) {
  const u32 row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + thread % 4 * 2 + i % 2;
  return row * n + column;
}

}  // namespace tessera::sim
