// Tensors as the library sees them: views that own nothing.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string_view>
#include <type_traits>

#include "tessera/error.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {

enum class DType : std::uint8_t { none, f32, bf16, f16, i32, i64, u8, b8 };
inline constexpr DType f32 = DType::f32, bf16 = DType::bf16, f16 = DType::f16, i32 = DType::i32, i64 = DType::i64,
                       u8 = DType::u8, b8 = DType::b8;

std::string_view name(DType dtype);        // "f32", "bf16", ...
DType parse_dtype(std::string_view text);  // throws Error(invalid_dtype) listing the names
// Of one element; none: 0.
constexpr std::int64_t size_bytes(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::b8:
      return 1;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::i64:
      return 8;
    case DType::none:
      break;
  }
  return 0;
}
std::ostream& operator<<(std::ostream& out, DType dtype);

// Storage types for the 16-bit floats: bits only, so that a pointer says what it points to.
// Conversion from float rounds to nearest even; NaN stays NaN.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value);
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};
struct Float16 {
  std::uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};

enum class DeviceType : std::uint8_t { cpu, cuda };
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};
std::ostream& operator<<(std::ostream& out, Device device);  // "cpu", "cuda:0"

inline constexpr int max_rank = 5;

// A view: pointer, type, shape and strides (in elements, not bytes). Copying copies the view.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::none;
  Device device{};
  bool read_only = false;  // made from a const pointer: refused as an output
  int rank = 0;
  std::array<std::int64_t, max_rank> shape{};
  std::array<std::int64_t, max_rank> stride{};

  bool defined() const { return dtype != DType::none; }
  // Product of the extents. Throws Error(size_overflow) beyond 2^63 - 1, Error(invalid_shape) for a negative extent.
  std::int64_t elements() const;
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);  // "f32[2, 128, 8, 64]", strides where not dense

template <class T>
constexpr DType dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>) return DType::f32;
  else if constexpr (std::is_same_v<U, BFloat16>) return DType::bf16;
  else if constexpr (std::is_same_v<U, Float16>) return DType::f16;
  else if constexpr (std::is_same_v<U, bool>) return DType::b8;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 4) return DType::i32;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 8) return DType::i64;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 1) return DType::u8;
  else return DType::none;
}

// A view of `shape` at `data`; strides in elements, row-major where left out.
// Throws Error(invalid_shape) when rank is over max_rank, an extent is negative, or ranks differ; Error(invalid_dtype)
// for a type without elements; Error(size_overflow) when the strides that are left out would leave 63 bits.
Tensor tensor(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
              std::initializer_list<std::int64_t> stride = {}, Device device = {});
Tensor tensor(const void* data, DType dtype, std::initializer_list<std::int64_t> shape,
              std::initializer_list<std::int64_t> stride = {}, Device device = {});
// The element type follows from the pointer.
template <class T>
requires(!std::is_void_v<T> && dtype_of<T>() != DType::none) Tensor
    tensor(T* data, std::initializer_list<std::int64_t> shape, std::initializer_list<std::int64_t> stride = {},
           Device device = {}) {
  if constexpr (std::is_const_v<T>) return tensor(static_cast<const void*>(data), dtype_of<T>(), shape, stride, device);
  else return tensor(static_cast<void*>(data), dtype_of<T>(), shape, stride, device);
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
