// Runs the suite on subjects and collects what failed, each failure with the line that replays it.
// Used by the tests and by `tessera check`.
#pragma once
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "subject.hpp"

namespace tessera::conformance {

struct RunOptions {
  std::int64_t cases = 200;   // generated cases for each (subject, dtype)
  std::int64_t variants = 1;  // of the generated cases, so many in a row ask for one kernel (vary())
  std::uint64_t seed = 1;     // of the suite
  std::string case_line{};    // not empty: this one case (a line of fields, or the name of a named case)
  std::vector<DType> dtypes{f32, bf16, f16};
  bool named = true;               // run the named cases too
  bool shrink = true;              // reduce a failing generated case before reporting it
  std::int64_t max_failures = 10;  // stop after that many
  double seconds = 0;              // stop starting new cases after that long; 0: no limit
};

struct Failure {
  std::string subject;
  std::string name;      // "generated 17", or the named case
  std::string line;      // replays the (shrunk) case: `tessera check --case "<line>"`
  std::string original;  // the line before shrinking; empty if not shrunk
  std::string text;      // what is wrong
};
std::ostream& operator<<(std::ostream& out, const Failure& failure);

struct Progress {
  std::string_view subject;
  std::string_view doing;  // "named: ...", "generated"
  std::int64_t done = 0, total = 0, failures = 0;
};

// What one (subject, dtype) did. Named cases that fix their own dtype count under it.
struct Tally {
  std::string subject;
  DType dtype = DType::none;
  std::int64_t cases = 0, failures = 0;
  std::int64_t skipped = 0;  // that it was not given: Subject::max_dim, most_work
  double worst = 0;          // largest |error| / allowed over all judged elements
  double seconds = 0;
};

struct Report {
  std::int64_t cases = 0;
  std::vector<Failure> failures;
  std::vector<std::string> skipped;  // "sim:sm_80, sizes.dims: <line>: why"
  std::vector<Tally> tallies;
  double seconds = 0;
  bool out_of_time = false;
  bool passed() const { return failures.empty() && cases > 0; }
};

// Throws Error(parse) when case_line is neither a case nor a name.
Report run(std::span<const Subject> subjects, const RunOptions& options,
           const std::function<void(const Progress&)>& progress = {});

}  // namespace tessera::conformance
