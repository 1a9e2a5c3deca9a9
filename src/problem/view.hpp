// A tensor under examination, and what can be wrong with one alone or with two together. The words are made only for a
// failure.
// Must not know: which tensors a call has.
#pragma once
#include <cstdint>

#include "tessera/tensor.hpp"

namespace tessera::problem {

// What the texts call it, what its axes are called, where it lies.
struct View {
  const char* name;
  const Tensor* tensor;
  const char* const* axes = nullptr;
  std::uintptr_t begin = 0, end = 0;  // addresses; equal when it has no elements

  const Tensor& operator*() const { return *tensor; }
  const Tensor* operator->() const { return tensor; }
  std::int64_t extent(int axis) const { return tensor->shape[axis]; }
};

inline constexpr const char* dense_axes[] = {"batch", "tokens", "heads", "dim"};
inline constexpr const char* packed_axes[] = {"total tokens", "heads", "dim"};
inline constexpr const char* page_axes[] = {"pages", "page size", "heads", "dim"};
inline constexpr const char* lse_axes[] = {"batch", "heads", "tokens"};
inline constexpr const char* packed_lse_axes[] = {"heads", "total tokens"};
inline constexpr const char* list_axes[] = {"elements"};
inline constexpr const char* table_axes[] = {"batch", "width"};

// One alone.

// Is an optional tensor there? One that has an address or a shape but no type was meant to be.
bool is_given(const char* name, const Tensor& tensor);
void require_given(const char* name, const Tensor& tensor);
// Extents of 0 or more; at least 1 where `least` has a bit for the axis.
void check_extents(const View& view, unsigned least);
void check_float(const View& view);
// Strides, size, address. Fills in where it lies.
void check_memory(View& view);
void check_last_stride(const View& view);
void check_writable(const View& view);
void check_rank(const View& view, bool packed);

// One with another.
void check_device(const View& view, const View& first);
// Numbers about the sequences may stay on the host while q is on a device.
void check_place(const View& view, const View& q);
void check_equal(const View& view, int axis, const View& other, int other_axis, const char* rule);
void check_apart(const View& out, const View& other);
// Rank and type of a tensor of integers with `count` elements; `rule` says what it holds.
void check_integers(View& view, std::int64_t count, const View& q, const char* rule);
void check_lse_shape(const View& lse, const View& o, bool packed);

inline constexpr std::int64_t max_align_bytes = 64;
// The largest power of two, up to that, which divides the address and every stride in bytes.
std::int64_t alignment_bytes(const View& view);
// Whether what is counted by this axis lies in one place.
bool shares(const View& view, int axis);

}  // namespace tessera::problem
