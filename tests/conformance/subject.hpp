// The thing under test: anything that computes attention. The suite is written once and runs on every one.
// Must not know: how cases are made.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/attention.hpp"

namespace tessera::conformance {

struct Subject {
  std::string name;
  std::function<void(const Inputs&, const Outputs&, const Options&, const Exec&)> run{};
  // Bytes of workspace for such a call; empty: the subject takes none.
  std::function<std::size_t(const Inputs&, const Outputs&, const Options&, int threads)> workspace_bytes{};
  // Empty: the subject does not merge.
  std::function<void(const Outputs&, const Outputs&, const Outputs&, const Exec&)> merge{};
  // What it can be asked: types, head dims, and how much it is to be given at most (an emulated machine is slow). Cases
  // beyond are counted as skipped, and said to be.
  std::vector<DType> dtypes{f32, bf16, f16};
  std::int64_t max_dim = 512;
  double most_work = 1e300;  // of a case: padded_work()

  bool takes(DType dtype) const { return std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end(); }
};

// attention() pinned to each backend that can run on this machine, best first.
std::vector<Subject> subjects();
// attention() pinned to one ("cpu:avx2") or to what "cpu" or "" choose. Throws Error(unsupported) listing the names.
Subject subject(const std::string& backend);

}  // namespace tessera::conformance
