#include "cpu/merge.hpp"

#include <cmath>
#include <limits>

namespace tessera::cpu {
namespace {

float read(const Tensor& x, std::int64_t at) {
  switch (x.dtype) {
    case DType::bf16:
      return static_cast<float>(x.as<const BFloat16>()[at]);
    case DType::f16:
      return static_cast<float>(x.as<const Float16>()[at]);
    default:
      return x.as<const float>()[at];
  }
}
void write(const Tensor& x, std::int64_t at, float value) {
  switch (x.dtype) {
    case DType::bf16:
      x.as<BFloat16>()[at] = BFloat16(value);
      break;
    case DType::f16:
      x.as<Float16>()[at] = Float16(value);
      break;
    default:
      x.as<float>()[at] = value;
  }
}

// Position of a row's first element in o ([batch, tokens, heads, dim] or [total, heads, dim]) and in lse.
struct Row {
  std::int64_t o, lse;
};
Row row(const Outputs& x, std::int64_t b, std::int64_t t, std::int64_t h) {
  const auto &o = x.o.stride, &l = x.lse.stride;
  if (x.o.rank == 3) return {t * o[0] + h * o[1], h * l[0] + t * l[1]};
  return {b * o[0] + t * o[1] + h * o[2], b * l[0] + h * l[1] + t * l[2]};
}

}  // namespace

void merge(const Outputs& a, const Outputs& b, const Outputs& out) {
  const bool packed = a.o.rank == 3;
  const std::int64_t batches = packed ? 1 : a.o.shape[0], tokens = a.o.shape[packed ? 0 : 1],
                     heads = a.o.shape[packed ? 1 : 2], dim = a.o.shape[packed ? 2 : 3];
  constexpr float empty = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < batches; ++i)
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t h = 0; h < heads; ++h) {
        const Row at_a = row(a, i, t, h), at_b = row(b, i, t, h), at = row(out, i, t, h);
        const float lse_a = read(a.lse, at_a.lse), lse_b = read(b.lse, at_b.lse);
        const bool has_a = lse_a != empty, has_b = lse_b != empty;
        // One of them empty: the other one as it is, bit for bit. NaN is not empty: it reaches the row.
        const double top = std::fmax(lse_a, lse_b);
        double wa = std::exp(lse_a - top), wb = std::exp(lse_b - top);
        const double sum = wa + wb;
        wa /= sum, wb /= sum;
        for (std::int64_t j = 0; j < dim; ++j) {
          const float oa = has_a ? read(a.o, at_a.o + j) : 0, ob = has_b ? read(b.o, at_b.o + j) : 0;
          write(out.o, at.o + j, !has_a ? ob : !has_b ? oa : static_cast<float>(wa * oa + wb * ob));
        }
        const float lse = !has_a ? lse_b : !has_b ? lse_a : static_cast<float>(top + std::log(sum));
        if (out.lse.defined()) write(out.lse, at.lse, lse);
      }
}

}  // namespace tessera::cpu
