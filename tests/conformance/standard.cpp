#include "standard.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

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

// Visits [0, count) in one of several orders: from another start each, every second one backwards.
template <class Visit>
void in_order(std::int64_t count, int order, int orders, Visit visit) {
  const std::int64_t start = order * count / orders;
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int64_t i = start + n < count ? start + n : start + n - count;
    visit(order % 2 == 0 ? i : count - 1 - i);
  }
}

}  // namespace

Standard attend_standard(const Inputs& inputs, const Options& options, DType out, std::span<const Row> rows, int order,
                         int orders) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<Sequence> all = sequences(inputs, options);
  const std::int64_t group = heads_of(inputs.q) / heads_of(inputs.k);
  const std::int64_t dim = dim_of(inputs.q), dim_v = dim_of(inputs.v);
  const bool scale_first = order % 2 == 1, fused = order / 2 % 2 == 1;
  const float all_scale = scale_of(inputs, options);
  const float scale = scale_first ? 1 : all_scale, q_scale = scale_first ? all_scale : 1;
  Attended attended(options.mask);
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
        for (std::int64_t i = 0; i < dim; ++i) k.push_back(static_cast<float>(element(inputs.k, at_k + i)));
        for (std::int64_t i = 0; i < dim_v; ++i) v.push_back(static_cast<float>(element(inputs.v, at_v + i)));
      }
      loaded_sequence = row.b, loaded_head = kv_head;
    }
    const std::int64_t at_q = q_row_offset(inputs.q, sequence, row.q, row.h);
    for (std::int64_t i = 0; i < dim; ++i) q[i] = q_scale * static_cast<float>(element(inputs.q, at_q + i));
    score.clear(), seen.clear();
    float top = -infinity;
    for (std::int64_t key : attended.keys(sequence, row.h, row.q)) {
      const float* k_row = k.data() + key * dim;
      float dot = 0;
      in_order(dim, order, orders,
               [&](std::int64_t i) { dot = fused ? std::fma(q[i], k_row[i], dot) : dot + q[i] * k_row[i]; });
      if (scale * dot == -infinity) continue;
      score.push_back(scale * dot), seen.push_back(key);
      top = std::max(top, scale * dot);
    }
    float sum = 0;
    std::fill(o.begin(), o.end(), 0.0f);
    in_order(std::ssize(seen), order, orders, [&](std::int64_t n) {
      const float p = std::exp(score[n] - top), rounded = round_to(inputs.q.dtype, p);
      const float* v_row = v.data() + seen[n] * dim_v;
      sum += p;
      for (std::int64_t j = 0; j < dim_v; ++j) o[j] += rounded * v_row[j];
    });
    for (float value : o) standard.o.push_back(seen.empty() ? 0 : round_to(out, value / sum));
    standard.lse_ln.push_back(seen.empty() ? -infinity : top + std::log(sum));
  }
  return standard;
}

}  // namespace tessera::conformance
