#include "cli/scene.hpp"

#include <fmt/format.h>

#include <cmath>

#include "cli/commands.hpp"
#include "cli/report.hpp"

namespace tessera::cli {
namespace {

std::size_t byte_count(const Tensor& t) {
  return static_cast<std::size_t>(t.elements()) * static_cast<std::size_t>(size_bytes(t.dtype));
}

Tensor output_view(const Shape& s, void* data) {
  return s.packed.empty() ? tensor(data, s.dtype, {s.b, s.sq, s.hq, s.dv}) : tensor(data, s.dtype, {s.sq, s.hq, s.dv});
}

// The sum of four 16-bit numbers out of one 64-bit one: close to normal, cheap, and never a denormal.
float random_value(std::uint64_t& state) {
  std::uint64_t x = state += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  const auto part = [&](int i) { return static_cast<float>(static_cast<std::int16_t>(x >> (16 * i))); };
  return (part(0) + part(1) + part(2) + part(3)) * (0.8660254f / 32768);
}

float value_at(const Tensor& t, std::int64_t i) {
  if (t.dtype == DType::bf16) return static_cast<float>(t.as<BFloat16>()[i]);
  if (t.dtype == DType::f16) return static_cast<float>(t.as<Float16>()[i]);
  return t.as<float>()[i];
}

}  // namespace

void fill_random(const Tensor& t, std::uint64_t seed) {
  std::uint64_t state = seed * 0x2545f4914f6cdd1du;
  const std::int64_t count = t.elements();
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = random_value(state);
    if (t.dtype == DType::bf16) t.as<BFloat16>()[i] = BFloat16(value);
    else if (t.dtype == DType::f16) t.as<Float16>()[i] = Float16(value);
    else t.as<float>()[i] = value;
  }
}

Scene::Scene(const Shape& shape) : shape_(shape), prefix_(prefix_of(shape)) {
  inputs_ = inputs_of(shape_, anywhere(), prefix_);
  describe(inputs_, options_of(shape_, ""));  // before anything is allocated
  const Tensor o = output_view(shape_, anywhere().q);
  double needed = 0;
  for (const Tensor* t : std::initializer_list<const Tensor*>{&inputs_.q, &inputs_.k, &inputs_.v, &o})
    needed += static_cast<double>(t->elements()) * static_cast<double>(size_bytes(t->dtype));
  if (needed > 0.9 * available_bytes())
    throw Misuse(fmt::format("the tensors of {} need {}, {} are free", text(shape), bytes_text(needed),
                             bytes_text(available_bytes())));
  q_ = Block(byte_count(inputs_.q)), k_ = Block(byte_count(inputs_.k)), v_ = Block(byte_count(inputs_.v));
  o_memory_ = Block(byte_count(o));
  inputs_ = inputs_of(shape_, {q_.data(), k_.data(), v_.data()}, prefix_);
  fill_random(inputs_.q, 1), fill_random(inputs_.k, 2), fill_random(inputs_.v, 3);
  o_ = output_view(shape_, o_memory_.data());
}

Outputs Scene::outputs_in(const Block& memory) const { return {output_view(shape_, memory.data()), {}}; }

double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    const double difference = std::abs(double{value_at(a, i)} - double{value_at(b, i)});
    if (!(difference <= largest)) largest = difference;  // a NaN stays
  }
  return largest;
}

}  // namespace tessera::cli
