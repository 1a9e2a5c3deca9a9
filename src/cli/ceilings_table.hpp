// The loops that measure an instruction set's ceiling. No inline function may stand here: the files that include it
// have flags of their own, and the linker could keep their copy for everyone.
#pragma once

namespace tessera::cli {

// One instruction set's loop, in a file with its own flags: ceilings_<isa>.cpp.
struct FmaLoop {
  const char* isa;
  double flops_per_round;
  // Runs `rounds` rounds from `seeds`, 512 different floats of magnitude 0.25 to 1; returns a value that depends on all
  // of them.
  float (*run)(const float* seeds, long rounds);
};

extern const FmaLoop fma_loop_scalar, fma_loop_avx2, fma_loop_avx512;

}  // namespace tessera::cli
