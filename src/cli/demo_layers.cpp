// Every layer and type of the real input: error against fp64 and time, each beside standard attention.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/demo.hpp"
#include "cli/interleave.hpp"
#include "cli/standard.hpp"
#include "conformance/accuracy.hpp"

namespace tessera::cli::demo {
namespace {

// A float array in one of the types, with the view that attention takes.
struct Typed {
  std::vector<float> as_f32;
  std::vector<BFloat16> as_bf16;
  std::vector<Float16> as_f16;

  Typed(const std::vector<float>& values, DType dtype) {
    if (dtype == bf16)
      for (const float value : values) as_bf16.emplace_back(value);
    else if (dtype == f16)
      for (const float value : values) as_f16.emplace_back(value);
    else as_f32 = values;
  }
  Tensor view(std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
    if (!as_bf16.empty()) return tensor(as_bf16.data(), {1, tokens, heads, dim});
    if (!as_f16.empty()) return tensor(as_f16.data(), {1, tokens, heads, dim});
    return tensor(as_f32.data(), {1, tokens, heads, dim});
  }
};

}  // namespace

LayerResult compare(const Data& data, const Layer& layer, DType dtype, const Settings& settings) {
  const std::int64_t n = data.count(), heads = data.heads, dim = data.dim;
  Typed q(layer.q, dtype), k(layer.k, dtype), v(layer.v, dtype);
  // Poisoned, so that an element nobody writes shows.
  const std::vector<float> poison(layer.q.size(), std::numeric_limits<float>::quiet_NaN());
  Typed o(poison, dtype), standard_o(poison, dtype);
  std::vector<float> lse(static_cast<std::size_t>(heads * n), poison[0]);
  const Inputs in{.q = q.view(n, heads, dim), .k = k.view(n, heads, dim), .v = v.view(n, heads, dim)};
  const Outputs out{.o = o.view(n, heads, dim), .lse = tensor(lse.data(), {1, heads, n})};
  const Options options{.backend = settings.backend};
  const Exec exec{.threads = settings.threads};

  LayerResult result;
  result.layer = layer.index, result.dtype = dtype;
  attention(in, out, options, exec);
  const conformance::Expectation expected = conformance::expect(in, options, dtype, conformance::all_rows(in, options));
  const conformance::Verdict verdict = conformance::judge(expected, out);
  result.passed = static_cast<bool>(verdict), result.failure = verdict.first, result.allowance_used = verdict.worst;
  for (std::size_t i = 0; i < expected.rows.size(); ++i) {
    const conformance::Row& row = expected.rows[i];
    const std::int64_t at = conformance::q_row_offset(out.o, expected.sequences[0], row.q, row.h);
    for (std::int64_t j = 0; j < dim; ++j) {
      const double exact = expected.exact.o[i * static_cast<std::size_t>(dim) + static_cast<std::size_t>(j)];
      result.error = std::max(result.error, std::abs(conformance::element(out.o, at + j) - exact));
    }
    result.standard_error = std::max(result.standard_error, expected.o_error[i]);
  }

  // Timed without lse, which standard attention does not give.
  const Outputs alone{.o = out.o};
  const Outputs standard_out{.o = standard_o.view(n, heads, dim)};
  constexpr int rounds = 4, repetitions = 6;
  result.ms = result.standard_ms = std::numeric_limits<double>::infinity();
  result.standard_missing = StandardAttention::why_not(in, options);
  if (!result.standard_missing.empty()) {
    for (int i = 0; i < rounds * repetitions; ++i)
      result.ms = std::min(result.ms, 1e3 * seconds_of([&] { attention(in, alone, options, exec); }));
    return result;
  }
  StandardAttention standard(in, standard_out, options, settings.threads);
  standard.run();
  for (int round = 0; round < rounds; ++round) {
    standard.settle();
    for (int i = 0; i < repetitions; ++i)
      result.ms = std::min(result.ms, 1e3 * seconds_of([&] { attention(in, alone, options, exec); }));
    for (int i = 0; i < repetitions; ++i)
      result.standard_ms = std::min(result.standard_ms, 1e3 * seconds_of([&] { standard.run(); }));
  }
  standard.settle();
  return result;
}

}  // namespace tessera::cli::demo
