// Where a view's elements lie: how far they reach, whether two of one view or of two views share memory.
// Must not know: attention, what an axis means.
#pragma once
#include <cstdint>
#include <optional>

#include "tessera/tensor.hpp"

namespace tessera::problem {

// All of it counts in extents and strides as they are; strides of extents of 0 and 1 lead nowhere and are ignored.
// The views have a valid rank, extents of 0 or more, and strides of 0 or more wherever the extent is over 1.

inline bool is_empty(const Tensor& t) {
  for (int axis = 0; axis < t.rank; ++axis)
    if (t.shape[axis] == 0) return true;
  return false;
}

// Bytes from the first element to the end of the last. None when they, or the bytes of all elements side by side,
// leave 63 bits; a view with an extent of 0 counts as if it were 1, so that no product of its extents overflows.
inline std::optional<std::int64_t> reach_bytes(const Tensor& t) {
  const std::int64_t size = size_bytes(t.dtype);
  std::int64_t last = 0, product = size, step = 0;
  for (int axis = 0; axis < t.rank; ++axis) {
    if (t.shape[axis] <= 1) continue;
    if (__builtin_mul_overflow(product, t.shape[axis], &product)) return std::nullopt;
    if (__builtin_mul_overflow(t.shape[axis] - 1, t.stride[axis], &step)) return std::nullopt;
    if (__builtin_add_overflow(last, step, &last)) return std::nullopt;
  }
  if (__builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, size, &last)) return std::nullopt;
  return last;
}

// Views nest when each stride passes what the axes with smaller strides cover: every slice, step or transposition of a
// dense tensor does, and then no two elements share a place.
struct Collision {
  int axis;
  std::int64_t covered;  // elements that the other axes with smaller strides cover: a stride of as much is enough
};
std::optional<Collision> find_collision(const Tensor& t);

// Do two views share a byte? Exact as long as that takes few steps, as it does when their strides agree (slices of one
// buffer) or their byte ranges are apart; otherwise `undecided`. Reaches must have been checked.
enum class Meeting { apart, shared, undecided };
Meeting meet(const Tensor& a, const Tensor& b);

}  // namespace tessera::problem
