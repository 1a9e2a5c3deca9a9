// Interval arithmetic of masks: one text for the host (included by intervals.hpp) and for devices (embedded by
// emit/bounds_text.cpp). Around it stand int64, uint64, SHARED and LONG_SHARED (what a function is declared with, one that
// is too long for copies of its own at each call), ROLLED (before loops that are not worth several copies), and the
// integer arithmetic of the interpreter: add, sub, mul, floor_div, floor_mod. No header is needed here, and none may be.
// Integer operations saturate, which keeps their order, so the ends of an interval are those of the exact one cut to
// int64. Real +, -, *, / and sqrt are rounded correctly and hence monotone: computed on the ends of their arguments
// they are exact bounds of what the interpreter computes between. Functions of the mathematical library need not be
// monotone in their last bits, nor the same on every machine: their ends are moved outward by far more than that.

enum class Truth : unsigned char { never, always, mixed };  // mixed: or not known

struct IntegerRange {
  int64 lo, hi;  // inclusive
};
struct RealRange {
  double lo, hi;
  bool nan;  // possible; then lo and hi say nothing
};

// Of some elements of a captured tensor, as keys in the order of their values. signature: bit(key) of each; disjoint
// signatures mean that no element is in both.
struct SummaryEntry {
  int64 lo, hi;
  uint64 signature;
};

// ------------------------------------------------------------------------------------------------------------- numbers
SHARED int64 least_integer() { return -0x7fffffffffffffff - 1; }
SHARED int64 most_integer() { return 0x7fffffffffffffff; }
SHARED double real_of_bits(int64 bits) {
#ifdef __CUDA_ARCH__
  return __longlong_as_double(bits);
#else
  return __builtin_bit_cast(double, bits);
#endif
}
SHARED int64 bits_of_real(double real) {
#ifdef __CUDA_ARCH__
  return __double_as_longlong(real);
#else
  return __builtin_bit_cast(int64, real);
#endif
}
// One rounding each, also where the compiler would join two into a fused operation.
SHARED double plus(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}
SHARED double minus(double a, double b) { return plus(a, -b); }
SHARED double times(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}
SHARED double over(double a, double b) { return a / b; }
SHARED double infinite() { return real_of_bits(0x7ff0000000000000); }
SHARED bool is_nan(double a) { return a != a; }
SHARED double sigmoid_of(double a) { return over(1, plus(1, ::exp(-a))); }
SHARED double reciprocal_root_of(double a) { return over(1, ::sqrt(a)); }
SHARED double sign_of(double a) { return a > 0 ? 1.0 : a < 0 ? -1.0 : a; }  // of zeroes: themselves

// Of a NaN and a number the number.
SHARED double lower_number(double a, double b) { return is_nan(a) || b < a ? b : a; }
SHARED double higher_number(double a, double b) { return is_nan(a) || b > a ? b : a; }

template <class T>
SHARED T lower(T a, T b) {
  return b < a ? b : a;
}
template <class T>
SHARED T higher(T a, T b) {
  return a < b ? b : a;
}

// --------------------------------------------------------------------------------------------------------------- truth
SHARED Truth decided(bool truth) { return truth ? Truth::always : Truth::never; }
SHARED Truth negated(Truth t) {
  return t == Truth::mixed ? Truth::mixed : t == Truth::always ? Truth::never : Truth::always;
}
SHARED Truth both(Truth a, Truth b) {
  if (a == Truth::never || b == Truth::never) return Truth::never;
  return a == b ? a : Truth::mixed;
}
SHARED Truth either(Truth a, Truth b) { return negated(both(negated(a), negated(b))); }
SHARED Truth chosen(Truth by, Truth a, Truth b) {
  if (by != Truth::mixed) return by == Truth::always ? a : b;
  return a == b ? a : Truth::mixed;
}

// ------------------------------------------------------------------------------------------------------------ integers
SHARED IntegerRange point(int64 value) { return {value, value}; }
SHARED IntegerRange hull(const IntegerRange& a, const IntegerRange& b) {
  return {lower(a.lo, b.lo), higher(a.hi, b.hi)};
}
SHARED IntegerRange meet(const IntegerRange& a, const IntegerRange& b) {
  return {higher(a.lo, b.lo), lower(a.hi, b.hi)};
}
// a + factor * b, where nothing can overflow.
SHARED IntegerRange with_term(const IntegerRange& a, int64 factor, const IntegerRange& b) {
  if (factor >= 0) return {a.lo + factor * b.lo, a.hi + factor * b.hi};
  return {a.lo + factor * b.hi, a.hi + factor * b.lo};
}
SHARED IntegerRange sum(const IntegerRange& a, const IntegerRange& b) { return {add(a.lo, b.lo), add(a.hi, b.hi)}; }
SHARED IntegerRange difference(const IntegerRange& a, const IntegerRange& b) {
  return {sub(a.lo, b.hi), sub(a.hi, b.lo)};
}
SHARED IntegerRange opposite(const IntegerRange& a) { return {sub(0, a.hi), sub(0, a.lo)}; }
SHARED IntegerRange smaller(const IntegerRange& a, const IntegerRange& b) {
  return {lower(a.lo, b.lo), lower(a.hi, b.hi)};
}
SHARED IntegerRange larger(const IntegerRange& a, const IntegerRange& b) {
  return {higher(a.lo, b.lo), higher(a.hi, b.hi)};
}
SHARED IntegerRange absolute(const IntegerRange& a) {
  if (a.lo >= 0) return a;
  const int64 low = sub(0, a.lo);
  if (a.hi <= 0) return {sub(0, a.hi), low};
  return {0, higher(low, a.hi)};
}
SHARED IntegerRange sign(const IntegerRange& a) { return {(a.lo > 0) - (a.lo < 0), (a.hi > 0) - (a.hi < 0)}; }
SHARED IntegerRange span_of(int64 x, int64 y, int64 z, int64 w) {
  return {lower(lower(x, y), lower(z, w)), higher(higher(x, y), higher(z, w))};
}
// Products and quotients are monotone in each argument while the other stands still.
SHARED IntegerRange product(const IntegerRange& a, const IntegerRange& b) {
  return span_of(mul(a.lo, b.lo), mul(a.lo, b.hi), mul(a.hi, b.lo), mul(a.hi, b.hi));
}
SHARED IntegerRange square(const IntegerRange& a) {
  IntegerRange r = product(a, a);
  r.lo = a.lo <= 0 && a.hi >= 0 ? 0 : lower(mul(a.lo, a.lo), mul(a.hi, a.hi));
  return r;
}
SHARED IntegerRange quotient_of_one_sign(const IntegerRange& a, const IntegerRange& b) {
  return span_of(floor_div(a.lo, b.lo), floor_div(a.lo, b.hi), floor_div(a.hi, b.lo), floor_div(a.hi, b.hi));
}
SHARED IntegerRange quotient(const IntegerRange& a, const IntegerRange& b) {
  if (b.lo > 0 || b.hi < 0) return quotient_of_one_sign(a, b);
  IntegerRange r{0, 0};  // by zero
  if (b.lo < 0) r = hull(r, quotient_of_one_sign(a, {b.lo, -1}));
  if (b.hi > 0) r = hull(r, quotient_of_one_sign(a, {1, b.hi}));
  return r;
}
SHARED IntegerRange remainder(const IntegerRange& a, const IntegerRange& b) {
  if (b.lo == b.hi) {
    if (b.lo == 0 || b.lo == -1) return {0, 0};
    if (floor_div(a.lo, b.lo) == floor_div(a.hi, b.lo)) return {floor_mod(a.lo, b.lo), floor_mod(a.hi, b.lo)};
  } else if (b.lo > 0 && a.lo >= 0 && a.hi < b.lo) {
    return a;
  }
  return {b.lo < 0 ? b.lo + 1 : 0, b.hi > 0 ? b.hi - 1 : 0};
}
SHARED IntegerRange chosen(Truth by, const IntegerRange& a, const IntegerRange& b) {
  if (by != Truth::mixed) return by == Truth::always ? a : b;
  return hull(a, b);
}

// --------------------------------------------------------------------------------------------------------------- reals
SHARED RealRange unknown() { return {-infinite(), infinite(), true}; }
SHARED RealRange ordered(double lo, double hi) { return {lo, hi, false}; }
SHARED RealRange checked(double lo, double hi) { return is_nan(lo) || is_nan(hi) ? unknown() : ordered(lo, hi); }
SHARED bool is_point(const RealRange& a) { return !a.nan && a.lo == a.hi; }
SHARED bool is_infinite(const RealRange& a) { return a.lo == -infinite() || a.hi == infinite(); }
SHARED bool has_zero(const RealRange& a) { return a.lo <= 0 && a.hi >= 0; }
SHARED RealRange hull(const RealRange& a, const RealRange& b) {
  if (a.nan || b.nan) return unknown();
  return ordered(lower(a.lo, b.lo), higher(a.hi, b.hi));
}
// Outward by far more than the errors of a mathematical library, a few units in the last place.
SHARED RealRange outward(double lo, double hi, double lowest, double highest) {
  if (is_nan(lo) || is_nan(hi)) return unknown();
  const double largest = real_of_bits(0x7fefffffffffffff), smallest = real_of_bits(0x0010000000000000);
  const double relative = real_of_bits(0x3d10000000000000);  // 2^-46
  lo = lower(lo, largest), hi = higher(hi, -largest);
  return ordered(higher(lowest, minus(minus(lo, times(::fabs(lo), relative)), smallest)),
                 lower(highest, plus(plus(hi, times(::fabs(hi), relative)), smallest)));
}
SHARED RealRange span_of(double x, double y, double z, double w) {
  if (is_nan(x) || is_nan(y) || is_nan(z) || is_nan(w)) return unknown();
  return ordered(lower(lower(x, y), lower(z, w)), higher(higher(x, y), higher(z, w)));
}
SHARED RealRange real(const IntegerRange& a) { return ordered((double)a.lo, (double)a.hi); }
SHARED RealRange opposite(const RealRange& a) {
  if (a.nan) return unknown();
  return ordered(-a.hi, -a.lo);
}
SHARED RealRange absolute(const RealRange& a) {
  if (a.nan) return unknown();
  if (is_point(a)) return ordered(::fabs(a.lo), ::fabs(a.lo));
  if (a.lo >= 0) return a;
  return a.hi <= 0 ? ordered(-a.hi, -a.lo) : ordered(0, higher(-a.lo, a.hi));
}
SHARED RealRange sign(const RealRange& a) {
  if (a.nan) return unknown();
  return ordered(sign_of(a.lo), sign_of(a.hi));
}
SHARED RealRange square_root(const RealRange& a) {
  if (a.nan || (a.lo < 0 && a.lo != a.hi)) return unknown();
  return checked(::sqrt(a.lo), ::sqrt(a.hi));
}
SHARED RealRange reciprocal_root(const RealRange& a) {
  // A zero may have either sign, which makes a difference here; of a negative point the root is no number.
  if (a.nan || a.lo == 0 || (a.lo < 0 && a.lo != a.hi)) return unknown();
  return checked(reciprocal_root_of(a.hi), reciprocal_root_of(a.lo));
}
// Of a function that grows, from what it is at the ends.
SHARED RealRange grown(const RealRange& a, double lo, double hi, double lowest, double highest) {
  return is_point(a) ? checked(lo, lo) : outward(lo, hi, lowest, highest);
}
SHARED RealRange logarithm(const RealRange& a) {
  if (a.nan || (a.lo < 0 && a.lo != a.hi)) return unknown();
  return grown(a, ::log(a.lo), ::log(a.hi), -infinite(), infinite());
}
SHARED RealRange exponential(const RealRange& a) {
  return a.nan ? unknown() : grown(a, ::exp(a.lo), ::exp(a.hi), 0, infinite());
}
SHARED RealRange exponential_of_two(const RealRange& a) {
  return a.nan ? unknown() : grown(a, ::exp2(a.lo), ::exp2(a.hi), 0, infinite());
}
SHARED RealRange sigmoid(const RealRange& a) {
  return a.nan ? unknown() : grown(a, sigmoid_of(a.lo), sigmoid_of(a.hi), 0, 1);
}
SHARED RealRange hyperbolic_tangent(const RealRange& a) {
  return a.nan ? unknown() : grown(a, ::tanh(a.lo), ::tanh(a.hi), -1, 1);
}
SHARED RealRange error_function(const RealRange& a) {
  return a.nan ? unknown() : grown(a, ::erf(a.lo), ::erf(a.hi), -1, 1);
}
SHARED RealRange sum(const RealRange& a, const RealRange& b) {
  if (a.nan || b.nan) return unknown();
  if ((a.lo == -infinite() && b.hi == infinite()) || (a.hi == infinite() && b.lo == -infinite())) return unknown();
  return checked(plus(a.lo, b.lo), plus(a.hi, b.hi));
}
SHARED RealRange difference(const RealRange& a, const RealRange& b) { return b.nan ? unknown() : sum(a, opposite(b)); }
SHARED RealRange product(const RealRange& a, const RealRange& b) {
  if (a.nan || b.nan) return unknown();
  if ((has_zero(a) && is_infinite(b)) || (has_zero(b) && is_infinite(a))) return unknown();
  return span_of(times(a.lo, b.lo), times(a.lo, b.hi), times(a.hi, b.lo), times(a.hi, b.hi));
}
SHARED RealRange ratio(const RealRange& a, const RealRange& b) {
  // A zero may have either sign, which tells when it divides.
  if (a.nan || b.nan || has_zero(b) || (is_infinite(a) && is_infinite(b))) return unknown();
  return span_of(over(a.lo, b.lo), over(a.lo, b.hi), over(a.hi, b.lo), over(a.hi, b.hi));
}
SHARED RealRange smaller(const RealRange& a, const RealRange& b) {
  if (a.nan || b.nan) return unknown();
  return ordered(lower(a.lo, b.lo), lower(a.hi, b.hi));
}
SHARED RealRange larger(const RealRange& a, const RealRange& b) {
  if (a.nan || b.nan) return unknown();
  return ordered(higher(a.lo, b.lo), higher(a.hi, b.hi));
}
SHARED RealRange power(const RealRange& a, const RealRange& b) {  // of a positive base: monotone in either argument
  if (a.nan || b.nan || a.lo <= 0) return unknown();
  if (is_point(a) && is_point(b)) return checked(::pow(a.lo, b.lo), ::pow(a.lo, b.lo));
  const RealRange r = span_of(::pow(a.lo, b.lo), ::pow(a.lo, b.hi), ::pow(a.hi, b.lo), ::pow(a.hi, b.hi));
  return r.nan ? unknown() : outward(r.lo, r.hi, 0, infinite());
}
SHARED RealRange chosen(Truth by, const RealRange& a, const RealRange& b) {
  if (by != Truth::mixed) return by == Truth::always ? a : b;
  return hull(a, b);
}

// --------------------------------------------------------------------------------------------------------- comparisons
SHARED bool unordered(const IntegerRange&) { return false; }
SHARED bool unordered(const RealRange& a) { return a.nan; }
template <class Range>
SHARED Truth less(const Range& a, const Range& b) {
  if (unordered(a) || unordered(b)) return Truth::mixed;
  return a.hi < b.lo ? Truth::always : a.lo >= b.hi ? Truth::never : Truth::mixed;
}
template <class Range>
SHARED Truth less_or_equal(const Range& a, const Range& b) {
  if (unordered(a) || unordered(b)) return Truth::mixed;
  return a.hi <= b.lo ? Truth::always : a.lo > b.hi ? Truth::never : Truth::mixed;
}
template <class Range>
SHARED Truth equal(const Range& a, const Range& b) {
  if (unordered(a) || unordered(b)) return Truth::mixed;
  if (a.hi < b.lo || b.hi < a.lo) return Truth::never;
  return a.lo == a.hi && b.lo == b.hi ? Truth::always : Truth::mixed;
}
// `equal` of what is known otherwise, where signatures show that nothing in the one is in the other.
SHARED Truth equal_by(Truth otherwise, uint64 a, uint64 b) {
  return otherwise == Truth::mixed && (a & b) == 0 ? Truth::never : otherwise;
}

// ------------------------------------------------------------------------------------------------- captured tensors'
// keys Elements as keys in the order of their values, so that one summary serves every type: integers and booleans are
// themselves, reals are the order of their doubles (-0 is 0). A NaN's key is beyond those of the infinities.
SHARED int64 real_key(double value) {
  if (is_nan(value)) return most_integer();
  const int64 bits = bits_of_real(plus(value, 0.0));
  return bits >= 0 ? bits : bits ^ most_integer();
}
SHARED double key_real(int64 key) { return real_of_bits(key >= 0 ? key : key ^ most_integer()); }
SHARED uint64 key_bit(int64 key) { return (uint64)1 << (((uint64)key * 0x9e3779b97f4a7c15u) >> 58); }
SHARED IntegerRange integers_of(const SummaryEntry& e) { return {e.lo, e.hi}; }
SHARED Truth truth_of(const SummaryEntry& e) { return e.lo == e.hi ? decided(e.lo != 0) : Truth::mixed; }
SHARED RealRange reals_of(const SummaryEntry& e) {
  if (e.lo < real_key(-infinite()) || e.hi > real_key(infinite())) return unknown();
  return ordered(key_real(e.lo), key_real(e.hi));
}
