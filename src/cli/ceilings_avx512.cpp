// The ceiling of AVX-512: 24 chains and 4 operands in 32 registers.
#include <immintrin.h>

#include "cli/ceilings_loop.hpp"

namespace tessera::cli {
namespace {

struct Avx512 {
  using Vector = __m512;
  static Vector apply(Vector a, Vector x, Vector y) { return _mm512_fmadd_ps(a, x, y); }
};

}  // namespace

const FmaLoop fma_loop_avx512{"avx512", flops_per_round<Avx512, 24>, fma_rounds<Avx512, 24>};

}  // namespace tessera::cli
