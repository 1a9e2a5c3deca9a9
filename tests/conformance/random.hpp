// Random numbers that are the same on every machine and compiler: a replayed case must be the same case.
// Must not know: tensors, attention.
#pragma once
#include <cmath>
#include <cstdint>
#include <initializer_list>

namespace tessera::conformance {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x243f6a8885a308d3u) {}

  std::uint64_t next() {  // a Weyl sequence through a 64-bit mixer
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, count); 0 for an empty range.
  std::int64_t below(std::int64_t count) {
    return count <= 0 ? 0 : static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(count));
  }
  std::int64_t between(std::int64_t first, std::int64_t last) { return first + below(last - first + 1); }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double probability) { return uniform() < probability; }
  // Sum of four uniforms, centred, variance 1: normal enough, and free of the math library's last bits.
  float normal() {
    const std::uint64_t bits = next();
    double sum = 0;
    for (int part = 0; part < 4; ++part) sum += static_cast<double>((bits >> (16 * part)) & 0xffffu);
    return static_cast<float>((sum / 65536.0 - 2.0) * 1.7320508075688772);
  }
  template <class T>
  T pick(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<std::int64_t>(choices.size()))];
  }

 private:
  std::uint64_t state_;
};

}  // namespace tessera::conformance
