// How tiles lie in shared memory, in numbers: what the kernel's struct is made of and what a plan counts with. Host and
// device include this one text.
// Must not know: host types, instructions.
#pragma once

// Of member functions; others are PTX (ptx/base.cuh). BOTH: of functions that the host counts with, too.
#define DEVICE __device__ __forceinline__
#ifdef __CUDACC__
#define BOTH static __device__
#else
#define BOTH
#endif

namespace tessera_kernels {

// How a query tile finds its key tiles: as emit::Keys.
enum class Keys { all, bands, runs };

// Elements of a row that the tensor core works on: whole steps of 16.
BOTH constexpr int padded_dim(int dim) { return (dim + 15) / 16 * 16; }

// Columns of V that the warps of a block work on: where two share the rows of Q, each has half of every panel of 64.
BOTH constexpr int columns_of_v(int dim_v, int warps_n) {
  return warps_n == 1 ? padded_dim(dim_v) : (dim_v + 63) / 64 * 64;
}

// Elements from one row to the next, 16-bit types: whole panels of 64, which are 128 bytes, once around the banks.
BOTH constexpr int row_pitch(int dim) { return (dim + 63) / 64 * 64; }
// Where element (row, column) of a tile lies. The eight 16-byte chunks of a panel are exchanged by the row's number:
// eight neighbouring rows, which ldmatrix reads at once, have the same column in eight different groups of banks, and a
// copy of whole panels meets all banks too.
BOTH constexpr int tile_index(int row, int column, int pitch) { return row * pitch + (column ^ ((row & 7) << 3)); }
// Of an element in the first columns of a tile, the one `columns` further on: a constant, whose bits the first columns
// do not have.
BOTH constexpr int columns_on(int index, int columns) { return (index ^ columns % 64) + columns / 64 * 64; }

// Of what a block knows of its work: struct Item, the key tiles to come, and how they are found.
constexpr int item_bytes = 128, entry_ring = 8;
BOTH constexpr int work_bytes(bool runs) { return item_bytes + 4 * entry_ring + (runs ? 32 : 16); }

// Shared memory of a block of the forward kernel. The rows of O leave through the memory of Q.
BOTH constexpr long long forward_shared_bytes(int q_tile, int k_tile, int stages, int dim, int dim_v, bool paged,
                                              int warps_n, bool runs = true) {
  const int widest = dim > dim_v ? dim : dim_v;
  return 4LL * q_tile + 2LL * q_tile * row_pitch(widest) + 2LL * stages * k_tile * (row_pitch(dim) + row_pitch(dim_v)) +
         work_bytes(runs) + (paged ? 32LL * k_tile : 0) + (warps_n > 1 ? q_tile * (2LL * row_pitch(k_tile) + 8) : 0);
}

constexpr int combine_threads = 128;

}  // namespace tessera_kernels
