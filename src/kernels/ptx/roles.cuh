// Warps with different tasks, for sm_90: registers that one warpgroup hands to another, one lane that acts for its
// warp, and values that the assembler may take for the same in all lanes. Must not know: tiles, attention.
#pragma once
#include "warp.cuh"

namespace ptx {

// 9.7.19: setmaxnreg. Registers of each thread from now on, a multiple of 8 from 24 to 256; by every warp of a
// warpgroup. A block has what it was launched with (registers of the kernel x threads): who asks for more than others
// have given waits, for ever if they never do.
template <int Count>
PTX void registers_lower() {
  INSN(::sim::setmaxnreg(Count, false), asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count)));
}
template <int Count>
PTX void registers_raise() {
  INSN(::sim::setmaxnreg(Count, true), asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count)));
}

// 9.7.13: elect.sync. True in one lane of the warp. By all lanes.
PTX bool elect() {
  INSN(return ::sim::elect(), u32 r;
       asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}"
                    : "=r"(r));
       return r != 0);
}

// A value that is the same in all lanes, so that the assembler knows it. By all lanes.
PTX i32 uniform(i32 x) { return shfl_idx(x, 0); }
PTX u32 uniform(u32 x) { return shfl_idx(x, 0); }

}  // namespace ptx
