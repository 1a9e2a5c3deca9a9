// The sources of src/kernels, as strings. cmake/EmbedShared.cmake makes them.
#pragma once
#include <span>
#include <string_view>

namespace tessera::emit {

struct KernelSource {
  std::string_view name, text;  // "ptx/base.cuh"
};
std::span<const KernelSource> kernel_sources();

}  // namespace tessera::emit
