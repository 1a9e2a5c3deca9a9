// Many cases over few kernels, on several threads: how the suite runs where a kernel costs seconds to compile and a
// case milliseconds to run. Must not know: engines.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cases.hpp"
#include "device_subject.hpp"
#include "runner.hpp"

namespace tessera::conformance {

// work(i) for every i in [0, count), on so many threads.
template <class Work>
void in_parallel(std::int64_t count, int threads, Work work) {
  std::atomic<std::int64_t> next{0};
  const auto loop = [&] {
    for (std::int64_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> crew;
  for (int i = 1; i < threads; ++i) crew.emplace_back(loop);
  loop();
  for (std::thread& t : crew) t.join();
}

// A backend on a device, and where numbers about a call lie.
struct Target {
  std::string backend;  // "sim:sm_80"
  Device device{DeviceType::cuda, 0};
  Metadata metadata = Metadata::either;
};

Plan plan_of(const Target& target, const CaseSpec& spec);  // throws what planning throws

using Plans = std::map<std::string, Plan>;  // by what they are specialised for: one of each

struct SweepOptions {
  std::uint64_t seed = 1;
  std::vector<DType> dtypes{bf16, f16};
  std::int64_t kernels = 40;  // distinct ones for each type
  std::int64_t cases = 500;   // for each type
  double most_work = 1e300;   // of a case: padded_work()
  // Cases that the target refuses to plan are left out: for one that leaves them to another backend. Else they fail.
  bool skip_refused = false;
};

// Cases of so many kernels and no other: generated ones while they bring new kernels, then variations of those.
struct Sweep {
  std::vector<CaseSpec> cases;
  Plans kernels;
};
Sweep choose_sweep(const Target& target, const Subject& subject, const SweepOptions& options, int threads);

// Runs them on so many threads. Tallies by type.
Report run_sweep(const Subject& subject, std::span<const CaseSpec> cases, int threads,
                 const std::function<void(const Progress&)>& progress = {});

// A subject that computes by `by` and notes what kernels the target would have needed.
class Collector {
 public:
  Collector(Target target, Subject by) : target_(std::move(target)), by_(std::move(by)) {}
  Subject subject();
  const Plans& plans() const { return plans_; }

 private:
  Target target_;
  Subject by_;
  Plans plans_;
};

}  // namespace tessera::conformance
