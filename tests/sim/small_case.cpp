#include "sim/small_case.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "emit/wgmma_text.hpp"
#include "sim/sources.hpp"
#include "sim/tensor_map.hpp"

namespace tessera::sim {
namespace {

using Half16 = std::uint16_t;

float widen(Half16 x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }
Half16 narrow(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  return Half16((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

struct Params {  // of small_forward.cuh
  const void *q, *k, *v;
  void* o;
  float* lse_ln;
  int n_q, n_k, heads;
  float scale_log2;
};

struct Params90 {  // of small_forward_sm90.cuh
  EncodedMap q, k, v, o;
  float* lse_ln;
  int n_q, n_k, heads;
  float scale_log2;
};
constexpr int keys_sm90 = 64;

std::size_t half_bytes(int tokens, const SmallShape& s) {
  return std::size_t(tokens) * std::size_t(s.heads) * std::size_t(s.dim) * 2;
}

EncodedMap map_of(const Memory& x, int tokens, int rows, const SmallShape& s) {
  gpu::TensorMapSpec m;
  m.data = x.as<>(), m.rank = 3, m.swizzle = gpu::TensorSwizzle::b128;
  m.dims[0] = std::uint64_t(s.dim), m.dims[1] = std::uint64_t(s.heads), m.dims[2] = std::uint64_t(tokens);
  m.strides[1] = m.dims[0] * 2, m.strides[2] = m.strides[1] * m.dims[1];
  m.box[0] = 64, m.box[1] = 1, m.box[2] = std::uint32_t(rows);
  return encoded(m);
}

}  // namespace

std::string small_forward_sm90_text(const std::string& kernel, int dim, bool causal) {
  const emit::WgmmaForm forms[] = {{DType::bf16, keys_sm90, false, false, false},
                                   {DType::bf16, dim, true, false, true}};
  return inlined(kernel) + "#line 1 \"src/kernels/ptx/emitted\"\n" + emit::wgmma_text(forms) +
         "#line 1 \"entry\"\nextern \"C\" __global__ void __launch_bounds__(384, 1) small(const __grid_constant__ "
         "small_forward_sm90::Params p) {\n  small_forward_sm90::forward<" +
         std::to_string(dim) + ", " + std::to_string(keys_sm90) + ", 2, " + (causal ? "true" : "false") + ">(p);\n}\n";
}

std::string small_forward_text(const std::string& kernel, int dim, bool causal) {
  return inlined(kernel) +
         "extern \"C\" __global__ void __launch_bounds__(128) small(const __grid_constant__ "
         "small_forward::Params p) {\n  small_forward::forward<" +
         std::to_string(dim) + ", " + (causal ? "true" : "false") + ">(p);\n}\n";
}

SmallCase::SmallCase(SmallShape s, unsigned seed)
    : shape_(s),
      q_("q", half_bytes(s.queries, s), Content::constant),
      k_("k", half_bytes(s.keys, s), Content::constant),
      v_("v", half_bytes(s.keys, s), Content::constant),
      o_("o", half_bytes(s.queries, s), Content::nothing),
      lse_("lse", std::size_t(s.queries) * std::size_t(s.heads) * 4, Content::nothing) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (const Memory* x : {&q_, &k_, &v_})
    for (std::size_t i = 0; i < x->bytes() / 2; ++i) x->as<Half16>()[i] = narrow(normal(random));
}

Result SmallCase::run(const LoadedCode& code, const Schedule& schedule) const {
  const Params params{q_.as<>(),   k_.as<>(),        v_.as<>(),
                      o_.as<>(),   lse_.as<float>(), shape_.queries,
                      shape_.keys, shape_.heads,     float(1 / std::sqrt(double(shape_.dim)) * 1.4426950408889634)};
  const std::int64_t blocks = std::int64_t{(shape_.queries + 63) / 64} * shape_.heads;
  const std::size_t smem_bytes = std::size_t{5} * 64 * 2 * std::size_t(shape_.dim);
  return launch(code, blocks, 128, smem_bytes, &params, schedule);
}

Result SmallCase::run_sm90(const LoadedCode& code, const Schedule& schedule) const {
  const SmallShape& s = shape_;
  const Params90 params{map_of(q_, s.queries, 64, s),
                        map_of(k_, s.keys, keys_sm90, s),
                        map_of(v_, s.keys, keys_sm90, s),
                        map_of(o_, s.queries, 64, s),
                        lse_.as<float>(),
                        s.queries,
                        s.keys,
                        s.heads,
                        float(1 / std::sqrt(double(s.dim)) * 1.4426950408889634)};
  const std::int64_t blocks = std::int64_t{(s.queries + 127) / 128} * s.heads;
  const std::size_t tiles = (128 + 4 * keys_sm90) * std::size_t(s.dim) * 2;
  return launch(code, blocks, 384, tiles + 1024, &params, schedule);
}

double SmallCase::error() const {
  const SmallShape& s = shape_;
  const std::size_t dim = std::size_t(s.dim);
  const auto at = [&](const Memory& x, int token, int head, std::size_t e) {
    return double(widen(x.as<Half16>()[(std::size_t(token) * std::size_t(s.heads) + std::size_t(head)) * dim + e]));
  };
  double worst = 0;
  // A NaN is no number to be compared with.
  const auto note = [&](double ratio) { worst = ratio == ratio ? std::max(worst, ratio) : INFINITY; };
  std::vector<double> p(std::size_t(s.keys), 0.0);
  for (int h = 0; h < s.heads; ++h)
    for (int i = 0; i < s.queries; ++i) {
      const int keys = s.causal ? std::min(s.keys, i + s.keys - s.queries + 1) : s.keys;
      double top = -INFINITY, sum = 0;
      for (int j = 0; j < keys; ++j) {
        double dot = 0;
        for (std::size_t e = 0; e < dim; ++e) dot += at(q_, i, h, e) * at(k_, j, h, e);
        p[std::size_t(j)] = dot / std::sqrt(double(s.dim));
        top = std::max(top, p[std::size_t(j)]);
      }
      for (int j = 0; j < keys; ++j) sum += p[std::size_t(j)] = std::exp(p[std::size_t(j)] - top);
      for (std::size_t e = 0; e < dim; ++e) {
        double want = 0, squares = 0;
        for (int j = 0; j < keys; ++j) {
          const double x = p[std::size_t(j)] / sum * at(v_, j, h, e);
          want += x;
          squares += x * x;
        }
        // One rounding of O, random roundings of P.
        note(std::abs(at(o_, i, h, e) - want) / (std::abs(want) / 256 + 5 * std::sqrt(squares) / 512 + 1e-6));
      }
      const double want = keys <= 0 ? -INFINITY : top + std::log(sum);
      const double got = double(lse_.as<float>()[std::size_t(h) * std::size_t(s.queries) + std::size_t(i)]);
      note(want == got ? 0 : std::abs(got - want) / 2e-5 / std::max(1.0, std::abs(want)));
    }
  if (!o_.intact() || !lse_.intact()) worst = INFINITY;
  return worst;
}

}  // namespace tessera::sim
