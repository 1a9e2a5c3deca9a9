// Writing masks and score changes as lambdas. The lambda is called once, with expressions instead of numbers; what it
// does with them is written down as a graph. So it cannot branch on one (there is no conversion to bool): use & | ! and
// where().
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <string_view>
#include <type_traits>

#include "tessera/mods.hpp"
#include "tessera/tensor.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {

class Expr;
class Captured;

namespace detail {
class Tracing;

template <class T>
concept Number = std::is_arithmetic_v<T> && sizeof(T) <= 8;

// Found for expressions and captured tensors alone; numbers beside them convert.
struct Operators {
  friend Expr operator+(const Expr& a, const Expr& b);
  friend Expr operator-(const Expr& a, const Expr& b);
  friend Expr operator*(const Expr& a, const Expr& b);
  friend Expr operator/(const Expr& a, const Expr& b);  // of reals; of integers: floor_div, or real(a) / b
  friend Expr operator%(const Expr& a, const Expr& b);  // of integers; the sign of the divisor
  friend Expr operator-(const Expr& a);
  friend Expr operator<(const Expr& a, const Expr& b);
  friend Expr operator<=(const Expr& a, const Expr& b);
  friend Expr operator>(const Expr& a, const Expr& b);
  friend Expr operator>=(const Expr& a, const Expr& b);
  friend Expr operator==(const Expr& a, const Expr& b);
  friend Expr operator!=(const Expr& a, const Expr& b);
  friend Expr operator&(const Expr& a, const Expr& b);
  friend Expr operator|(const Expr& a, const Expr& b);
  friend Expr operator!(const Expr& a);
};
}  // namespace detail

// A boolean, an integer (int64) or a real (fp32) inside a lambda that is being traced, or a number that is to become
// one. Small; copies are the same value. Integers beside reals become reals, booleans are no numbers. Used outside its
// own trace: Error(invalid_mod).
class Expr : public detail::Operators {
 public:
  template <detail::Number T>
  Expr(T value) {  // NOLINT: numbers are expressions
    if constexpr (std::is_same_v<T, bool>) set(Type::boolean, value ? 1 : 0);
    else if constexpr (std::is_floating_point_v<T>) set(static_cast<double>(value));
    else if constexpr (std::is_unsigned_v<T>) set(static_cast<std::uint64_t>(value));
    else set(Type::integer, static_cast<std::int64_t>(value));
  }
  Expr(const Mask& mask);                   // NOLINT: in a trace, what the mask says of its coordinates
  explicit operator bool() const = delete;  // instead of if and ?: where(), instead of && and || & and |
  Expr& operator+=(const Expr& x) { return *this = *this + x; }
  Expr& operator-=(const Expr& x) { return *this = *this - x; }
  Expr& operator*=(const Expr& x) { return *this = *this * x; }
  Expr& operator/=(const Expr& x) { return *this = *this / x; }
  Expr& operator&=(const Expr& x) { return *this = *this & x; }
  Expr& operator|=(const Expr& x) { return *this = *this | x; }

 private:
  friend class detail::Tracing;
  Expr(std::uint64_t trace, std::uint16_t node) : trace_(trace), node_(node) {}
  void set(Type type, std::int64_t bits) { type_ = type, bits_ = bits; }
  void set(double value);
  void set(std::uint64_t value);  // throws Error(invalid_mod) beyond int64

  std::uint64_t trace_ = 0;  // 0: a number that has not met an expression yet
  std::int64_t bits_ = 0;    // of that number
  std::uint16_t node_ = 0;
  Type type_ = Type::integer;
};
std::ostream& operator<<(std::ostream& out, const Expr& x);  // inside its trace

Expr where(const Expr& condition, const Expr& a, const Expr& b);  // a where it holds, b elsewhere
Expr min(const Expr& a, const Expr& b);                           // of a NaN and a number: the number
Expr max(const Expr& a, const Expr& b);
Expr abs(const Expr& x);
Expr sign(const Expr& x);
Expr floor_div(const Expr& a, const Expr& b);  // of integers, rounded down; by zero: 0
Expr exp(const Expr& x);
Expr exp2(const Expr& x);
Expr log(const Expr& x);
Expr tanh(const Expr& x);
Expr sigmoid(const Expr& x);
Expr sqrt(const Expr& x);
Expr rsqrt(const Expr& x);
Expr erf(const Expr& x);
Expr pow(const Expr& a, const Expr& b);
Expr real(const Expr& x);  // an integer as a real

// A tensor that is bound by its name at each call. Read at one integer an axis: table[h][k - q + 512]. An index outside
// of it is clamped. With all its indices it is an expression.
class Captured : public detail::Operators {
 public:
  Captured operator[](const Expr& index) const;  // throws Error(invalid_mod) for one too many and for no integer
  operator Expr() const;                         // NOLINT: throws Error(invalid_mod) while indices are missing

 private:
  friend class detail::Tracing;
  explicit Captured(const Capture& capture) : capture_(capture) {}
  Capture capture_;
  std::array<Expr, Capture::max_rank> index_{0, 0, 0, 0};
  std::size_t given_ = 0;
};
// What it holds follows from the type: floats are reals, i32, i64 and u8 integers, b8 booleans; bound to any type of
// the same kind. Throws Error(invalid_mod) for a name that cannot be one (1 to 23 letters, digits and _), or that is
// another tensor in the same trace.
Captured capture(std::string_view name, DType dtype, int rank);
// How many of the ascending integers along the last axis of a captured tensor are at most x: upper_bound(offsets, q),
// of rank 2 upper_bound(offsets[b], q). By binary search; what it gives where they do not ascend is defined in
// docs/mods.md. Throws Error(invalid_mod) for a tensor that is not one index short or holds no integers.
Expr upper_bound(const Captured& captured, const Expr& x);

namespace detail {
// The trace that a thread is in, innermost first. What begins here ends with the scope, whatever is thrown.
class Tracing {
 public:
  Tracing();
  ~Tracing();
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;
  Expr coordinate(Op op);
  Mask finish_mask(const Expr& result);
  ScoreMod finish_score(const Expr& result);

  static Expr apply(Op op, std::initializer_list<Expr> arguments);
  static Expr param(std::int64_t value);
  static Expr param(double value);
  static Expr import(const Mask& mask);
  static Captured capture(std::string_view name, DType dtype, int rank);
  static Captured index(Captured captured, const Expr& index);
  static Expr load(const Captured& captured);
  static Expr search(const Captured& captured, const Expr& x);
  static void print(std::ostream& out, const Expr& x);

 private:
  static Tracing& current();
  std::uint16_t node(const Expr& x);
  std::string text(std::uint16_t node, std::size_t most);
  mods::Builder& builder_;
  Tracing* outer_;
  std::uint64_t id_;
};
}  // namespace detail

// A run-time value: another one needs no new trace and no new kernel.
template <detail::Number T>
requires(!std::is_same_v<T, bool>) Expr param(T value) {
  if constexpr (std::is_floating_point_v<T>) return detail::Tracing::param(static_cast<double>(value));
  else return detail::Tracing::param(static_cast<std::int64_t>(value));
}

// mask_mod([](Expr b, Expr h, Expr q, Expr k) { return k <= q; }): a boolean, true where q may attend to k.
template <class F>
requires std::is_invocable_r_v<Expr, F&, Expr, Expr, Expr, Expr> Mask mask_mod(F&& function) {
  detail::Tracing trace;
  const Expr result = function(trace.coordinate(Op::batch), trace.coordinate(Op::head), trace.coordinate(Op::query),
                               trace.coordinate(Op::key));
  return trace.finish_mask(result);
}
// score_mod([](Expr s, Expr b, Expr h, Expr q, Expr k) { return 30 * tanh(s / 30); }): what the score s becomes.
template <class F>
requires std::is_invocable_r_v<Expr, F&, Expr, Expr, Expr, Expr, Expr> ScoreMod score_mod(F&& function) {
  detail::Tracing trace;
  const Expr result = function(trace.coordinate(Op::score), trace.coordinate(Op::batch), trace.coordinate(Op::head),
                               trace.coordinate(Op::query), trace.coordinate(Op::key));
  return trace.finish_score(result);
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
