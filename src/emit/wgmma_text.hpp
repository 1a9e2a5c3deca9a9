// Products of the warpgroup's tensor core as text: one function for each form that a kernel uses, since an instruction
// names each of its registers. They stand behind kernels/ptx/wgmma.cuh, whose ptx::wgmma() calls them.
// Must not know: kernels, tiles.
#pragma once
#include <span>
#include <string>

#include "tessera/tensor.hpp"

namespace tessera::emit {

// D (64 x n) += A (64 x 16) B (16 x n).
struct WgmmaForm {
  DType type = DType::bf16;     // of A and B: bf16 or f16
  int n = 64;                   // columns of D: 8 to 256, a multiple of 8; n / 2 accumulators a thread
  bool a_in_registers = false;  // or in shared memory
  bool a_mn_major = false;      // in shared memory: rows of 64 m; else rows of k
  bool b_mn_major = false;
  auto operator<=>(const WgmmaForm&) const = default;
};

// Each form once, in an order of its own. Throws Error(internal) for a form that the hardware does not have.
std::string wgmma_text(std::span<const WgmmaForm> forms);

}  // namespace tessera::emit
