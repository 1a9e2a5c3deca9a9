// The warpgroup's tensor core, for sm_90: products of 64 x N x 16 that four warps ask for together and that run by
// themselves. The order is: write registers and shared memory; fence_async() and a barrier where threads wrote shared
// memory; wgmma_fence(); products; wgmma_commit(); wgmma_wait<...>(accumulators).
// From the product to the wait its accumulators, its A in registers and the shared memory that it reads belong to it:
// accumulators and A are named local arrays that stay where they are. All decisions about products must be the same in
// all four warps: vote by any_thread() (barriers.cuh), which the assembler takes for uniform. D 64 x N, thread t of the
// warpgroup, with g = t % 32 / 4: d[4 j + 2 h + e] is row t / 32 * 16 + g + 8 h, column 8 j + t % 4 * 2 + e. A from
// registers, 64 x 16: a[2 j + h] holds row t / 32 * 16 + g + 8 h, k 8 j + t % 4 * 2 and the next: two neighbouring
// groups of four accumulators, packed, are an A. The products themselves are emitted for the forms that a kernel uses
// (emit/wgmma_text.hpp). Must not know: attention.
#pragma once
#include "base.cuh"

namespace ptx {

// How the rows of an operand in shared memory lie: along k (rows are m or n), or along m or n (rows are k).
enum class Major : u8 { k, mn };
// 16-byte pieces of a row are exchanged with the row's number in units of so many bytes; the code in descriptors.
enum class Swizzle : u8 { none = 0, b128 = 1, b64 = 2, b32 = 3 };

// 9.7.15: matrix descriptors. `base` is a multiple of 16 (with a swizzle, what advances lie within is aligned to 8
// rows: 1024 bytes for b128). With 128-byte swizzle a row has 64 halves (128 bytes) and 8 rows are one atom of 1024
// bytes:
//   Major::k   stride: from 8 rows of m or n to the next 8 (1024 where they follow each other); leading: not used.
//              16 k further: advance by 32 bytes; 64 k further: another panel.
//   Major::mn  leading: from 64 columns of m or n to the next 64 (a panel); stride: from 8 k to the next 8 (1024).
//              16 k further: advance by 2048 bytes.
PTX u64 wgmma_descriptor(const void* base, u32 leading_bytes, u32 stride_bytes = 1024,
                         Swizzle swizzle = Swizzle::b128) {
  return (u64)swizzle << 62 | (u64)(stride_bytes >> 4) << 32 | (u64)(leading_bytes >> 4) << 16 |
         (u64)((smem(base) & 0x3ffffu) >> 4);
}
// The operand that lies `bytes` further on, a multiple of 16.
PTX u64 wgmma_advance(u64 descriptor, u32 bytes) { return descriptor + bytes / 16; }

// 9.7.15: wgmma.fence. Before the first product, and whenever registers of a product (accumulators, A) were written by
// other instructions. Before each group that follows a branch, too: else the assembler waits between products.
PTX void wgmma_fence() { INSN(::sim::wgmma_fence(), asm volatile("wgmma.fence.sync.aligned;" ::: "memory")); }
// 9.7.15: wgmma.commit_group. What this warp has asked for since the last one becomes a group.
PTX void wgmma_commit() { INSN(::sim::wgmma_commit(), asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")); }

// The compiler does not know that a product writes its accumulators after the instruction that names them. A pin keeps
// whatever uses a register from being moved across this point.
PTX void pin(float& x) { INSN((void)x, asm volatile("" : "+f"(x)::"memory")); }
PTX void pin(u32& x) { INSN((void)x, asm volatile("" : "+r"(x)::"memory")); }
template <class T, int Count>
PTX void pin(T (&x)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) pin(x[i]);
}

// 9.7.15: wgmma.wait_group. Waits until at most `Left` of this warp's groups are on their way, and pins the
// accumulators that can be read from now on.
template <int Left>
PTX void wgmma_wait() {
  INSN(::sim::wgmma_wait(Left, nullptr, 0), asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory"));
}
template <int Left, int Count>
PTX void wgmma_wait(float (&ready)[Count]) {
  INSN(::sim::wgmma_wait(Left, ready, Count), asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left)
                                                           : "memory");
       pin(ready));
}

// Keeps the assembler from moving what comes after (a wait above all) before the calculation of x and y, both at least
// 0 or NaN: a store that depends on them and never happens. A trap in its place would make all products wait for each
// other.
PTX void order_after(float x, float y) {
  INSN((void)(x + y), asm volatile("{\n.reg .pred p;\n.reg .f32 t;\n.reg .b32 a;\nmov.b32 a, 0;\nadd.f32 t, %0, %1;\n"
                                   "setp.lt.f32 p, t, 0fBF800000;\n@p st.shared.f32 [a], t;\n}" ::"f"(x),
                                   "f"(y)
                                   : "memory"));
}

// 9.7.15: wgmma.mma_async. D (64 x N) = A (64 x 16) B (16 x N), plus D if `accumulate`; halves multiplied exactly,
// summed in float. N is twice the count of accumulators: 8 to 256, a multiple of 8. A comes from shared memory by a
// descriptor, or from four registers, which must stay as they are until the wait. B comes from shared memory.
template <class Element, int N, bool a_in_registers, Major a_major, Major b_major>
struct Product;
template <class Element, Major b_major, Major a_major = Major::k, int Count>
PTX void wgmma(float (&d)[Count], u64 a, u64 b, bool accumulate) {
  Product<Element, 2 * Count, false, a_major, b_major>::start(d, a, b, accumulate);
}
template <class Element, Major b_major, int Count>
PTX void wgmma(float (&d)[Count], const u32* a, u64 b, bool accumulate) {
  Product<Element, 2 * Count, true, Major::k, b_major>::start(d, a, b, accumulate);
}

}  // namespace ptx
