#include "problem/view.hpp"

#include <bit>
#include <string>

#include "problem/fail.hpp"
#include "problem/layout.hpp"

namespace tessera::problem {
namespace {

std::string axes_text(const View& view, int rank) {
  std::string text = "[";
  for (int axis = 0; axis < rank; ++axis) text.append(axis ? ", " : "").append(view.axes[axis]);
  return text + "]";
}

bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }
bool is_index(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }

}  // namespace

// ------------------------------------------------------------------------------------------------ one tensor alone

bool is_given(const char* name, const Tensor& t) {
  if (t.defined()) return true;
  if (t.data || t.rank != 0)
    fail(Code::invalid_dtype, name,
         " has an address or a shape but no type: make it by tensor(), or leave it out whole");
  return false;
}

void require_given(const char* name, const Tensor& t) {
  if (!is_given(name, t)) fail(Code::null_pointer, name, " is missing: it has no type, no shape and no data");
}

void check_extents(const View& view, unsigned least) {
  for (int axis = 0; axis < view->rank; ++axis) {
    const std::int64_t extent = view.extent(axis), lowest = (least >> axis) & 1u;
    if (extent < lowest)
      fail(Code::invalid_shape, view.name, " has ", view.axes[axis], " ", extent, ": ", lowest, " or more is allowed (",
           *view, ")");
  }
}

void check_float(const View& view) {
  if (!is_float(view->dtype))
    fail(Code::invalid_dtype, view.name, " is ", view->dtype, ": f32, bf16 and f16 are allowed");
}

void check_memory(View& view) {
  const Tensor& t = *view;
  for (int axis = 0; axis < t.rank; ++axis)
    if (t.stride[axis] < 0 && t.shape[axis] > 1)
      fail(Code::invalid_stride, view.name, " has stride ", t.stride[axis], " over its ", view.axes[axis],
           ": 0 or more is allowed; copy a reversed view");
  const std::optional<std::int64_t> reach = reach_bytes(t);
  if (!reach)
    fail(Code::size_overflow, view.name, " is ", t, ": its bytes (", size_bytes(t.dtype),
         " an element) or its reach over the strides pass 2^63 - 1");
  if (is_empty(t)) return;
  const auto address = reinterpret_cast<std::uintptr_t>(t.data);
  if (!address) fail(Code::null_pointer, view.name, " has elements (", t, ") but its address is null");
  if ((address & static_cast<std::uintptr_t>(size_bytes(t.dtype) - 1)) != 0)  // sizes are powers of two
    fail(Code::invalid_stride, view.name, " lies at address ", t.data, ", which is no multiple of the ",
         size_bytes(t.dtype), " bytes of ", t.dtype);
  view.begin = address;
  if (__builtin_add_overflow(address, static_cast<std::uintptr_t>(*reach), &view.end))
    fail(Code::size_overflow, view.name, " (", t, ") lies at address ", t.data, " and reaches over ", *reach,
         " bytes: that passes the end of memory");
}

void check_last_stride(const View& view) {
  const int last = view->rank - 1;
  if (view->shape[last] > 1 && view->stride[last] != 1)
    fail(Code::invalid_stride, view.name, " has stride ", view->stride[last], " over its ", view.axes[last],
         ": it must be 1, each row of ", view->shape[last], " elements side by side");
}

void check_device(const View& view, const View& first) {
  if (!(view->device == first->device))
    fail(Code::invalid_device, view.name, " is on ", view->device, ", ", first.name, " on ", first->device,
         ": all tensors of a call are on one device");
}

void check_place(const View& view, const View& q) {
  if (view->device == q->device || (view->device == Device{} && q->device.type == DeviceType::cuda)) return;
  fail(Code::invalid_device, view.name, " is on ", view->device, ", ", q.name, " on ", q->device,
       q->device.type == DeviceType::cuda ? ": it lies on the cpu or where q does"
                                          : ": all tensors of a call are on one device");
}

void check_writable(const View& view) {
  if (view->read_only)
    fail(Code::invalid_dtype, view.name, " (", *view, ") is read only, made from a const pointer: ", view.name,
         " is written and needs a pointer to non-const");
  if (const auto collision = find_collision(*view))
    fail(Code::invalid_stride, view.name, " has stride ", view->stride[collision->axis], " over its ",
         view.axes[collision->axis], " while other axes cover ", collision->covered,
         " elements: an output may not write one place twice; a stride of ", collision->covered, " or more is enough");
}

// ------------------------------------------------------------------------------------------------ one with another

void check_equal(const View& view, int axis, const View& other, int other_axis, const char* rule) {
  if (view.extent(axis) != other.extent(other_axis))
    fail(Code::invalid_shape, view.name, " has ", view.axes[axis], " ", view.extent(axis), ", ", other.name, " has ",
         other.axes[other_axis], " ", other.extent(other_axis), ": ", rule);
}

void check_apart(const View& out, const View& other) {
  if (out.begin >= other.end || other.begin >= out.end) return;
  const Meeting meeting = meet(*out, *other);
  if (meeting == Meeting::apart) return;
  fail(Code::overlap, out.name, " (", *out, " at ", out->data, ", ", out.end - out.begin, " bytes) ",
       meeting == Meeting::shared ? "shares memory with " : "is interwoven with, and cannot be told apart from, ",
       other.name, " (", *other, " at ", other->data, ", ", other.end - other.begin,
       " bytes): an output needs memory of its own");
}

void check_integers(View& view, std::int64_t count, const View& q, const char* rule) {
  if (!is_index(view->dtype)) fail(Code::invalid_dtype, view.name, " is ", view->dtype, ": i32 and i64 are allowed");
  if (view->rank != 1 || view.extent(0) != count)
    fail(Code::invalid_shape, view.name, " is ", *view, ": ", rule, ", here [", count, "]");
  check_place(view, q);
  check_memory(view);
}

void check_rank(const View& view, bool packed) {
  const int rank = packed ? 3 : 4;
  if (view->rank == rank) return;
  if (view->rank == (packed ? 4 : 3))
    fail(Code::invalid_shape, view.name, " has rank ", view->rank, " (", *view, "), ",
         packed
             ? "and the call has prefix sums: packed tensors are of rank 3, [total tokens, heads, dim]; a dense call, "
               "[batch, tokens, heads, dim], leaves packed.cu_q and packed.cu_k out"
             : "and the call has no prefix sums: dense tensors are of rank 4, [batch, tokens, heads, dim]; a packed "
               "call, [total tokens, heads, dim], needs packed.cu_q and packed.cu_k");
  fail(Code::invalid_shape, view.name, " has rank ", view->rank, ": it is of rank ", rank, ", ", axes_text(view, rank));
}

void check_lse_shape(const View& lse, const View& o, bool packed) {
  const int rank = packed ? 2 : 3;
  if (lse->dtype != DType::f32) fail(Code::invalid_dtype, lse.name, " is ", lse->dtype, ": it is always f32");
  if (lse->rank != rank)
    fail(Code::invalid_shape, lse.name, " has rank ", lse->rank, " (", *lse, "): it is of rank ", rank, ", ",
         axes_text(lse, rank));
  check_extents(lse, 0);
  if (!packed) check_equal(lse, 0, o, 0, "they must be equal");
  check_equal(lse, rank - 2, o, rank - 1, "lse has one row for each head of the output");
  check_equal(lse, rank - 1, o, rank - 2, "lse has one number for each query of the output");
}

std::int64_t alignment_bytes(const View& view) {
  auto bits = static_cast<std::uintptr_t>(max_align_bytes);
  if (view.begin != view.end) {
    bits |= view.begin;
    const auto size = static_cast<std::uintptr_t>(size_bytes(view->dtype));
    for (int axis = 0; axis + 1 < view->rank; ++axis)
      if (view->shape[axis] > 1) bits |= static_cast<std::uintptr_t>(view->stride[axis]) * size;
  }
  return std::int64_t{1} << std::countr_zero(bits);
}

bool shares(const View& view, int axis) { return view->shape[axis] > 1 && view->stride[axis] == 0; }

}  // namespace tessera::problem
