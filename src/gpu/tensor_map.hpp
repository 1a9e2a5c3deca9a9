// A tensor in global memory as the copying unit of sm_90 sees it: what a kernel's tensor_load and tensor_store
// (kernels/ptx/bulk.cuh) move boxes of. An Engine makes the 128 bytes of it that go to the kernel.
// Must not know: attention.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tessera/tensor.hpp"

namespace tessera::gpu {

// 16-byte pieces of a box's rows are exchanged with the row's number in shared memory; rows are as long, or shorter.
enum class TensorSwizzle : std::uint8_t { none = 0, b32 = 32, b64 = 64, b128 = 128 };

struct TensorMapSpec {
  const void* data = nullptr;  // of element (0, 0 ...): a multiple of 16
  DType type = DType::bf16;    // f32, bf16, f16, i32 or u8
  int rank = 0;                // 1 to 5; dimension 0 is the one whose elements stand side by side
  std::uint64_t dims[5] = {};  // 1 to 2^32 elements; a box may stand over the edge, what is outside is zero
  std::uint64_t strides[5] =
      {};                     // in bytes, of dimension 1 and later: multiples of 16, 16 to 2^40 - 16. [0] is not used
  std::uint32_t box[5] = {};  // elements moved at once: 1 to 256; a row (box[0]) is a multiple of 16 bytes
  TensorSwizzle swizzle = TensorSwizzle::none;
};

inline constexpr std::size_t tensor_map_bytes = 128;

// Throws Error(internal) with what is not so, and what is allowed.
void check(const TensorMapSpec& spec);
// Bytes of one box: what a load counts on its mbarrier.
std::size_t box_bytes(const TensorMapSpec& spec);

}  // namespace tessera::gpu
