// What the emulated GPU makes of a tensor map, and what its copying unit reads: 128 bytes, like the hardware's, of
// which kernels know nothing else. Must not know: fibers, schedules.
#pragma once
#include <cstddef>
#include <cstdint>

#include "gpu/tensor_map.hpp"

namespace tessera::sim {

struct alignas(64) EncodedMap {
  static constexpr std::uint64_t is_one = 0x70616d2d6d6973ull;
  std::uint64_t mark = 0;  // is_one; anything else in its place is no map
  char* data = nullptr;
  std::uint64_t dims[5] = {}, strides[5] = {};  // strides in bytes, [0] of an element
  std::uint16_t box[5] = {};                    // 1 beyond the rank, as in dims
  std::uint8_t rank = 0, element_bytes = 0, swizzle = 0;

  std::uint32_t row_bytes() const { return std::uint32_t{box[0]} * element_bytes; }
  std::uint32_t rows() const { return std::uint32_t{box[1]} * box[2] * box[3] * box[4]; }
  std::uint32_t bytes() const { return row_bytes() * rows(); }
};
static_assert(sizeof(EncodedMap) == gpu::tensor_map_bytes);

EncodedMap encoded(const gpu::TensorMapSpec& spec);

}  // namespace tessera::sim
