// The expression graph behind every mask and score change. One small value, hashable and comparable; what the user
// writes is traced (or parsed) into it, and everything else (tiles, evaluation, text, derivatives) is derived from it.
// It knows the five coordinates (score, batch, head, query, key) and nothing else of attention.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <vector>

#include "tessera/error.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {

enum class Type : std::uint8_t { boolean, integer, real };  // bool, int64, fp32

// clang-format off
enum class Op : std::uint8_t {
  constant,                         // value: the bits of a bool, an int64 or a double
  param,                            // slot: its place in the list of run-time values
  batch, head, query, key, score,   // the coordinates
  add, sub, mul, floor_div, mod, div, min, max, neg, abs, sign,
  lt, le, gt, ge, eq, ne,
  logical_and, logical_or, logical_not, select,
  exp, exp2, log, tanh, sigmoid, sqrt, rsqrt, erf, pow, to_real,
  load,                             // an element of a captured tensor; slot: its place in the list of captures, one integer argument an axis
  upper_bound,                      // of a captured tensor of integers, how many lie before where a number would go: as load, but the last argument is the number
};
// clang-format on

// One operation. Arguments are indices of earlier nodes, so a graph is in evaluation order.
struct Node {
  Op op{};
  Type type{};
  std::uint8_t slot = 0;
  std::uint8_t arg_count = 0;
  std::array<std::uint16_t, 4> arg{};
  std::int64_t value = 0;
  bool operator==(const Node&) const = default;
};

// A run-time value: integer or real (bits). It is data beside the graph, so another window needs no new kernel.
struct Param {
  Type type = Type::integer;
  std::int64_t value = 0;
  bool operator==(const Param&) const = default;
};

// A tensor that an expression reads. The graph holds its name, kind and rank; the tensor itself is bound at each call,
// so nothing dangles and an edit in place is seen. Real: bound to f32, bf16 or f16; integer: to i32, i64 or u8;
// boolean: to b8.
struct Capture {
  static constexpr std::size_t max_name = 23, max_rank = 4;
  std::array<char, max_name + 1> name{};  // letters, digits and _, filled up with zeros
  Type type = Type::real;
  std::uint8_t rank = 1;
  bool operator==(const Capture&) const = default;
};

namespace detail {
// An immutable list that holds up to N elements in place and more behind a shared pointer: copying never allocates.
template <class T, std::size_t N>
class Frozen {
 public:
  Frozen() = default;
  explicit Frozen(std::span<const T> items) : size_(items.size()) {
    if (size_ > N) more_ = std::make_shared<const std::vector<T>>(items.begin(), items.end());
    else
      for (std::size_t i = 0; i < size_; ++i) few_[i] = items[i];
  }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T* data() const { return more_ ? more_->data() : few_.data(); }
  const T& operator[](std::size_t i) const { return data()[i]; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  std::span<const T> span() const { return {data(), size_}; }
  bool operator==(const Frozen& other) const {
    if (size_ != other.size_) return false;
    for (std::size_t i = 0; i < size_; ++i)
      if (!((*this)[i] == other[i])) return false;
    return true;
  }

 private:
  std::size_t size_ = 0;
  std::array<T, N> few_{};
  std::shared_ptr<const std::vector<T>> more_;
};
}  // namespace detail

// Nodes in evaluation order (the last one is the result; no nodes: the identity) and the run-time values they name.
// Canonical in every Mask: common subexpressions stand once, constants are folded, nodes and run-time values stand in
// the order in which the text names them, so equal expressions compare equal.
struct Graph {
  detail::Frozen<Node, 20> nodes;
  detail::Frozen<Param, 4> params;
  detail::Frozen<Capture, 2> captures;
  bool operator==(const Graph&) const = default;
};
std::uint64_t hash(const Graph& graph);  // of structure and parameter values
// The text form, fully parenthesised; parse_mask() reads it back to the equal graph. A run-time value is written where
// it stands first, `param(1023)`; where the same one stands again, by its number: `$0`, `$1`, ...
std::ostream& operator<<(std::ostream& out, const Graph& graph);

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
