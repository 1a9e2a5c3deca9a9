// The text of the example of docs/adding-a-kernel.md.
#pragma once
#include "gpu/engine.hpp"
#include "sim/sources.hpp"

namespace tessera::sim {

inline gpu::KernelText row_dots_text() {
  gpu::KernelText t;
  t.name = "row_dots_bf16";
  t.spec = "dot products of rows, bf16";
  t.source = inlined("#include \"sim/row_dots.cuh\"\n") +
             "extern \"C\" __global__ void __launch_bounds__(128) row_dots_bf16(const __grid_constant__ "
             "row_dots::Params p) {\n  row_dots::kernel(p);\n}\n";
  t.threads = 128;
  t.smem_bytes = 4 * 2 * 2 * 256 * 2;
  return t;
}

}  // namespace tessera::sim
