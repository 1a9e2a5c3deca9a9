// What mod functions call, as text. It means the same as src/mods/arithmetic.hpp, with reals of 32 bits.
#include "emit/mod_text.hpp"

namespace tessera::emit {

std::string_view mod_prelude() {
  static constexpr std::string_view text = R"(#ifndef __CUDACC__
extern "C" {  // the library of the host, without its headers
float expf(float) noexcept;
float exp2f(float) noexcept;
float logf(float) noexcept;
float tanhf(float) noexcept;
float sqrtf(float) noexcept;
float erff(float) noexcept;
float powf(float, float) noexcept;
float fabsf(float) noexcept;
double exp(double) noexcept;
double exp2(double) noexcept;
double log(double) noexcept;
double tanh(double) noexcept;
double sqrt(double) noexcept;
double erf(double) noexcept;
double pow(double, double) noexcept;
double fabs(double) noexcept;
}
#endif
namespace mod_math {
static_assert(sizeof(long long) == 8 && sizeof(int) == 4 && sizeof(short) == 2, "the sizes that the text is made for");
constexpr long long most = 0x7fffffffffffffffLL, least = -most - 1;

// Integers: 64 bits, saturating; division by zero is 0; quotients round toward minus infinity.
static __device__ inline long long wrapped_add(long long a, long long b) {
  return (long long)((unsigned long long)a + (unsigned long long)b);
}
static __device__ inline long long wrapped_sub(long long a, long long b) {
  return (long long)((unsigned long long)a - (unsigned long long)b);
}
static __device__ inline long long add(long long a, long long b) {
  const long long r = wrapped_add(a, b);
  return ((a ^ r) & (b ^ r)) >= 0 ? r : a < 0 ? least : most;
}
static __device__ inline long long sub(long long a, long long b) {
  const long long r = wrapped_sub(a, b);
  return ((a ^ b) & (a ^ r)) >= 0 ? r : a < 0 ? least : most;
}
static __device__ inline long long mul(long long a, long long b) {
#ifdef __CUDA_ARCH__
  const long long high = __mul64hi(a, b);
#else
  const long long high = (long long)(((__int128)a * b) >> 64);
#endif
  const long long r = (long long)((unsigned long long)a * (unsigned long long)b);
  return high == (r >> 63) ? r : (a < 0) != (b < 0) ? least : most;
}
static __device__ inline long long floor_div(long long a, long long b) {
  if (b == 0) return 0;
  if (b == -1) return sub(0, a);
  const long long r = a / b, rest = a - r * b;
  return rest != 0 && (rest < 0) != (b < 0) ? r - 1 : r;
}
static __device__ inline long long floor_mod(long long a, long long b) {
  if (b == 0 || b == -1) return 0;
  const long long rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
static __device__ inline long long min(long long a, long long b) { return a < b ? a : b; }
static __device__ inline long long max(long long a, long long b) { return a > b ? a : b; }
static __device__ inline long long abs(long long a) { return a < 0 ? sub(0, a) : a; }
static __device__ inline long long sign(long long a) { return (a > 0) - (a < 0); }
// The same in 32 bits, of integers that are known to be small enough; a divisor of -1 is not.
static __device__ inline int floor_div(int a, int b) {
  if (b == 0) return 0;
  const int r = a / b, rest = a - r * b;
  return rest != 0 && (rest < 0) != (b < 0) ? r - 1 : r;
}
static __device__ inline int floor_mod(int a, int b) {
  if (b == 0 || b == -1) return 0;
  const int rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
static __device__ inline int min(int a, int b) { return a < b ? a : b; }
static __device__ inline int max(int a, int b) { return a > b ? a : b; }
static __device__ inline int abs(int a) { return a < 0 ? -a : a; }
static __device__ inline int sign(int a) { return (a > 0) - (a < 0); }

// Tables. One without elements is a zero, which its address leads to; so that nothing is asked at each element.
#ifdef __CUDACC__
static __device__ const long long zero_element = 0;
#else
static const long long zero_element = 0;
#endif
template <class T>
static __device__ inline const T* or_zeros(const T* at) {
  return at ? at : (const T*)&zero_element;
}
// An index in [0, last]; where an element lies whose steps along an axis are so many elements, or bytes.
static __device__ inline long long clamp(long long index, long long last) {
  return index < 0 ? 0 : index > last ? last : index;
}
static __device__ inline int clamp(int index, int last) { return max(0, min(index, last)); }
static __device__ inline int at_most(int index, int last) { return min(index, last); }
template <class T>
static __device__ inline const T* on(const T* at, long long index, long long stride) {
  return at + index * stride;
}
template <class T>
static __device__ inline const T* bytes_on(const T* at, long long index, long long stride) {
  return (const T*)((const char*)at + index * stride);
}
template <class T>
static __device__ inline const T* bytes_on(const T* at, int index, long long stride) {  // an index is not negative
  return (const T*)((const char*)at + (long long)(unsigned)index * stride);
}
// Nothing writes to a captured tensor while a kernel runs.
template <class T>
static __device__ inline T element(const T* at) {
#ifdef __CUDA_ARCH__
  return __ldg(at);
#else
  return *at;
#endif
}
// Binary search, by the very steps of the host, so that numbers that do not ascend give the same answer.
template <class T>
static __device__ inline long long upper_bound(const T* at, long long count, long long stride, long long x) {
  long long first = 0, last = count;
  while (first < last) {
    const long long middle = first + (last - first) / 2;
    if (at[middle * stride] <= x) first = middle + 1;
    else last = middle;
  }
  return first;
}

// Reals. min and max of a NaN and a number are the number.
static __device__ inline float min(float a, float b) { return a != a || b < a ? b : a; }
static __device__ inline float max(float a, float b) { return a != a || b > a ? b : a; }
static __device__ inline float sign(float a) { return a > 0 ? 1.0f : a < 0 ? -1.0f : a; }
static __device__ inline float sigmoid(float a) { return 1.0f / (1.0f + expf(-a)); }
static __device__ inline float reciprocal_root(float a) {
#ifdef __CUDA_ARCH__
  return rsqrtf(a);
#else
  return 1.0f / sqrtf(a);
#endif
}
static __device__ inline float from_bits(unsigned bits) {
  union {
    unsigned bits;
    float real;
  } both;
  both.bits = bits;
  return both.real;
}
static __device__ inline float from_bf16(unsigned short half) { return from_bits((unsigned)half << 16); }
static __device__ inline float from_f16(unsigned short half) {
  const unsigned sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
  if (rest < 0x400u) return (sign ? -0x1p-24f : 0x1p-24f) * (float)rest;  // zeroes, denormals
  // Of infinities and NaN the exponent is all ones, of the others it has another offset.
  return from_bits(sign | (rest >= 0x7c00u ? 0x7f800000u | rest << 13 : (rest << 13) + (112u << 23)));
}
}  // namespace mod_math
)";
  return text;
}

std::string_view mod_device_prelude() {
  static constexpr std::string_view text = R"(namespace mod_device {
// Relative error 2^-21 + |x| 2^-23; what is below 2^-126 is 0.
static __device__ inline float exp(float x) { return ptx::exp2(x * 0x1.715476p+0f); }
// Relative error 2^-22.
static __device__ inline float exp2(float x) { return ptx::exp2(x); }
// Relative error 2^-21, absolute error 2^-22 between 1/2 and 2; of denormals -inf.
static __device__ inline float log(float x) { return ptx::log2(x) * 0x1.62e43p-1f; }
// Relative error 2^-20 + |x| 2^-23; what is below 2^-126 is 0.
static __device__ inline float sigmoid(float x) { return ptx::rcp(1.0f + ptx::exp2(x * -0x1.715476p+0f)); }
// Relative error 2^-22; denormals are 0.
static __device__ inline float rsqrt(float x) { return ptx::rsqrt(x); }
static __device__ inline float sqrt(float x) {
  const float root = x * ptx::rsqrt(x);
  return x > 0 && x < 0x1p-126f ? 0 : x == 0 || x > 0x1.fffffep+127f ? x : root;
}
// Relative error 2^-22 for divisors from 2^-126 to 2^126 in size; beyond, as if they were 0 or infinite.
static __device__ inline float ratio(float a, float b) { return a * ptx::rcp(b); }
// Absolute error 2^-21, relative error 2^-19 down to the smallest arguments: 1 - 2 / (e^2x + 1) cancels near 0, where
// two terms of the series, fitted up to 3/16, are exact to 2^-23. (tanh.approx is one instruction and has a relative
// error of 2^-11, as large as what 16-bit inputs lose.)
static __device__ inline float tanh(float x) {
  const float large = ptx::fma(-2.0f, ptx::rcp(1.0f + ptx::exp2(x * 0x1.715476p+1f)), 1.0f), y = x * x;
  const float small = x + x * (y * (-0x1.554dcep-2f + y * 0x1.0ba814p-3f));
  return fabsf(x) < 0.1875f ? small : large;
}
// a tanh(x / b): absolute error a 2^-21.
static __device__ inline float times_tanh(float a, float x, float b) {
  return ptx::fma(-2.0f * a, ptx::rcp(1.0f + ptx::exp2(x * (0x1.715476p+1f * ptx::rcp(b)))), a);
}
static __device__ inline float absolute_tanh(float x) { return times_tanh(1.0f, x, 1.0f); }
static __device__ inline float from_f16(unsigned short half) {
  ptx::f16 x;
  x.bits = half;
  return ptx::to_float(x);
}
}  // namespace mod_device
)";
  return text;
}

}  // namespace tessera::emit
