// The ceiling of AVX2 with FMA: 12 chains and 4 operands in 16 registers.
#include <immintrin.h>

#include "cli/ceilings_loop.hpp"

namespace tessera::cli {
namespace {

struct Avx2 {
  using Vector = __m256;
  static Vector apply(Vector a, Vector x, Vector y) { return _mm256_fmadd_ps(a, x, y); }
};

}  // namespace

const FmaLoop fma_loop_avx2{"avx2", flops_per_round<Avx2, 12>, fma_rounds<Avx2, 12>};

}  // namespace tessera::cli
