// Barriers in shared memory, for sm_90: threads arrive at them, asynchronous copies count their bytes down on them, and
// others wait for a phase to end. A phase ends when all arrivals that the barrier was made for have come and all bytes
// that were expected have landed; the next phase begins at once.
// Who waits names the parity of the phase: 0 for the first, 1 for the second, 0 for the third ... A wait for parity 1
// at a fresh barrier passes at once, as if a phase had ended before the first. The default forms of arrive and wait are
// the ones to use: those with .cluster cost a fence of the whole GPU each. Must not know: tiles, attention.
#pragma once
#include "base.cuh"

namespace ptx {

struct alignas(8) MBarrier {
  u64 state;
};

// 9.7.13: mbarrier.init. By one thread, before anyone else uses it; then mbarrier_init_fence() in the same thread, then
// a barrier of the block.
PTX void mbarrier_init(MBarrier& b, u32 arrivals) {
  INSN(::sim::mbarrier_init(&b, arrivals),
       asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(&b)), "r"(arrivals)
                    : "memory"));
}
// 9.7.13: fence.mbarrier_init. What was initialised is so for asynchronous copies, too.
PTX void mbarrier_init_fence() {
  INSN(::sim::mbarrier_init_fence(), asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"));
}
// 9.7.13: mbarrier.inval. The barrier ends: its memory may be used for something else.
PTX void mbarrier_invalidate(MBarrier& b) {
  INSN(::sim::mbarrier_invalidate(&b), asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(smem(&b)) : "memory"));
}

// 9.7.13: mbarrier.arrive. Releases what this thread did before. `count` arrivals at once: 1 and more.
PTX void mbarrier_arrive(MBarrier& b) {
  INSN(::sim::mbarrier_arrive(&b, 1, 0), asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem(&b))
                                                      : "memory"));
}
PTX void mbarrier_arrive(MBarrier& b, u32 count) {
  INSN(::sim::mbarrier_arrive(&b, count, 0),
       asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(smem(&b)), "r"(count)
                    : "memory"));
}
// 9.7.13: mbarrier.arrive.expect_tx. The phase waits for `bytes` more of asynchronous copies, and this thread arrives.
PTX void mbarrier_arrive_expect(MBarrier& b, u32 bytes) {
  INSN(::sim::mbarrier_arrive(&b, 1, bytes),
       asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(&b)), "r"(bytes)
                    : "memory"));
}
// 9.7.13: mbarrier.expect_tx. The same without an arrival.
PTX void mbarrier_expect(MBarrier& b, u32 bytes) {
  INSN(::sim::mbarrier_arrive(&b, 0, bytes),
       asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(smem(&b)), "r"(bytes)
                    : "memory"));
}
// 9.7.13: cp.async.mbarrier.arrive.noinc. An arrival that comes when all cp.async copies that this thread has begun so
// far have landed. What they wrote is the thread's own writing: a product of the warpgroup that reads it needs
// fence_async() between.
PTX void cp_async_mbarrier_arrive(MBarrier& b) {
  INSN(::sim::cp_async_mbarrier_arrive(&b),
       asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem(&b))
                    : "memory"));
}

// 9.7.13: mbarrier.try_wait. Returns when the phase of this parity has ended, and acquires what was released in it.
PTX void mbarrier_wait(MBarrier& b, u32 parity) {
  INSN(::sim::mbarrier_wait(&b, parity),
       asm volatile("{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\n"
                    "bra AGAIN;\nDONE:\n}" ::"r"(smem(&b)),
                    "r"(parity)
                    : "memory"));
}
// 9.7.13: mbarrier.test_wait. Whether it has ended, without waiting.
PTX bool mbarrier_test(MBarrier& b, u32 parity) {
  INSN(return ::sim::mbarrier_test(&b, parity), u32 r;
       asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                    : "=r"(r)
                    : "r"(smem(&b)), "r"(parity)
                    : "memory");
       return r != 0);
}

}  // namespace ptx
