// The CPU kernels for one instruction set; compiled with its flags (cmake/CpuKernels.cmake).
#include "cpu/forward.hpp"
#include "cpu/simd_avx512.hpp"

namespace tessera::cpu {

const Kernels& kernels_avx512() { return Forward<Avx512>::table(); }

}  // namespace tessera::cpu
