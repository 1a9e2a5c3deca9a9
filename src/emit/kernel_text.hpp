// From a kernel spec to the complete text of the kernel: the embedded sources of src/kernels in the order of their
// includes, the emitted mods, the spec as constants, and the entry. The same text goes to NVRTC and, behind the
// emulated GPU's own header, to the host's compiler; it includes nothing. Must not know: devices, drivers, data.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "emit/kernel_spec.hpp"
#include "emit/mod_text.hpp"

namespace tessera::emit {

// One kernel as text, complete: compiled as it stands, without any header.
struct KernelText {
  std::string name;            // of the one extern "C" __global__ function
  std::string spec;            // the printed spec: a line for people, and part of the key of the cache
  std::string source;          // `Params` in it is the type of the function's one parameter
  int threads = 0;             // of a block
  std::size_t smem_bytes = 0;  // dynamic shared memory of a block
};

// Throw Error(internal) for a spec that no kernel can be made of. Equal specs give equal texts.
KernelText forward_text(const ForwardSpec& spec);
// Merges the partial results of such a forward kernel, spec.split, in the order of the splits. The same parameters; one
// block for each (query tile, unit of heads).
KernelText combine_text(const ForwardSpec& spec);

// What a launch hands over, `Params`: ForwardParams (kernels/params.cuh), then the arguments of the score change, then
// those of the mask, as pack_arguments() makes them with mod_options() and mask_options().
// Class 90: then a Deal (kernels/params_sm90.cuh), then the tensor maps of q, k, v and o, map_bytes each.
inline constexpr std::size_t map_bytes = 128;
std::size_t forward_param_bytes(const ForwardSpec& spec);
std::size_t deal_param_at(const ForwardSpec& spec);
std::size_t map_params_at(const ForwardSpec& spec);
ModOptions mod_options(const ForwardSpec& spec);
ModOptions mask_options(const ForwardSpec& spec);  // a mask that compares reals is decided in fp64, as on the host

// What a text begins with: its spec, for people, and no warnings of what it holds and does not use.
std::string text_head(const KernelText& text);

// A source of src/kernels ("forward_sm80.cuh", "ptx/base.cuh") with all that it includes, each once, and no #include
// left. Throws Error(internal) for a name that is not there.
std::string kernel_source(std::string_view name);

}  // namespace tessera::emit
