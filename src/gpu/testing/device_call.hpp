// A call with tensors that are said to lie on device 0. Their memory is address space that nothing stands behind.
#pragma once
#include <cstdint>
#include <string>

#include "tessera/attention.hpp"

namespace tessera::tests {

struct DeviceCall {
  std::int64_t batch = 1, queries = 1, keys = 1, heads_q = 1, heads_kv = 1, dim = 64, dim_v = 64;
  DType dtype = bf16, out = bf16;
  bool lse = false;
  std::int64_t shift_bytes = 0;  // of every address, off a boundary of 256 bytes

  void* address(int which) const {
    return reinterpret_cast<void*>((std::uintptr_t{1} << 40) * static_cast<unsigned>(which + 1) +
                                   static_cast<std::uintptr_t>(shift_bytes));
  }
  Tensor rows(int which, DType type, std::int64_t tokens, std::int64_t heads, std::int64_t width) const {
    return tensor(address(which), type, {batch, tokens, heads, width}, {}, {DeviceType::cuda, 0});
  }
  Inputs inputs() const {
    return {.q = rows(0, dtype, queries, heads_q, dim),
            .k = rows(1, dtype, keys, heads_kv, dim),
            .v = rows(2, dtype, keys, heads_kv, dim_v)};
  }
  Outputs outputs() const {
    Outputs made{.o = rows(3, out, queries, heads_q, dim_v)};
    if (lse) made.lse = tensor(address(4), f32, {batch, heads_q, queries}, {}, {DeviceType::cuda, 0});
    return made;
  }
  Problem problem(const Options& options = {}) const { return describe(inputs(), outputs(), options); }
};

}  // namespace tessera::tests
