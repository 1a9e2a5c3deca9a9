// The warp's tensor core, for sm_80 and later: fragments from shared memory, and products of them. All lanes take part.
// Fragments of m16n8k16, with g = lane / 4 and t = lane % 4; a register holds two neighbouring k or n:
//   A 16 x 16: a[0] row g, k 2t; a[1] row g + 8; a[2] row g, k 2t + 8; a[3] row g + 8, k 2t + 8
//   B 16 x 8:  b0 k 2t, column g; b1 k 2t + 8
//   D 16 x 8:  d[0], d[1] row g, columns 2t, 2t + 1; d[2], d[3] row g + 8
// Must not know: tiles, attention.
#pragma once
#include "base.cuh"

namespace ptx {

// 9.7.14: ldmatrix. Lane l names row l % 8 (16 bytes, 16-aligned) of matrix l / 8; with fewer than four matrices, the
// addresses of the other lanes are not used. Of matrix i, r[i] gets row g, elements 2t and 2t + 1; transposed: column
// g.
PTX void ldmatrix_x1(u32& r, const void* row) {
  INSN(r = ::sim::ldmatrix(row, 1, false).v[0], asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                                                             : "=r"(r)
                                                             : "r"(smem(row))
                                                             : "memory"));
}
PTX void ldmatrix_x1_trans(u32& r, const void* row) {
  INSN(r = ::sim::ldmatrix(row, 1, true).v[0], asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                                                            : "=r"(r)
                                                            : "r"(smem(row))
                                                            : "memory"));
}
PTX void ldmatrix_x2(u32 (&r)[2], const void* row) {
  INSN(const ::sim::Reg4 x = ::sim::ldmatrix(row, 2, false); r[0] = x.v[0];
       r[1] = x.v[1], asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                                   : "=r"(r[0]), "=r"(r[1])
                                   : "r"(smem(row))
                                   : "memory"));
}
PTX void ldmatrix_x2_trans(u32 (&r)[2], const void* row) {
  INSN(const ::sim::Reg4 x = ::sim::ldmatrix(row, 2, true); r[0] = x.v[0];
       r[1] = x.v[1], asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                                   : "=r"(r[0]), "=r"(r[1])
                                   : "r"(smem(row))
                                   : "memory"));
}
PTX void ldmatrix_x4(u32 (&r)[4], const void* row) {
  INSN(const ::sim::Reg4 x = ::sim::ldmatrix(row, 4, false);
       for (int i = 0; i < 4; ++i) r[i] = x.v[i],
       asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                    : "r"(smem(row))
                    : "memory"));
}
PTX void ldmatrix_x4_trans(u32 (&r)[4], const void* row) {
  INSN(const ::sim::Reg4 x = ::sim::ldmatrix(row, 4, true);
       for (int i = 0; i < 4; ++i) r[i] = x.v[i],
       asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                    : "r"(smem(row))
                    : "memory"));
}

// 9.7.14: stmatrix, for sm_90. The other way: register r[i] of lane l goes to row l / 4 of matrix i, elements 2 (l % 4)
// and the next; transposed: to column l / 4. Lane l names row l % 8 of matrix l / 8.
PTX void stmatrix_x2(void* row, u32 r0, u32 r1) {
  INSN(::sim::stmatrix(row, 2, false, {{r0, r1, 0, 0}}),
       asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(smem(row)), "r"(r0), "r"(r1)
                    : "memory"));
}
PTX void stmatrix_x4(void* row, u32 r0, u32 r1, u32 r2, u32 r3) {
  INSN(::sim::stmatrix(row, 4, false, {{r0, r1, r2, r3}}),
       asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem(row)), "r"(r0),
                    "r"(r1), "r"(r2), "r"(r3)
                    : "memory"));
}
PTX void stmatrix_x4_trans(void* row, u32 r0, u32 r1, u32 r2, u32 r3) {
  INSN(::sim::stmatrix(row, 4, true, {{r0, r1, r2, r3}}),
       asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem(row)), "r"(r0),
                    "r"(r1), "r"(r2), "r"(r3)
                    : "memory"));
}

// 9.7.14: mma.m16n8k16. D += A B, halves multiplied exactly, summed in float (in an order of the hardware's own).
PTX void mma_m16n8k16_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  INSN(::sim::mma_m16n8k16(d, a, b0, b1, ::sim::Half::bf16),
       asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                    "{%0, %1, %2, %3};"
                    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}
PTX void mma_m16n8k16_f16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  INSN(::sim::mma_m16n8k16(d, a, b0, b1, ::sim::Half::f16),
       asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                    "{%0, %1, %2, %3};"
                    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}

}  // namespace ptx
