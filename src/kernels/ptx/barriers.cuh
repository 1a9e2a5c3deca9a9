// Barriers of a part of the block, and votes of the block. __syncthreads() is barrier 0 with every thread.
// Must not know: tiles, attention.
#pragma once
#include "warp.cuh"

namespace ptx {

// 9.7.13: bar.sync, bar.arrive. Barriers 0 to 15; `threads` is a multiple of 32 and counts those that arrive, too.
PTX void named_barrier_sync(u32 id, u32 threads) {
  INSN(::sim::barrier(id, threads, true), asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"));
}
PTX void named_barrier_arrive(u32 id, u32 threads) {
  INSN(::sim::barrier(id, threads, false), asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"));
}
// 9.7.13: bar.red. A barrier that says, too, whether any of its threads came with `x`.
PTX bool named_barrier_or(u32 id, u32 threads, bool x) {
  INSN(return ::sim::barrier_or(id, threads, x), u32 r; asm volatile(
                  "{\n.reg .pred p, q;\nsetp.ne.u32 p, %3, 0;\nbar.red.or.pred q, %1, %2, p;\nselp.u32 %0, 1, 0, q;\n}"
                  : "=r"(r)
                  : "r"(id), "r"(threads), "r"((u32)x)
                  : "memory");
       return r != 0);
}
// The same, and the assembler knows that all threads get one answer: what a warpgroup decides about its products must
// be voted on so, or it takes the branch for divergent. (The barrier makes the answer one, the vote of the warp tells.)
PTX bool any_thread(bool x, u32 id, u32 threads) { return any(named_barrier_or(id, threads, x)); }
PTX bool syncthreads_or(bool x) { return named_barrier_or(0, blockDim.x, x); }

}  // namespace ptx
