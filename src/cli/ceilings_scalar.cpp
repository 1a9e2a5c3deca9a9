// The ceiling of portable code: what the compiler makes of vectors of four floats without any flag. There may be no
// fused instruction, so multiplications and additions are counted as they come.
#include <string.h>

#include "cli/ceilings_table.hpp"

// Makes the compiler forget what it knows of a register, so that no product is hoisted out of the loop.
#if defined(__x86_64__)
#define TESSERA_FORGET(value) asm volatile("" : "+x"(value))
#elif defined(__aarch64__)
#define TESSERA_FORGET(value) asm volatile("" : "+w"(value))
#else
#define TESSERA_FORGET(value) asm volatile("" : "+m"(value))
#endif

namespace tessera::cli {
namespace {

using Vector __attribute__((vector_size(16))) = float;
constexpr int lanes = 4;
constexpr int accumulators = 12;  // with operands and a temporary they fill 16 registers

Vector load(const float* from) {
  Vector v;
  memcpy(&v, from, sizeof v);
  return v;
}

// acc += x * y: multiplications and additions on their own ports. In place (acc = acc * x + y) the two latencies add up
// and 12 chains reach 85 % of this.
float rounds_of(const float* seeds, long rounds) {
  Vector x0 = load(seeds), x1 = load(seeds + lanes);
  const Vector y = load(seeds + 2 * lanes);
  Vector acc[accumulators];
#pragma GCC unroll 32
  for (int i = 0; i < accumulators; ++i) acc[i] = load(seeds + 64 + i * 16);
  for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
    for (int i = 0; i < accumulators; ++i) {
      TESSERA_FORGET(x0);
      acc[i] += x0 * y;
    }
#pragma GCC unroll 32
    for (int i = 0; i < accumulators; ++i) {
      TESSERA_FORGET(x1);
      acc[i] += x1 * y;
    }
  }
  Vector sum = acc[0];
  for (int i = 1; i < accumulators; ++i) sum += acc[i];
  return sum[0] + sum[1] + sum[2] + sum[3];
}

}  // namespace

const FmaLoop fma_loop_scalar{"scalar", 2.0 * 2 * accumulators* lanes, rounds_of};

}  // namespace tessera::cli
