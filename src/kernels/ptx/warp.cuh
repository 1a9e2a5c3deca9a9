// What the lanes of a warp tell each other. Executed by every lane that `lanes` names: all, unless it says less.
// Must not know: tiles, attention.
#pragma once
#include "arithmetic.cuh"
#include "base.cuh"

namespace ptx {

// 9.7.9: shfl.sync. The value of lane (lane ^ mask), or of lane `from`.
PTX u32 shfl_xor(u32 x, u32 mask, u32 lanes = all_lanes) {
  INSN(return ::sim::shfl(x, mask, true, lanes), u32 r; asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, %3;"
                                                                     : "=r"(r)
                                                                     : "r"(x), "r"(mask), "r"(lanes));
       return r);
}
PTX float shfl_xor(float x, u32 mask, u32 lanes = all_lanes) { return as_float(shfl_xor(as_bits(x), mask, lanes)); }
PTX i32 shfl_xor(i32 x, u32 mask, u32 lanes = all_lanes) { return (i32)shfl_xor((u32)x, mask, lanes); }
PTX u32 shfl_idx(u32 x, u32 from, u32 lanes = all_lanes) {
  INSN(return ::sim::shfl(x, from, false, lanes), u32 r; asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, %3;"
                                                                      : "=r"(r)
                                                                      : "r"(x), "r"(from), "r"(lanes));
       return r);
}
PTX float shfl_idx(float x, u32 from, u32 lanes = all_lanes) { return as_float(shfl_idx(as_bits(x), from, lanes)); }
PTX i32 shfl_idx(i32 x, u32 from, u32 lanes = all_lanes) { return (i32)shfl_idx((u32)x, from, lanes); }

// 9.7.13: vote.sync. One bit of every lane; whether any lane came with `x`; whether all did.
PTX u32 ballot(bool x, u32 lanes = all_lanes) {
  INSN(return ::sim::ballot(x, lanes), u32 r;
       asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\nvote.sync.ballot.b32 %0, p, %2;\n}"
                    : "=r"(r)
                    : "r"((u32)x), "r"(lanes));
       return r);
}
PTX bool any(bool x, u32 lanes = all_lanes) {
  INSN(return ::sim::ballot(x, lanes) != 0, u32 r;
       asm volatile("{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\nvote.sync.any.pred q, p, %2;\nselp.u32 %0, 1, 0, q;\n}"
                    : "=r"(r)
                    : "r"((u32)x), "r"(lanes));
       return r != 0);
}
PTX bool all(bool x, u32 lanes = all_lanes) { return !any(!x, lanes); }

// 10.1: %tid. The thread's number in the block, read anew: what is calculated from it inside a loop stays there and
// holds no register around it.
PTX u32 thread_here() { INSN(return threadIdx.x, u32 r; asm volatile("mov.u32 %0, %%tid.x;" : "=r"(r)); return r); }

// The same for a number that the caller has: multiples of it are made where they are used.
PTX i64 made_here(i64 x) { INSN(return x, asm volatile("" : "+l"(x)); return x); }
PTX i32 made_here(i32 x) { INSN(return x, asm volatile("" : "+r"(x)); return x); }

}  // namespace ptx
