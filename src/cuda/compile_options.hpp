// How every kernel is compiled, besides its architecture. Part of the names of kernels in caches and packs.
// --ptxas-options=-v makes the assembler report registers, stack and spills, which plans and tests read.
// Must not know: anything else.
#pragma once

namespace tessera::cuda {

inline constexpr const char* compile_options[] = {"--std=c++20", "--ptxas-options=-v"};

}  // namespace tessera::cuda
