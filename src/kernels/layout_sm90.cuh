// How tiles lie in shared memory for the tensor core of sm_90, in numbers: what the kernel's struct is made of and what
// a plan counts with. A tile stands in panels of 64 columns, 128 bytes a row, swizzled: as tensor copies write and as
// products of the warpgroup read. Host and device include this one text.
// Must not know: host types, instructions.
#pragma once
#include "layout.cuh"

namespace tessera_kernels {

constexpr int warpgroup_rows = 64, panel_columns = 64;
BOTH constexpr int panels_of(int dim) { return (dim + panel_columns - 1) / panel_columns; }

// What stands beside the tiles (struct Control): barriers, work items, the walks over key tiles.
constexpr int most_stages = 4, most_consumers = 4, item_places = 4, control_bytes = 1296;

// Shared memory of a block: `consumers` warpgroups with `q_buffers` places of queries each, whose rows O leaves
// through.
BOTH constexpr long long shared_bytes_sm90(int consumers, int k_tile, int k_stages, int v_stages, int q_buffers,
                                           int dim, int dim_v) {
  const int panels = panels_of(dim), panels_v = panels_of(dim_v), widest = panels > panels_v ? panels : panels_v;
  const long long rows = (long long)k_tile * (k_stages * panels + v_stages * panels_v) +
                         (long long)q_buffers * consumers * warpgroup_rows * widest;
  return (rows * 2 * panel_columns + control_bytes + 1023) / 1024 * 1024;
}

}  // namespace tessera_kernels
