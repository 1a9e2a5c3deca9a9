// What goes wrong and how it is told: one exception type, one list of codes, one status.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

#define TESSERA_API_NAMESPACE v1

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {

// The same numbers serve the exception, the status and (later) the C interface. Never renumber.
enum class Code : int {
  ok = 0,
  null_pointer = 1,          // a tensor without data where data is needed
  invalid_shape = 2,         // ranks, extents, heads that do not divide, dims that disagree
  invalid_dtype = 3,         // a type that is unknown, mixed or not allowed here
  invalid_stride = 4,        // last stride not 1, misaligned pointer, an output that writes one place twice
  invalid_packing = 5,       // prefix sums that decrease, start off 0 or pass the end
  overlap = 6,               // an output shares memory with an input or another output
  size_overflow = 7,         // a product of extents or strides that leaves 63 bits
  invalid_option = 8,        // a scale, window, thread count ... outside what is allowed
  invalid_mod = 9,           // a mask or score change that does not type-check
  parse = 10,                // text that is no mask or score change
  unsupported = 11,          // a valid problem that the pinned (or any) backend cannot do
  workspace_too_small = 12,  // a workspace below plan.workspace_bytes(), or misaligned
  io = 13,                   // a file that cannot be read or is not what it claims
  plan_mismatch = 14,        // tensors that are not those the plan was made for
  out_of_memory = 15,
  invalid_device = 16,  // tensors of one call on different devices
  invalid_pages = 17,   // lengths or block-table entries outside of what there is
  internal = 99,
};

std::string_view name(Code code);

// Every failure of the library. what() says what was given, what is allowed and what to do.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& text) : std::runtime_error(text), code_(code) {}
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

// What the try_ forms return instead of throwing.
struct Status {
  Code code = Code::ok;
  std::string text;
  explicit operator bool() const noexcept { return code == Code::ok; }
};

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
