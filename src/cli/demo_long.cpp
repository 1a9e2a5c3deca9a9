// A head so long that its matrix of scores would not fit: time, memory, and sampled rows against fp64.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "cli/demo.hpp"
#include "cli/interleave.hpp"
#include "cli/memory.hpp"
#include "conformance/accuracy.hpp"
#include "conformance/random.hpp"

namespace tessera::cli::demo {
namespace {

// Linux tells the largest resident memory since the last reset; where a reset is not allowed, since the start.
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }
double peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::strtod(line.c_str() + 6, nullptr) * 1024;
  return 0;
}

}  // namespace

LongHead stream(const Settings& settings) {
  LongHead result;
  result.tokens = settings.long_tokens, result.dim = 64;
  const std::int64_t n = result.tokens, dim = result.dim;
  const auto elements = static_cast<std::size_t>(n * dim);
  std::vector<float> q(elements), k(elements), v(elements), o(elements, std::numeric_limits<float>::quiet_NaN());
  std::vector<float> lse(static_cast<std::size_t>(n), std::numeric_limits<float>::quiet_NaN());
  conformance::Random random(32768);
  for (auto* x : {&q, &k, &v})
    for (float& value : *x) value = random.normal();
  const Inputs in{.q = tensor(q.data(), {1, n, 1, dim}),
                  .k = tensor(k.data(), {1, n, 1, dim}),
                  .v = tensor(v.data(), {1, n, 1, dim})};
  const Outputs out{.o = tensor(o.data(), {1, n, 1, dim}), .lse = tensor(lse.data(), {1, 1, n})};
  const Options options{.mask = causal(), .backend = settings.backend};

  const Plan plan = tessera::plan(describe(in, out, options));
  result.backend = plan->backend + ":" + plan->isa;
  const std::size_t bytes = plan.workspace_bytes(settings.threads);
  const Block workspace(bytes);
  result.workspace_bytes = static_cast<double>(bytes);
  result.scores_bytes = static_cast<double>(n) * static_cast<double>(n) * sizeof(float);
  result.tensor_bytes = static_cast<double>(4 * elements + lse.size()) * sizeof(float);

  reset_peak();
  result.seconds = seconds_of([&] {
    plan.run(in, out, {.workspace = {workspace.data(), bytes}, .threads = settings.threads});
  });
  result.peak_bytes = peak_bytes();
  result.gflops = plan->cost.flops / result.seconds * 1e-9;

  const auto rows = conformance::sample_rows(in, options, 48, 1);
  const conformance::Expectation expected = conformance::expect(in, options, f32, rows);
  const conformance::Verdict verdict = conformance::judge(expected, out);
  result.rows_checked = static_cast<std::int64_t>(expected.rows.size());
  result.passed = verdict && result.rows_checked > 0;
  result.failure = verdict.first, result.allowance_used = verdict.worst;
  for (std::size_t i = 0; i < expected.rows.size(); ++i) {
    for (std::int64_t j = 0; j < dim; ++j) {
      const double exact = expected.exact.o[i * static_cast<std::size_t>(dim) + static_cast<std::size_t>(j)];
      const double got = static_cast<double>(o[static_cast<std::size_t>(expected.rows[i].q * dim + j)]);
      result.error = std::max(result.error, std::abs(got - exact));
    }
    result.standard_error = std::max(result.standard_error, expected.o_error[i]);
  }
  return result;
}

}  // namespace tessera::cli::demo
