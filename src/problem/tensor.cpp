// Tensors: their types' names and sizes, views, their text, and the 16-bit floats.
// Must not know: attention.
#include "tessera/tensor.hpp"

#include <algorithm>
#include <ostream>
#include <string>

#include "problem/fail.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {
namespace {

using problem::fail;

struct DTypeName {
  DType dtype;
  std::string_view name;
};
constexpr DTypeName dtypes[] = {{DType::none, "none"}, {DType::f32, "f32"}, {DType::bf16, "bf16"}, {DType::f16, "f16"},
                                {DType::i32, "i32"},   {DType::i64, "i64"}, {DType::u8, "u8"},     {DType::b8, "b8"}};

int valid_rank(int rank) { return std::clamp(rank, 0, max_rank); }

bool is_dense(const Tensor& t) {
  std::int64_t expected = 1;
  for (int axis = valid_rank(t.rank) - 1; axis >= 0; --axis) {
    if (t.shape[axis] > 1 && t.stride[axis] != expected) return false;
    if (__builtin_mul_overflow(expected, std::max<std::int64_t>(t.shape[axis], 1), &expected)) return false;
  }
  return true;
}

void print_list(std::ostream& out, const std::array<std::int64_t, max_rank>& values, int count) {
  out << '[';
  for (int axis = 0; axis < count; ++axis) out << (axis ? ", " : "") << values[axis];
  out << ']';
}

Tensor make(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
            std::initializer_list<std::int64_t> stride, Device device) {
  if (size_bytes(dtype) == 0) fail(Code::invalid_dtype, "a tensor needs an element type, not ", name(dtype));
  if (shape.size() > max_rank)
    fail(Code::invalid_shape, "a tensor of rank ", shape.size(), ": at most ", max_rank, " is allowed");
  if (stride.size() != 0 && stride.size() != shape.size())
    fail(Code::invalid_shape, "a tensor with ", shape.size(), " extents and ", stride.size(),
         " strides: there is one stride for each extent, or none at all");
  Tensor t;
  t.data = data, t.dtype = dtype, t.device = device;
  t.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), t.shape.begin());
  for (int axis = 0; axis < t.rank; ++axis)
    if (t.shape[axis] < 0)
      fail(Code::invalid_shape, "extent ", axis, " of a tensor is ", t.shape[axis], ": extents are 0 or more");
  if (stride.size() != 0) {
    std::copy(stride.begin(), stride.end(), t.stride.begin());
    return t;
  }
  std::int64_t next = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    t.stride[axis] = next;
    if (axis > 0 && __builtin_mul_overflow(next, std::max<std::int64_t>(t.shape[axis], 1), &next)) {
      t.stride.fill(0);
      fail(Code::size_overflow, "the row-major strides of ", t, " leave 63 bits");
    }
  }
  return t;
}

}  // namespace

std::string_view name(DType dtype) {
  const auto* found = std::ranges::find(dtypes, dtype, &DTypeName::dtype);
  return found == std::end(dtypes) ? "unknown" : found->name;
}

DType parse_dtype(std::string_view text) {
  std::string names;
  for (const DTypeName& info : dtypes) {
    if (info.dtype == DType::none) continue;
    if (info.name == text) return info.dtype;
    names.append(names.empty() ? "" : ", ").append(info.name);
  }
  fail(Code::invalid_dtype, "'", text, "' is no type; the types are ", names);
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

std::ostream& operator<<(std::ostream& out, Device device) {
  if (device.type == DeviceType::cpu) return out << "cpu";
  return out << "cuda:" << device.index;
}

std::int64_t Tensor::elements() const {
  if (rank < 0 || rank > max_rank) fail(Code::invalid_shape, "a tensor of rank ", rank, ": 0 to ", max_rank);
  bool empty = false, overflow = false;
  std::int64_t product = 1;
  for (int axis = 0; axis < rank; ++axis) {
    if (shape[axis] < 0)
      fail(Code::invalid_shape, "extent ", axis, " of ", *this, " is ", shape[axis], ": extents are 0 or more");
    empty |= shape[axis] == 0;
    if (!empty && !overflow) overflow = __builtin_mul_overflow(product, shape[axis], &product);
  }
  if (empty) return 0;
  if (overflow) fail(Code::size_overflow, *this, " has more than 2^63 - 1 elements");
  return product;
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined() && !tensor.data && tensor.rank == 0) return out << "none";
  const int rank = valid_rank(tensor.rank);
  out << tensor.dtype;
  print_list(out, tensor.shape, rank);
  if (!is_dense(tensor)) print_list(out << " strides ", tensor.stride, rank);
  if (tensor.device.type != DeviceType::cpu) out << " on " << tensor.device;
  return out;
}

Tensor tensor(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
              std::initializer_list<std::int64_t> stride, Device device) {
  return make(data, dtype, shape, stride, device);
}

Tensor tensor(const void* data, DType dtype, std::initializer_list<std::int64_t> shape,
              std::initializer_list<std::int64_t> stride, Device device) {
  Tensor t = make(const_cast<void*>(data), dtype, shape, stride, device);
  t.read_only = true;
  return t;
}

// ------------------------------------------------------------------------------------------------- 16-bit floats
// In integers throughout: the rounding mode and flush-to-zero of the caller's thread change nothing.

BFloat16::BFloat16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  if ((word & 0x7fffffffu) > 0x7f800000u)
    bits = static_cast<std::uint16_t>((word >> 16) | 0x40u);  // quiet: a payload in the low bits alone must not vanish
  else bits = static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

Float16::Float16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (word >> 16) & 0x8000u, magnitude = word & 0x7fffffffu;
  std::uint32_t result;
  if (magnitude > 0x7f800000u) {
    result = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520, the middle between the largest value and the next, goes up
    result = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14: normal here as well
    result = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {  // in units of 2^-24
    const std::uint32_t shift = 126u - (magnitude >> 23);
    if (shift > 24) {
      result = 0;
    } else {
      const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
      const std::uint32_t rest = mantissa & ((1u << shift) - 1u), half = 1u << (shift - 1u);
      result = mantissa >> shift;
      result += rest > half || (rest == half && (result & 1u)) ? 1u : 0u;
    }
  }
  bits = static_cast<std::uint16_t>(sign | result);
}

Float16::operator float() const {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1fu;
  std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // A denormal: its leading one becomes the implicit one.
  const auto zeros = static_cast<std::uint32_t>(std::countl_zero(mantissa)) - 21u;  // above bit 10
  mantissa = (mantissa << zeros) & 0x3ffu;
  return std::bit_cast<float>(sign | ((113u - zeros) << 23) | (mantissa << 13));
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
