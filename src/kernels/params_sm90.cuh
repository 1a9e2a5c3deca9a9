// What a launch hands to the kernel of sm_90 beside ForwardParams: which block does what. Host and device include this
// one text. Must not know: host types, instructions.
#pragma once
#include "params.cuh"

namespace tessera_kernels {

// The blocks of a launch live until all work is done. Block b has the items list[begin[b]] to list[begin[b + 1] - 1];
// without a list the items b, b + blocks, b + 2 * blocks ... Items are counted as blocks of the Ampere-class kernel.
struct Deal {
  const unsigned* list;
  const unsigned* begin;  // [blocks + 1]
  // Without a list, where sequences differ in length: the query tiles [f.tiles] of a unit of heads, long ones first,
  // and how many units are worked on at once, each tile by all of them; or null.
  const i64* order;
  unsigned units;
  // What tensor maps know of heads and sequences: 0 where all of them share their rows (a stride of 0), else 1.
  int q_head, q_batch, k_head, k_batch, v_head, v_batch;
};

}  // namespace tessera_kernels
