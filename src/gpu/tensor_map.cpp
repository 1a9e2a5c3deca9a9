#include "gpu/tensor_map.hpp"

#include "problem/fail.hpp"

namespace tessera::gpu {

using problem::fail;

void check(const TensorMapSpec& s) {
  const auto address = reinterpret_cast<std::uintptr_t>(s.data);
  if (s.type != DType::bf16 && s.type != DType::f16 && s.type != DType::f32 && s.type != DType::i32 &&
      s.type != DType::u8)
    fail(Code::internal, "a tensor map of ", s.type, ": f32, bf16, f16, i32 and u8 are possible");
  if (s.rank < 1 || s.rank > 5) fail(Code::internal, "a tensor map of ", s.rank, " dimensions: 1 to 5 are possible");
  if (address % 16 != 0)
    fail(Code::internal, "a tensor map of data at an address that is ", address % 16, " past a multiple of 16");
  for (int i = 0; i < s.rank; ++i) {
    if (s.dims[i] < 1 || s.dims[i] > std::uint64_t{1} << 32)
      fail(Code::internal, "dimension ", i, " of a tensor map is ", s.dims[i], ": 1 to 2^32 are possible");
    if (s.box[i] < 1 || s.box[i] > 256)
      fail(Code::internal, "dimension ", i, " of a tensor map's box is ", s.box[i], ": 1 to 256 are possible");
    if (i > 0 && (s.strides[i] % 16 != 0 || s.strides[i] < 16 || s.strides[i] >= std::uint64_t{1} << 40))
      fail(Code::internal, "stride ", i, " of a tensor map is ", s.strides[i],
           " bytes: multiples of 16 from 16 to 2^40 - 16 are possible");
  }
  const std::size_t row = s.box[0] * static_cast<std::size_t>(size_bytes(s.type));
  if (row % 16 != 0)
    fail(Code::internal, "a row of a tensor map's box is ", row, " bytes: multiples of 16 are possible");
  const auto span = static_cast<std::size_t>(s.swizzle);
  if (span > 0 && row > span)
    fail(Code::internal, "a row of a tensor map's box is ", row, " bytes, its swizzle exchanges within ", span);
}

std::size_t box_bytes(const TensorMapSpec& s) {
  std::size_t bytes = static_cast<std::size_t>(size_bytes(s.type));
  for (int i = 0; i < s.rank; ++i) bytes *= s.box[i];
  return bytes;
}

}  // namespace tessera::gpu
