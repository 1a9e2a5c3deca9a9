#include "poison.hpp"

#include <cstring>
#include <new>

namespace tessera::conformance {
namespace {

constexpr std::size_t guard_bytes = 256;
constexpr unsigned char guard = 0xa5, scratch = 0xff;  // 0xff..ff is a NaN in every floating type

std::uint64_t pattern(DType dtype, Poison poison) {
  const bool output = poison == Poison::output;
  switch (dtype) {
    case DType::f32:
      return output ? 0x7fc5ca1eu : 0xffd1d1d1u;
    case DType::bf16:
      return output ? 0x7fc5u : 0xffd1u;
    case DType::f16:
      return output ? 0x7e5au : 0xfed1u;
    case DType::i64:
      return 0x7700000077000000u;
    default:
      return 0x77000000u;
  }
}

}  // namespace

bool is_output_poison(const Tensor& tensor, std::int64_t offset) {
  const std::uint64_t bits = pattern(tensor.dtype, Poison::output);
  if (size_bytes(tensor.dtype) == 4) return tensor.as<const std::uint32_t>()[offset] == bits;
  return tensor.as<const std::uint16_t>()[offset] == bits;
}

Buffer::Buffer(DType dtype, std::int64_t elements, std::int64_t shift, Poison poison)
    : dtype_(dtype),
      elements_(elements),
      poison_(poison),
      bytes_(static_cast<std::size_t>(elements * size_bytes(dtype))) {
  const std::size_t shift_bytes = static_cast<std::size_t>(shift * size_bytes(dtype));
  memory_bytes_ = (2 * guard_bytes + shift_bytes + bytes_ + 63) / 64 * 64;
  memory_.reset(static_cast<unsigned char*>(std::aligned_alloc(64, memory_bytes_)));
  if (!memory_) throw std::bad_alloc();
  data_ = memory_.get() + guard_bytes + shift_bytes;
  this->poison();
  known_.emplace(Region{reinterpret_cast<char*>(memory_.get()), memory_bytes_, reinterpret_cast<char*>(data_), bytes_});
}

void Buffer::poison() {
  std::memset(memory_.get(), guard, memory_bytes_);
  const std::uint64_t bits = pattern(dtype_, poison_);
  const std::size_t size = static_cast<std::size_t>(size_bytes(dtype_));
  for (std::int64_t i = 0; i < elements_; ++i) std::memcpy(data_ + i * size, &bits, size);
}

bool Buffer::guards_intact() const {
  for (const unsigned char* p = memory_.get(); p < data_; ++p)
    if (*p != guard) return false;
  for (const unsigned char* p = data_ + bytes_; p < memory_.get() + memory_bytes_; ++p)
    if (*p != guard) return false;
  return true;
}

void Buffer::remember() { before_.assign(data_, data_ + bytes_); }
bool Buffer::unchanged() const { return bytes_ == 0 || std::memcmp(before_.data(), data_, bytes_) == 0; }

std::int64_t Buffer::first_stray_write(const std::vector<char>& owned) const {
  const std::uint64_t bits = pattern(dtype_, poison_);
  const std::size_t size = static_cast<std::size_t>(size_bytes(dtype_));
  for (std::int64_t i = 0; i < elements_; ++i)
    if (!owned[i] && std::memcmp(data_ + i * size, &bits, size) != 0) return i;
  return -1;
}

GuardedWorkspace::GuardedWorkspace(std::size_t bytes) : bytes_(bytes), memory_(bytes + 2 * guard_bytes + 64, guard) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) + guard_bytes;
  data_ = memory_.data() + guard_bytes + (64 - address % 64) % 64;
  std::memset(data_, scratch, bytes_);
  known_.emplace(
      Region{reinterpret_cast<char*>(memory_.data()), memory_.size(), reinterpret_cast<char*>(data_), bytes_});
}

bool GuardedWorkspace::guards_intact() const {
  for (const unsigned char* p = memory_.data(); p < data_; ++p)
    if (*p != guard) return false;
  for (const unsigned char* p = data_ + bytes_; p < memory_.data() + memory_.size(); ++p)
    if (*p != guard) return false;
  return true;
}

}  // namespace tessera::conformance
