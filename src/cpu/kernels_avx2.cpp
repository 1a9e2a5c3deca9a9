// The CPU kernels for one instruction set; compiled with its flags (cmake/CpuKernels.cmake).
#include "cpu/forward.hpp"
#include "cpu/simd_avx2.hpp"

namespace tessera::cpu {

const Kernels& kernels_avx2() { return Forward<Avx2>::table(); }

}  // namespace tessera::cpu
