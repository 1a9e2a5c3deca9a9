// The conformance suite on the emulated GPU: generated cases over a bounded number of kernels, the named cases, and a
// part of them with every access checked.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <thread>

#include "conformance/named.hpp"
#include "conformance/sweep.hpp"
#include "gpu/sim_subjects.hpp"

namespace tessera::conformance {
namespace {

// TESSERA_SIM_CASES, TESSERA_SIM_KERNELS, TESSERA_SIM_CHECKED, TESSERA_SIM_SEED for longer or other runs.
std::int64_t setting(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoll(text, nullptr, 10) : otherwise;
}

int cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

// The machine computes some 1.5 G multiply-adds a second; a case runs two to five times.
constexpr double most_work = 4e7, most_named_work = 2e9;

class SimConformance : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static const bool once = (append_sim(), true);
    static_cast<void>(once);
    if (const std::string missing = sim_engine(false).missing(); !missing.empty()) std::cout << missing << '\n';
  }
  void SetUp() override {
    if (!sim_engine(false).missing().empty()) GTEST_SKIP() << "no emulated GPU: " << sim_engine(false).missing();
  }
};

void expect_no_failures(const Report& report) {
  for (const Failure& failure : report.failures) ADD_FAILURE() << failure;
  EXPECT_TRUE(report.passed());
}

void tell(const char* what, const Report& report, std::size_t kernels) {
  std::cout << what << ": " << report.cases << " cases";
  if (kernels > 0) std::cout << " of " << kernels << " kernels";
  std::cout << " in " << report.seconds << " s";
  for (const Tally& t : report.tallies) std::cout << "; " << name(t.dtype) << " worst " << t.worst;
  std::cout << '\n';
  for (const std::string& skipped : report.skipped) std::cout << "  not given: " << skipped << '\n';
}

void compile_ahead(const sim::Engine& engine, const Plans& plans) {
  std::vector<gpu::KernelText> texts;
  for (const auto& [spec, plan] : plans)
    for (gpu::KernelText& text : gpu::kernel_texts(plan)) texts.push_back(std::move(text));
  const auto start = std::chrono::steady_clock::now();
  engine.prefetch(texts, cores());
  std::cout << "compiled " << texts.size() << " texts in "
            << std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() << " s\n";
}

Report sweep(bool checked, SweepOptions options, int arch = 80) {
  const std::string backend = (checked ? "checked:sm_" : "sim:sm_") + std::to_string(arch);
  const Target target{backend, {DeviceType::cuda, 0}, Metadata::either};
  const Subject s = subject(target.backend);
  const Sweep chosen = choose_sweep(target, s, options, cores());
  EXPECT_GE(std::ssize(chosen.kernels), options.kernels * std::ssize(options.dtypes) * 3 / 4);
  compile_ahead(sim_engine(checked, arch), chosen.kernels);
  const Report report = run_sweep(s, chosen.cases, cores());
  tell(target.backend.c_str(), report, chosen.kernels.size());
  return report;
}

TEST_F(SimConformance, GeneratedCases) {
  expect_no_failures(sweep(false, {.seed = static_cast<std::uint64_t>(setting("TESSERA_SIM_SEED", 1)),
                                   .kernels = setting("TESSERA_SIM_KERNELS", 32),
                                   .cases = setting("TESSERA_SIM_CASES", 500),
                                   .most_work = most_work}));
}

TEST_F(SimConformance, GeneratedCasesChecked) {
  expect_no_failures(sweep(true, {.seed = static_cast<std::uint64_t>(setting("TESSERA_SIM_SEED", 1)) + 1,
                                  .kernels = std::max<std::int64_t>(1, setting("TESSERA_SIM_KERNELS", 32) / 4),
                                  .cases = setting("TESSERA_SIM_CHECKED", 50),
                                  .most_work = most_work / 4}));
}

// The kernel of Hopper takes fewer cases; these are its corners: each way in which items, tiles, rows and values
// differ.
constexpr const char* hopper_cases[] = {
    "b=2 sq=300 sk=520 hq=2 hkv=1 d=64 dtype=bf16",
    "b=2 sq=300 sk=520 hq=2 hkv=1 d=64 dtype=bf16 mask=\"causal\"",
    "sq=290 sk=290 d=64 dtype=bf16 mask=\"causal\" offset=-20",
    "sq=290 sk=290 d=64 dtype=bf16 family=nan_masked mask=\"causal\"",
    "sq=290 sk=290 d=64 dtype=bf16 family=nan_attended mask=\"causal\"",
    "sq=140 sk=390 d=64 dtype=bf16 mask=\"causal\" scale=-0.2",
    "sq=140 sk=390 d=64 dtype=bf16 mask=\"causal\" family=huge",
    "sq=140 sk=390 d=64 dtype=bf16 mask=\"causal\" family=growing",
    "sq=70 sk=390 d=40 dtype=f16 out=f32 family=growing",
    "sq=140 sk=390 d=72 dv=128 dtype=bf16 mask=\"window(100, 30)\" sinks=1",
    "sq=140 sk=390 d=256 dtype=bf16 mask=\"causal\"",
    "packed=100/100,0/50,130/300,5/0 hq=2 hkv=1 d=72 dtype=f16 mask=\"causal\" invariant=1",
    "b=2 sq=290 sk=290 hq=4 hkv=2 d=16 dtype=bf16 mask=\"documents(ids) & causal\" score=\"softcap(5)\"",
    "sq=3 sk=2000 hq=1 hkv=1 d=64 dtype=bf16",
    "sq=70 sk=90 d=16 dtype=f16 mask=\"(k <= q) & (k > q)\"",
    // Heads in one tile; pages that hold whole tiles, tiles that hold whole pages, and neither.
    "b=2 sq=30 sk=390 hq=8 hkv=2 d=64 dtype=bf16 mask=\"causal\" sinks=1 lse=1",
    "packed=10/100,0/50,13/300,5/0 hq=4 hkv=1 d=72 dtype=f16 mask=\"window(90, 0)\" score=\"softcap(5)\"",
    "b=2 sq=1 sk=1000 hq=16 hkv=2 d=64 dtype=bf16 family=nan_masked",
    "b=3 sq=70 sk=400 hq=2 hkv=1 d=64 dtype=bf16 page=256 used=400,0,33 room=400",
    "b=2 sq=5 sk=400 hq=8 hkv=2 d=128 dtype=bf16 mask=\"causal\" page=64 used=400,301 room=400",
    "packed=100/100,20/50,130/300,5/7 hq=2 hkv=1 d=72 dv=128 dtype=f16 mask=\"causal\" page=24",
    "b=2 sq=140 sk=390 hq=2 hkv=1 d=256 dtype=bf16 mask=\"causal\" page=8 used=390,20 room=390 family=nan_attended",
    "b=2 sq=140 sk=390 hq=2 hkv=1 d=72 dv=40 dtype=bf16 mask=\"causal\" page=7 used=390,20 room=390 "
    "family=nan_attended",
    // Sequences of different lengths, in the order of their tiles.
    "packed=300/300,20/50,130/500,5/7,140/200 hq=4 hkv=2 d=64 dtype=bf16 mask=\"documents(ids) & causal\"",
};
void expect_hopper(const std::string& backend, std::size_t step) {
  for (std::size_t i = 0; i < std::size(hopper_cases); i += step) {
    const Outcome outcome = run_case(subject(backend), parse_case(hopper_cases[i]));
    EXPECT_TRUE(outcome.passed()) << hopper_cases[i] << '\n' << outcome.failure;
  }
}
TEST_F(SimConformance, Hopper) { expect_hopper("sim:sm_90", 1); }
// What it refuses is left out.
TEST_F(SimConformance, HopperGenerated) {
  expect_no_failures(sweep(false,
                           {.seed = static_cast<std::uint64_t>(setting("TESSERA_SIM_SEED", 1)) + 2,
                            .kernels = std::max<std::int64_t>(1, setting("TESSERA_SIM_KERNELS", 32) / 6),
                            .cases = setting("TESSERA_SIM_CASES", 500) / 10,
                            .most_work = most_work,
                            .skip_refused = true},
                           90));
}
TEST_F(SimConformance, HopperChecked) { expect_hopper("checked:sm_90", 5); }

// Of each named case one type, and of the cases one half by the seed: they need some 300 kernels otherwise.
// TESSERA_SIM_NAMED=1 runs all. Several at a time, each compiles what it needs.
TEST_F(SimConformance, NamedCases) {
  Subject s = subject("sim:sm_80");
  s.most_work = most_named_work;
  const std::vector<NamedCase>& all = named_cases();
  const bool whole = setting("TESSERA_SIM_NAMED", 0) != 0;
  const std::int64_t half = setting("TESSERA_SIM_SEED", 1) % 2;
  const auto start = std::chrono::steady_clock::now();
  std::mutex mutex;
  Report report;
  in_parallel(std::ssize(all), cores(), [&](std::int64_t i) {
    const NamedCase& c = all[static_cast<std::size_t>(i)];
    if (!whole && i / 2 % 2 != half) {
      const std::scoped_lock lock(mutex);
      report.skipped.push_back(c.name + ": in the runs of other seeds");
      return;
    }
    const DType dtype = i % 2 == 0 ? bf16 : f16;
    const auto began = std::chrono::steady_clock::now();
    const Outcome outcome = c.run(s, dtype);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const std::scoped_lock lock(mutex);
    ++report.cases;
    if (seconds > 10) std::cout << "  " << c.name << " took " << seconds << " s" << std::endl;
    for (const std::string& text : outcome.skipped) report.skipped.push_back(c.name + ": " + text);
    if (!outcome.passed())
      report.failures.push_back({s.name, c.name, c.name + " dtype=" + std::string(name(dtype)), "",
                                 outcome.failure + " (owed: " + c.owed + ")"});
  });
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  tell("named", report, 0);
  expect_no_failures(report);
}

// All that merge() owes, checked as well: its kernels are small. The named cases have the sum over parts of the keys.
TEST_F(SimConformance, Merge) {
  for (const char* backend : {"sim:sm_80", "checked:sm_80"})
    for (const NamedCase& c : merge_cases()) {
      if (c.name == "merge.split_sum") continue;
      const Outcome outcome = c.run(subject(backend), bf16);
      EXPECT_TRUE(outcome.passed()) << backend << ' ' << c.name << ": " << outcome.failure;
      EXPECT_TRUE(outcome.skipped.empty()) << backend << ' ' << c.name;
    }
}

}  // namespace
}  // namespace tessera::conformance
