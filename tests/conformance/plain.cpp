#include "plain.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "mods.hpp"
#include "oracle.hpp"
#include "standard.hpp"

namespace tessera::conformance {
namespace {

constexpr const char* names[] = {"none",
                                 "mask_off_by_one",
                                 "mask_multiplied",
                                 "no_scale",
                                 "scale_in_rounded_q",
                                 "sinks_ignored",
                                 "lse_base_2",
                                 "lse_of_rounded_sum",
                                 "wrong_group_head",
                                 "offset_ignored",
                                 "last_key_dropped",
                                 "empty_row_is_nan",
                                 "no_maximum",
                                 "coarse_exp",
                                 "unwritten_last_row",
                                 "writes_past_the_rows",
                                 "threads_change_bits",
                                 "batch_changes_bits"};

float at(const Tensor& t, std::int64_t offset) { return static_cast<float>(element(t, offset)); }

void attend(Mistake mistake, const Inputs& in, const Outputs& out, const Options& options, const Exec& exec) {
  constexpr float infinite = std::numeric_limits<float>::infinity();
  std::vector<Sequence> all = sequences(in, options);
  const std::int64_t dim = dim_of(in.q), dim_v = dim_of(in.v), heads = heads_of(in.q), heads_kv = heads_of(in.k);
  const float scale = mistake == Mistake::no_scale ? 1 : scale_of(in, options);
  Attended attended(in, options);
  const Evaluated mod(options.score.graph(), in);
  std::vector<float> o(dim_v), scores;
  for (Sequence& s : all) {
    if (mistake == Mistake::offset_ignored) s.q_offset = 0;
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t query = 0; query < s.q_count; ++query) {
        if (mistake == Mistake::unwritten_last_row && s.q_count > 40 && query == s.q_count - 1) continue;
        const std::int64_t kv = mistake == Mistake::wrong_group_head ? head % heads_kv : head / (heads / heads_kv);
        std::vector<std::int64_t> keys = attended.keys(s, head, query);
        if (mistake == Mistake::mask_off_by_one && !keys.empty() && keys.back() + 1 < s.k_count)
          keys.push_back(keys.back() + 1);
        if (mistake == Mistake::last_key_dropped && std::ssize(keys) == s.k_count && s.k_count > 100) keys.pop_back();
        const std::int64_t at_q = q_row_offset(in.q, s, query, head);
        scores.clear();
        float top = -infinite;
        std::vector<std::int64_t> seen;
        for (std::int64_t key : keys) {
          const std::int64_t at_k = k_row_offset(in.k, s, key, kv);
          float dot = 0;
          for (std::int64_t i = 0; i < dim; ++i) {
            const float q = at(in.q, at_q + i);
            dot += (mistake == Mistake::scale_in_rounded_q ? round_to(in.q.dtype, q * scale) : q) * at(in.k, at_k + i);
          }
          if (mistake != Mistake::scale_in_rounded_q) dot *= scale;
          dot = mod.score_fp32_at(s, head, query, key, dot);
          if (dot == -infinite) continue;
          seen.push_back(key), scores.push_back(dot), top = std::max(top, dot);
        }
        const float sink = mistake == Mistake::sinks_ignored ? -infinite : static_cast<float>(sink_of(in, head));
        if (sink > top || std::isnan(sink)) top = sink;
        if (mistake == Mistake::no_maximum) top = 0;
        float sum = sink == -infinite ? 0 : std::exp(sink - top), rounded_sum = sum;
        std::fill(o.begin(), o.end(), 0.0f);
        for (std::size_t n = 0; n < seen.size(); ++n) {
          float p = std::exp(scores[n] - top);
          if (mistake == Mistake::coarse_exp) p *= 1 + 0x1p-9f * std::sin(scores[n] * 100);
          sum += p, rounded_sum += round_to(in.q.dtype, p);
          const std::int64_t at_v = k_row_offset(in.v, s, seen[n], kv);
          for (std::int64_t j = 0; j < dim_v; ++j) o[j] += p * at(in.v, at_v + j);
        }
        if (mistake == Mistake::mask_multiplied)
          for (std::int64_t key = 0; key < s.k_count; ++key)
            if (!std::binary_search(keys.begin(), keys.end(), key))
              for (std::int64_t j = 0; j < dim_v; ++j) o[j] += 0 * at(in.v, k_row_offset(in.v, s, key, kv) + j);
        float factor = 1;
        if (mistake == Mistake::threads_change_bits && exec.threads > 1) factor += 0x1p-22f;
        if (mistake == Mistake::batch_changes_bits && s.q_count % 2 == 1) factor += 0x1p-22f;
        const bool empty = seen.empty() && sink == -infinite && mistake != Mistake::empty_row_is_nan;
        const std::int64_t at_o = q_row_offset(out.o, s, query, head);
        for (std::int64_t j = 0; j < dim_v; ++j)
          set_element(out.o, at_o + j, static_cast<double>(empty ? 0 : o[j] / sum * factor));
        float lse = empty ? -infinite : top + std::log(mistake == Mistake::lse_of_rounded_sum ? rounded_sum : sum);
        if (mistake == Mistake::lse_base_2) lse *= 1.44269504f;
        if (out.lse.defined()) set_element(out.lse, lse_offset(out.lse, s, query, head), static_cast<double>(lse));
      }
  }
  if (mistake == Mistake::writes_past_the_rows && out.o.rank == 3 && !all.empty()) {
    const std::int64_t end = all.back().q_begin + all.back().q_count;
    if (end < out.o.shape[0]) set_element(out.o, end * out.o.stride[0], 0);
  }
}

void merge_plainly(const Outputs& a, const Outputs& b, const Outputs& out) {
  const bool packed = a.o.rank == 3;
  const std::int64_t batch = packed ? 1 : a.o.shape[0], tokens = a.o.shape[packed ? 0 : 1];
  for (std::int64_t i = 0; i < batch; ++i) {
    const Sequence s{.index = i};
    for (std::int64_t head = 0; head < heads_of(a.o); ++head)
      for (std::int64_t token = 0; token < tokens; ++token) {
        const double lse_a = element(a.lse, lse_offset(a.lse, s, token, head));
        const double lse_b = element(b.lse, lse_offset(b.lse, s, token, head));
        const bool has_a = lse_a != -std::numeric_limits<double>::infinity();
        const bool has_b = lse_b != -std::numeric_limits<double>::infinity();
        const double top = std::max(lse_a, lse_b);
        const double lse = has_a && has_b ? top + std::log(std::exp(lse_a - top) + std::exp(lse_b - top)) : top;
        for (std::int64_t j = 0; j < dim_of(a.o); ++j) {
          const double o_a = element(a.o, q_row_offset(a.o, s, token, head) + j);
          const double o_b = element(b.o, q_row_offset(b.o, s, token, head) + j);
          set_element(out.o, q_row_offset(out.o, s, token, head) + j,
                      (has_a ? std::exp(lse_a - lse) * o_a : 0) + (has_b ? std::exp(lse_b - lse) * o_b : 0));
        }
        set_element(out.lse, lse_offset(out.lse, s, token, head), lse);
      }
  }
}

}  // namespace

std::span<const Mistake> mistakes() {
  static const auto all = [] {
    std::array<Mistake, std::size(names) - 1> list{};
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = static_cast<Mistake>(i + 1);
    return list;
  }();
  return all;
}

const char* name(Mistake mistake) { return names[static_cast<int>(mistake)]; }

Subject plain(Mistake mistake) {
  Subject s{.name = std::string("plain") + (mistake == Mistake::none ? "" : std::string(":") + name(mistake))};
  s.run = [mistake](const Inputs& inputs, const Outputs& outputs, const Options& options, const Exec& exec) {
    attend(mistake, inputs, outputs, options, exec);
  };
  s.merge = [](const Outputs& a, const Outputs& b, const Outputs& out, const Exec&) { merge_plainly(a, b, out); };
  return s;
}

}  // namespace tessera::conformance
