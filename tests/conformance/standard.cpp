#include "standard.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mods.hpp"

namespace tessera::conformance {

float round_to(DType dtype, float value) {
  switch (dtype) {
    case DType::bf16:
      return static_cast<float>(BFloat16(value));
    case DType::f16:
      return static_cast<float>(Float16(value));
    default:
      return value;
  }
}

namespace {

// [0, count) in one of several orders: from another start each, every second one backwards.
std::vector<std::int64_t> in_order(std::int64_t count, int order, int orders) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int64_t i = (order * count / orders + n) % count;
    all[n] = order % 2 == 0 ? i : count - 1 - i;
  }
  return all;
}

// q . k for four rows of k at a time, each summed in the order of its elements. Fused: multiply and add in one rounding
// (through fp64, where the product is exact).
template <bool Fused>
void dot_four(const float* q, const float* const (&k)[4], std::int64_t dim, float (&dot)[4]) {
  for (float& sum : dot) sum = 0;
  for (std::int64_t i = 0; i < dim; ++i)
    for (int n = 0; n < 4; ++n)
      dot[n] = Fused ? static_cast<float>(static_cast<double>(q[i]) * static_cast<double>(k[n][i]) +
                                          static_cast<double>(dot[n]))
                     : dot[n] + q[i] * k[n][i];
}

}  // namespace

Standard attend_standard(const Inputs& inputs, const Options& options, DType out, std::span<const Row> rows, int order,
                         int orders, Attended* attended) {
  constexpr float infinite = std::numeric_limits<float>::infinity();
  const std::vector<Sequence> all = sequences(inputs, options);
  const std::int64_t group = heads_of(inputs.q) / heads_of(inputs.k);
  const std::int64_t dim = dim_of(inputs.q), dim_v = dim_of(inputs.v);
  const bool scale_first = order % 2 == 1, fused = order / 2 % 2 == 1;
  const float all_scale = scale_of(inputs, options);
  const float scale = scale_first ? 1 : all_scale, q_scale = scale_first ? all_scale : 1;
  Attended own(inputs, options);
  const Evaluated mod(options.score.graph(), inputs);
  if (!attended) attended = &own;
  const std::vector<std::int64_t> dims = in_order(dim, order, orders);
  Standard standard;
  std::vector<float> q(dim), k, v, score, o(dim_v);
  std::vector<std::int64_t> seen;
  std::int64_t loaded_sequence = -1, loaded_head = -1;
  for (const Row& row : rows) {
    const Sequence& sequence = all[row.b];
    const std::int64_t kv_head = row.h / group;
    if (loaded_sequence != row.b || loaded_head != kv_head) {
      k.clear(), v.clear();
      for (std::int64_t token = 0; token < sequence.k_count; ++token) {
        const std::int64_t at_k = k_row_offset(inputs.k, sequence, token, kv_head);
        const std::int64_t at_v = k_row_offset(inputs.v, sequence, token, kv_head);
        for (std::int64_t i : dims) k.push_back(static_cast<float>(element(inputs.k, at_k + i)));
        for (std::int64_t i = 0; i < dim_v; ++i) v.push_back(static_cast<float>(element(inputs.v, at_v + i)));
      }
      loaded_sequence = row.b, loaded_head = kv_head;
    }
    const std::int64_t at_q = q_row_offset(inputs.q, sequence, row.q, row.h);
    for (std::int64_t i = 0; i < dim; ++i) q[i] = q_scale * static_cast<float>(element(inputs.q, at_q + dims[i]));
    score.clear(), seen.clear();
    float top = -infinite;
    const std::vector<std::int64_t>& keys = attended->keys(sequence, row.h, row.q);
    for (std::size_t first = 0; first < keys.size(); first += 4) {
      const std::size_t count = std::min<std::size_t>(4, keys.size() - first);
      const float* k_rows[4];
      float dot[4];
      for (std::size_t n = 0; n < 4; ++n) k_rows[n] = k.data() + keys[first + std::min(n, count - 1)] * dim;
      fused ? dot_four<true>(q.data(), k_rows, dim, dot) : dot_four<false>(q.data(), k_rows, dim, dot);
      for (std::size_t n = 0; n < count; ++n) {
        const float s = mod.score_fp32_at(sequence, row.h, row.q, keys[first + n], scale * dot[n]);
        if (s == -infinite) continue;
        score.push_back(s), seen.push_back(keys[first + n]);
        top = std::max(top, s);
      }
    }
    const float sink = static_cast<float>(sink_of(inputs, row.h));
    const bool empty = seen.empty() && sink == -infinite;
    if (sink > top || std::isnan(sink)) top = sink;
    float sum = sink == -infinite ? 0 : std::exp(sink - top);
    std::fill(o.begin(), o.end(), 0.0f);
    for (std::int64_t n : in_order(std::ssize(seen), order, orders)) {
      const float p = std::exp(score[n] - top), rounded = round_to(inputs.q.dtype, p);
      const float* v_row = v.data() + seen[n] * dim_v;
      sum += p;
      for (std::int64_t j = 0; j < dim_v; ++j) o[j] += rounded * v_row[j];
    }
    for (float value : o) standard.o.push_back(empty ? 0 : round_to(out, value / sum));
    standard.lse_ln.push_back(empty ? -infinite : top + std::log(sum));
  }
  return standard;
}

}  // namespace tessera::conformance
