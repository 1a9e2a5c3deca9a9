#include "sweep.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>

#include "data.hpp"
#include "gpu/gpu_backend.hpp"
#include "vary.hpp"

namespace tessera::conformance {
namespace {

bool fits(const Subject& subject, const SweepOptions& options, const CaseSpec& c) {
  return unfit(subject, c).empty() && padded_work(c) <= options.most_work;
}

// Nothing for a case that the target refuses to plan.
std::optional<Plan> try_plan(const Target& target, const CaseSpec& spec) {
  try {
    return plan_of(target, spec);
  } catch (const Error&) {
    return {};
  }
}

// Generated cases that bring a new kernel each.
std::vector<CaseSpec> choose_bases(const Target& target, const Subject& subject, const SweepOptions& options,
                                   DType dtype, Plans& kernels) {
  std::vector<CaseSpec> bases;
  for (std::int64_t i = 0; std::ssize(bases) < options.kernels && i < 100 * options.kernels; ++i) {
    const CaseSpec spec = generate(options.seed, i, dtype);
    if (!fits(subject, options, spec)) continue;
    // A case that cannot be planned is kept: running it shows why.
    const std::optional<Plan> plan = try_plan(target, spec);
    if (!plan && options.skip_refused) continue;
    if (!plan || kernels.emplace(gpu::kernel_spec(*plan), *plan).second) bases.push_back(spec);
  }
  return bases;
}

}  // namespace

Plan plan_of(const Target& target, const CaseSpec& spec) {
  const CaseData data = make_data(spec);
  const OutputSet set = data.make_outputs(spec);
  return device_plan(target.backend, target.device, target.metadata, data.inputs, set.outputs, data.options);
}

Sweep choose_sweep(const Target& target, const Subject& subject, const SweepOptions& options, int threads) {
  Sweep sweep;
  for (const DType dtype : options.dtypes) {
    const std::vector<CaseSpec> bases = choose_bases(target, subject, options, dtype, sweep.kernels);
    if (bases.empty()) continue;
    std::vector<CaseSpec> cases(static_cast<std::size_t>(options.cases));
    in_parallel(options.cases, threads, [&](std::int64_t i) {
      const std::int64_t round = i / std::ssize(bases);
      const CaseSpec& base = bases[static_cast<std::size_t>(i % std::ssize(bases))];
      CaseSpec chosen = base;  // again, if no variation keeps to the kernels that there are
      for (std::int64_t attempt = 0; round > 0 && attempt < 12; ++attempt) {
        const CaseSpec other = vary(base, round * 12 + attempt);
        if (!fits(subject, options, other)) continue;
        const std::optional<Plan> plan = try_plan(target, other);
        if (!plan && options.skip_refused) continue;
        if (plan && !sweep.kernels.contains(gpu::kernel_spec(*plan))) continue;
        chosen = other;
        break;
      }
      cases[static_cast<std::size_t>(i)] = chosen;
    });
    sweep.cases.insert(sweep.cases.end(), cases.begin(), cases.end());
  }
  return sweep;
}

Report run_sweep(const Subject& subject, std::span<const CaseSpec> cases, int threads,
                 const std::function<void(const Progress&)>& progress) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  Report report;
  std::mutex mutex;
  in_parallel(std::ssize(cases), threads, [&](std::int64_t i) {
    const CaseSpec& spec = cases[static_cast<std::size_t>(i)];
    const Outcome outcome = run_case(subject, spec);
    const std::scoped_lock lock(mutex);
    ++report.cases;
    auto tally = std::find_if(report.tallies.begin(), report.tallies.end(),
                              [&](const Tally& t) { return t.dtype == spec.dtype; });
    if (tally == report.tallies.end())
      tally = report.tallies.insert(tally, Tally{.subject = subject.name, .dtype = spec.dtype});
    ++tally->cases, tally->seconds = seconds();
    tally->worst = std::max(tally->worst, outcome.worst);
    if (!outcome.passed()) {
      ++tally->failures;
      report.failures.push_back({subject.name, "case " + std::to_string(i), line(spec), "", outcome.failure});
    }
    if (progress)
      progress({subject.name, name(spec.dtype), report.cases, std::ssize(cases), std::ssize(report.failures)});
  });
  report.seconds = seconds();
  return report;
}

Subject Collector::subject() {
  Subject s = by_;
  s.run = [this](const Inputs& inputs, const Outputs& outputs, const Options& options, const Exec& exec) {
    const Plan plan = device_plan(target_.backend, target_.device, target_.metadata, inputs, outputs, options);
    plans_.emplace(gpu::kernel_spec(plan), plan);
    by_.run(inputs, outputs, options, exec);
  };
  return s;
}

}  // namespace tessera::conformance
