// What a kernel is specialised for: a value that prints, compares and keys the cache. From it and the mods' graphs
// kernel_text() makes the complete text.
// Must not know: devices, drivers, data.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "mods/graph.hpp"

namespace tessera::emit {

// How a query tile finds its key tiles.
enum class Keys : std::uint8_t {
  all,    // every key
  bands,  // distances k - q, computed in the kernel; `bands` of them
  runs,   // a work list of full and partial key tiles
};

struct ForwardSpec {
  int arch = 80;  // the class of kernel, not of device: an Ampere-class kernel runs on all later ones
  DType dtype = DType::bf16, out_dtype = DType::bf16;  // of q, k, v; of o
  int dim = 64, dim_v = 64;                            // as given; padded inside
  int q_tile = 128, k_tile = 64;                       // rows (query, head) and keys of a tile
  int warps = 4, stages = 2;  // stages: places in shared memory for tiles of keys and values, 1 to 4
  int blocks = 1;             // of a multiprocessor, which the compiler keeps registers for
  bool q_registers = false;   // a warp holds its queries in registers: small dims
  int warps_n = 1;            // warps that share rows, each with its part of the keys and of the output's columns
  // The softmax is relative to the largest score of a row's first tile (kernels/softmax.cuh): bf16 with 16-bit results.
  bool fixed = false;
  int early = 3;  // steps of 16 keys that are exponentiated before a tile's products with values begin
  // Class 90: warps consume, in warpgroups of 64 rows; `stages` are those of keys.
  int v_stages = 2, q_buffers = 2;
  bool ping_pong = true;  // warpgroups take turns at the tensor core
  bool turned = false;    // the scale is 0 or below, and scores are not changed
  // Bytes that pointers and strides allow at a time: 16, 8, 4, 2.
  int q_copy = 16, k_copy = 16, v_copy = 16, o_copy = 16;
  int heads = 1;         // query heads of a group that share a tile; row = query * heads + head
  bool packed = false;   // sequences by prefix sums
  bool paged = false;    // keys and values through a block table
  int page_box = 0;      // class 90, in pages: keys that a tensor copy moves at once; 1: row by row
  bool lengths = false;  // keys in use given for each sequence
  Keys keys = Keys::all;
  int bands = 0;
  bool left_open = false;  // bands without a lower end: keys are compared with the upper one alone
  bool split = false;      // partial results, for combine
  bool lse = false, sinks = false;
  Graph score{}, mask{};                             // empty: none; the mask only where bands do not describe it
  std::vector<DType> score_dtypes{}, mask_dtypes{};  // of the captured tensors, in order
  // Positions lie within emit::nearby (mod_text.hpp) and both mods fits_narrow(): coordinates have 32 bits.
  bool narrow = false;
  bool absolute_tanh = false;  // takes_absolute_tanh(score) (mod_errors.hpp)
  bool operator==(const ForwardSpec&) const = default;
};
std::ostream& operator<<(std::ostream& out, const ForwardSpec& spec);  // one line, all that the text depends on

}  // namespace tessera::emit
