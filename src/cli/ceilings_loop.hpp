// The loop of every FMA ceiling. Include it in a file that is compiled for one instruction set: everything here is
// local to that file, so that no other gets its instructions.
#pragma once
#include <string.h>

#include "cli/ceilings_table.hpp"

namespace tessera::cli {
namespace {

// acc = acc * x + y with two random (x, y) in turns and |x| < 1: each lane swings between two random numbers, so the
// operands keep changing and nothing overflows, dies out or can be hoisted. `accumulators` independent chains hide the
// latency; they and the four operands fill the registers. Fma::apply is one multiply-add of Fma::Vector.
template <class Fma, int accumulators>
float fma_rounds(const float* seeds, long rounds) {
  using Vector = typename Fma::Vector;
  constexpr int lanes = sizeof(Vector) / sizeof(float);
  const auto load = [&](int at) {
    Vector v;
    memcpy(&v, seeds + at, sizeof v);
    return v;
  };
  const Vector x0 = load(0), y0 = load(lanes), x1 = load(2 * lanes), y1 = load(3 * lanes);
  Vector acc[accumulators];
  // Different starts: two equal chains would be computed once.
#pragma GCC unroll 32
  for (int i = 0; i < accumulators; ++i) acc[i] = load(64 + i * 16);
  for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
    for (int i = 0; i < accumulators; ++i) acc[i] = Fma::apply(acc[i], x0, y0);
#pragma GCC unroll 32
    for (int i = 0; i < accumulators; ++i) acc[i] = Fma::apply(acc[i], x1, y1);
  }
  Vector sum = acc[0];
#pragma GCC unroll 32
  for (int i = 1; i < accumulators; ++i) sum += acc[i];
  float total = 0;
  for (int i = 0; i < lanes; ++i) total += sum[i];
  return total;
}

// Two passes over the accumulators a round, a multiplication and an addition each.
template <class Fma, int accumulators>
constexpr double flops_per_round = 2.0 * accumulators*(sizeof(typename Fma::Vector) / sizeof(float)) * 2;

}  // namespace
}  // namespace tessera::cli
