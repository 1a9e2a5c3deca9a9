// Arrays of any framework as the library's views, and outputs in the framework that the inputs come from: by DLPack,
// without a copy. Must not know: attention, masks.
#pragma once
#include <nanobind/nanobind.h>

#include <span>
#include <vector>

#include "tessera/tensor.hpp"

namespace tessera::python {

namespace nb = nanobind;

// The stream on which the framework of `like` works on a CUDA device: torch's and CuPy's current one; of others, and on
// the CPU, the default stream. DLPack asks every producer to make its arrays ready there.
void* stream_of(nb::handle like, const Device& device);

// A view, and what keeps its memory alive while the call runs.
class Array {
 public:
  Array() = default;
  // What: torch, NumPy, JAX, CuPy .. arrays, anything with __dlpack__ or a buffer; None is no array. `name` is for the
  // errors. `stream`: where the call will run, for arrays on a CUDA device. Throws Error(invalid_dtype) for element
  // types and TypeError for objects that are no arrays.
  Array(nb::handle what, const char* name, void* stream = nullptr, bool writable = false);
  const Tensor& view() const { return view_; }

 private:
  Tensor view_{};
  nb::object owner_{};
};

// What: tracked by torch's autograd. Such inputs are refused while it records: there is no backward pass yet.
bool records_gradients(nb::handle what);

// The same view with axes 1 and 2 exchanged: [b, tokens, heads, d] of [b, heads, tokens, d] and back.
Tensor exchanged(Tensor view);

// How an output [batch, tokens, heads, dim] is handed out: as it is, or with heads before tokens; and then with tokens
// or heads further out in memory (frameworks other than torch and NumPy: heads, for they may not take strides).
enum class Layout { tokens_first, heads_first, heads_first_of_tokens_first };

// An array of the same framework as `like`, on `device`, not initialised. finish() is the object for the caller, made
// after the values are written: some frameworks promise that an array never changes. On CUDA devices those are refused:
// torch and CuPy know the stream on which their arrays are written.
class Fresh {
 public:
  Fresh(nb::handle like, const Device& device, DType dtype, std::span<const std::int64_t> shape,
        Layout layout = Layout::tokens_first);
  const Tensor& view() const { return view_; }
  nb::object finish();

 private:
  void made_by(nb::handle like, bool torch, DType dtype, std::span<const std::int64_t> extent, bool exchange);
  Tensor view_{};
  nb::object object_{};   // the framework made it
  nb::object convert_{};  // or: makes the framework's array of ours
};

DType dtype_of(nb::handle what, const char* name);  // "f32", torch.float32, numpy dtypes ..

}  // namespace tessera::python
