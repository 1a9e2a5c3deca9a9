// The CPU kernels for one instruction set; compiled with its flags (cmake/CpuKernels.cmake).
#include "cpu/forward.hpp"
#include "cpu/simd_scalar.hpp"

namespace tessera::cpu {

const Kernels& kernels_scalar() { return Forward<Scalar>::table(); }

}  // namespace tessera::cpu
