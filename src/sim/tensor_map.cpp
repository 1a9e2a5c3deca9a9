#include "sim/tensor_map.hpp"

namespace tessera::sim {

EncodedMap encoded(const gpu::TensorMapSpec& spec) {
  gpu::check(spec);
  EncodedMap map;
  map.mark = EncodedMap::is_one;
  map.data = static_cast<char*>(const_cast<void*>(spec.data));
  map.rank = std::uint8_t(spec.rank);
  map.element_bytes = std::uint8_t(size_bytes(spec.type));
  map.swizzle = std::uint8_t(spec.swizzle);
  for (int i = 0; i < 5; ++i) {
    map.dims[i] = i < spec.rank ? spec.dims[i] : 1;
    map.box[i] = std::uint16_t(i < spec.rank ? spec.box[i] : 1);
    map.strides[i] = i == 0 ? map.element_bytes : i < spec.rank ? spec.strides[i] : 0;
  }
  return map;
}

}  // namespace tessera::sim
