#include "oracle.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mods.hpp"
#include "random.hpp"

namespace tessera::conformance {

namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();
}

// The definition. Masked keys, and keys whose score is -inf, are left out, never multiplied by zero.
Exact attend_exactly(const Inputs& inputs, const Options& options, std::span<const Row> rows, Attended* attended) {
  const std::vector<Sequence> all = sequences(inputs, options);
  const std::int64_t group = heads_of(inputs.q) / heads_of(inputs.k);
  const std::int64_t dim = dim_of(inputs.q), dim_v = dim_of(inputs.v);
  const double scale = scale_of(inputs, options);
  Attended own(inputs, options);
  const Evaluated mod(options.score.graph(), inputs);
  if (!attended) attended = &own;
  Exact exact;
  exact.dim_v = dim_v;
  std::vector<double> q(dim), k, v, score, size;
  std::vector<std::int64_t> seen;
  std::int64_t loaded_sequence = -1, loaded_head = -1;
  for (const Row& row : rows) {
    const Sequence& sequence = all[row.b];
    const std::int64_t kv_head = row.h / group;
    if (loaded_sequence != row.b || loaded_head != kv_head) {  // this head's keys and values in fp64
      k.clear(), v.clear();
      for (std::int64_t token = 0; token < sequence.k_count; ++token) {
        const std::int64_t at_k = k_row_offset(inputs.k, sequence, token, kv_head);
        const std::int64_t at_v = k_row_offset(inputs.v, sequence, token, kv_head);
        for (std::int64_t i = 0; i < dim; ++i) k.push_back(element(inputs.k, at_k + i));
        for (std::int64_t i = 0; i < dim_v; ++i) v.push_back(element(inputs.v, at_v + i));
      }
      loaded_sequence = row.b, loaded_head = kv_head;
    }
    const std::int64_t at_q = q_row_offset(inputs.q, sequence, row.q, row.h);
    for (std::int64_t i = 0; i < dim; ++i) q[i] = element(inputs.q, at_q + i);
    score.clear(), size.clear(), seen.clear();
    double top = -infinity;
    for (std::int64_t key : attended->keys(sequence, row.h, row.q)) {
      double dot = 0, terms = 0;
      for (std::int64_t i = 0; i < dim; ++i) {
        const double term = q[i] * k[key * dim + i];
        dot += term, terms += std::abs(term);
      }
      const double s = mod.score_at(sequence, row.h, row.q, key, scale * dot);
      if (s == -infinity) continue;
      score.push_back(s), size.push_back(std::abs(scale) * terms), seen.push_back(key);
      top = std::max(top, s);
    }
    const double sink = sink_of(inputs, row.h);
    double keys_sum = 0;
    for (const double s : score) keys_sum += std::exp(s - top);
    exact.size.push_back(sink == -infinity || seen.empty() ? 1 : std::max(1.0, std::abs(top + std::log(keys_sum))));
    const bool empty = seen.empty() && sink == -infinity;
    if (sink > top || std::isnan(sink)) top = sink;
    double sum = sink == -infinity ? 0 : std::exp(sink - top);
    std::vector<double> o(dim_v), pv(dim_v);
    for (std::size_t n = 0; n < seen.size(); ++n) {
      const double p = std::exp(score[n] - top);
      sum += p;
      for (std::int64_t j = 0; j < dim_v; ++j) {
        o[j] += p * v[seen[n] * dim_v + j];
        pv[j] += p * std::abs(v[seen[n] * dim_v + j]);
      }
    }
    for (std::int64_t j = 0; j < dim_v; ++j) {
      exact.o.push_back(empty ? 0 : o[j] / sum);
      exact.sum_pv.push_back(empty ? 0 : pv[j] / sum);
    }
    double sensitivity = 0;
    for (std::size_t n = 0; n < seen.size(); ++n) {
      const double p = std::exp(score[n] - top) / sum;
      sensitivity += p * (1 - p) * size[n];
    }
    exact.sensitivity.push_back(sensitivity);
    exact.lse_ln.push_back(empty ? -infinity : top + std::log(sum));
  }
  return exact;
}

// -------------------------------------------------------------------------------------------------------- where and
// what
std::vector<Sequence> sequences(const Inputs& inputs, const Options& options) {
  std::vector<Sequence> all;
  const bool packed = inputs.packed.cu_q.defined();
  const Tensor &lengths = inputs.pages.lengths, &table = inputs.pages.block_table;
  const std::int64_t count = packed ? inputs.packed.cu_q.shape[0] - 1 : inputs.q.shape[0];
  const auto integer = [](const Tensor& tensor, std::int64_t i) {
    return static_cast<std::int64_t>(element(tensor, i * tensor.stride[0]));
  };
  for (std::int64_t i = 0; i < count; ++i) {
    Sequence s{.index = i, .q_count = inputs.q.shape[1], .k_count = inputs.k.shape[1]};
    if (packed) {
      s.q_begin = integer(inputs.packed.cu_q, i), s.q_count = integer(inputs.packed.cu_q, i + 1) - s.q_begin;
    }
    if (packed && !lengths.defined())
      s.k_begin = integer(inputs.packed.cu_k, i), s.k_count = integer(inputs.packed.cu_k, i + 1) - s.k_begin;
    if (lengths.defined()) s.k_count = integer(lengths, i);
    if (table.defined())
      s.pages = table.as<const std::int32_t>() + i * table.stride[0], s.page_size = inputs.k.shape[1];
    s.q_offset =
        inputs.q_offset.defined() ? integer(inputs.q_offset, i) : options.q_offset.value_or(s.k_count - s.q_count);
    all.push_back(s);
  }
  return all;
}

std::vector<Row> all_rows(const Inputs& inputs, const Options& options) {
  std::vector<Row> rows;
  for (const Sequence& s : sequences(inputs, options))
    for (std::int64_t h = 0; h < heads_of(inputs.q); ++h)
      for (std::int64_t q = 0; q < s.q_count; ++q) rows.push_back({s.index, h, q});
  return rows;
}

std::vector<Row> sample_rows(const Inputs& inputs, const Options& options, std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  const std::vector<Sequence> all = sequences(inputs, options);
  const std::int64_t heads = heads_of(inputs.q);
  // Few (sequence, head) pairs with several rows each: E is a maximum over a pair's rows.
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  const std::int64_t pair_count = std::clamp<std::int64_t>(count / 16, 2, 64);
  for (std::int64_t n = 0; n < pair_count && !all.empty(); ++n) {
    const std::int64_t b = n == 0 ? 0 : n == 1 ? std::ssize(all) - 1 : random.below(std::ssize(all));
    pairs.push_back({b, n == 0 ? 0 : n == 1 ? heads - 1 : random.below(heads)});
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  std::vector<Row> rows;
  for (auto [b, h] : pairs) {
    const std::int64_t queries = all[b].q_count, each = std::max<std::int64_t>(count / std::ssize(pairs), 4);
    std::vector<std::int64_t> chosen{0, queries - 1};
    while (std::ssize(chosen) < each) {
      const std::int64_t tile = random.pick<std::int64_t>({16, 32, 64, 128, 256});
      const std::int64_t boundary = random.below(queries / tile + 1) * tile;
      chosen.push_back(random.chance(0.5) ? random.below(queries) : boundary - random.below(2));
    }
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (std::int64_t q : chosen)
      if (q >= 0 && q < queries) rows.push_back({b, h, q});
  }
  return rows;
}

std::int64_t q_row_offset(const Tensor& t, const Sequence& s, std::int64_t token, std::int64_t head) {
  if (t.rank == 4) return s.index * t.stride[0] + token * t.stride[1] + head * t.stride[2];
  return (s.q_begin + token) * t.stride[0] + head * t.stride[1];
}
std::int64_t k_row_offset(const Tensor& t, const Sequence& s, std::int64_t token, std::int64_t head) {
  if (s.pages)
    return s.pages[token / s.page_size] * t.stride[0] + token % s.page_size * t.stride[1] + head * t.stride[2];
  if (t.rank == 4) return s.index * t.stride[0] + token * t.stride[1] + head * t.stride[2];
  return (s.k_begin + token) * t.stride[0] + head * t.stride[1];
}
std::int64_t lse_offset(const Tensor& t, const Sequence& s, std::int64_t token, std::int64_t head) {
  if (t.rank == 3) return s.index * t.stride[0] + head * t.stride[1] + token * t.stride[2];
  return head * t.stride[0] + (s.q_begin + token) * t.stride[1];
}

double element(const Tensor& tensor, std::int64_t offset) {
  switch (tensor.dtype) {
    case DType::f32:
      return static_cast<double>(tensor.as<const float>()[offset]);
    case DType::bf16:
      return static_cast<double>(static_cast<float>(tensor.as<const BFloat16>()[offset]));
    case DType::f16:
      return static_cast<double>(static_cast<float>(tensor.as<const Float16>()[offset]));
    case DType::i32:
      return tensor.as<const std::int32_t>()[offset];
    case DType::i64:
      return static_cast<double>(tensor.as<const std::int64_t>()[offset]);
    default:
      throw Error(Code::invalid_dtype, "the oracle reads f32, bf16, f16, i32 and i64");
  }
}

void set_element(const Tensor& tensor, std::int64_t offset, double value) {
  switch (tensor.dtype) {
    case DType::f32:
      tensor.as<float>()[offset] = static_cast<float>(value);
      break;
    case DType::bf16:
      tensor.as<BFloat16>()[offset] = BFloat16(static_cast<float>(value));
      break;
    case DType::f16:
      tensor.as<Float16>()[offset] = Float16(static_cast<float>(value));
      break;
    case DType::i32:
      tensor.as<std::int32_t>()[offset] = static_cast<std::int32_t>(value);
      break;
    case DType::i64:
      tensor.as<std::int64_t>()[offset] = static_cast<std::int64_t>(value);
      break;
    case DType::b8:
      tensor.as<bool>()[offset] = value != 0;
      break;
    default:
      throw Error(Code::invalid_dtype, "the suite writes f32, bf16, f16, i32, i64 and b8");
  }
}

float scale_of(const Inputs& inputs, const Options& options) {
  return options.scale.value_or(static_cast<float>(1 / std::sqrt(static_cast<double>(dim_of(inputs.q)))));
}

double sink_of(const Inputs& inputs, std::int64_t head) {
  return inputs.sinks.defined() ? element(inputs.sinks, head * inputs.sinks.stride[0]) : -infinity;
}

// -------------------------------------------------------------------------------------------------------- which keys
Attended::Attended(const Inputs& inputs, const Options& options)
    : mask_(std::make_unique<Evaluated>(options.mask.graph(), inputs)) {
  for (const Node& node : options.mask.graph().nodes) names_head_ |= node.op == Op::head;
}

Attended::~Attended() = default;

const std::vector<std::int64_t>& Attended::keys(const Sequence& sequence, std::int64_t head, std::int64_t query) {
  constexpr std::int64_t most = 1 << 23;
  const std::array<std::int64_t, 3> row{sequence.index, names_head_ ? head : 0, query};
  if (const auto known = rows_.find(row); known != rows_.end()) return known->second;
  if (remembered_ > most) rows_.clear(), remembered_ = 0;
  std::vector<std::int64_t>& keys = rows_[row];
  for (std::int64_t key = 0; key < sequence.k_count; ++key)
    if (mask_->mask_at(sequence, head, query, key)) keys.push_back(key);
  remembered_ += std::ssize(keys) + 8;
  return keys;
}

}  // namespace tessera::conformance
