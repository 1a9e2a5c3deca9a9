// Asynchronous copies from global to shared memory, for sm_80 and later, and their groups.
// What was copied is there for the thread that issued the copy after its wait, for others after a barrier behind that.
// Must not know: tiles, attention.
#pragma once
#include "base.cuh"

namespace ptx {

// 9.7.9: cp.async. Writes 16, 8 or 4 bytes to shared memory: the first `bytes` of them from `src`, zeros after that.
// Both addresses are multiples of the width, whatever `bytes` is; with 0, `src` is not read. Sixteen bytes go past L1.
PTX void cp_async16(void* dst, const void* src, u32 bytes = 16) {
  INSN(::sim::cp_async(dst, src, 16, bytes),
       asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem(dst)), "l"(src), "r"(bytes)
                    : "memory"));
}
PTX void cp_async8(void* dst, const void* src, u32 bytes = 8) {
  INSN(::sim::cp_async(dst, src, 8, bytes),
       asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(smem(dst)), "l"(src), "r"(bytes)
                    : "memory"));
}
PTX void cp_async4(void* dst, const void* src, u32 bytes = 4) {
  INSN(::sim::cp_async(dst, src, 4, bytes),
       asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(smem(dst)), "l"(src), "r"(bytes)
                    : "memory"));
}
// 9.7.9: cp.async.commit_group, cp.async.wait_group. Waits until at most `Left` of this thread's groups are on their
// way.
PTX void cp_async_commit() { INSN(::sim::cp_async_commit(), asm volatile("cp.async.commit_group;" ::: "memory")); }
template <int Left>
PTX void cp_async_wait() {
  INSN(::sim::cp_async_wait(Left), asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory"));
}

}  // namespace ptx
