#include "runner.hpp"

#include <algorithm>
#include <chrono>
#include <ostream>

#include "cases.hpp"
#include "named.hpp"
#include "vary.hpp"

namespace tessera::conformance {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// One run's state: what has been found and when to stop.
struct Run {
  std::span<const Subject> subjects;
  const RunOptions& options;
  const std::function<void(const Progress&)>& progress;
  Clock::time_point start = Clock::now();
  Report report{};

  bool stop() {
    if (options.seconds > 0 && seconds_since(start) > options.seconds) report.out_of_time = true;
    return report.out_of_time || std::ssize(report.failures) >= options.max_failures;
  }
  void tell(const Subject& subject, std::string_view doing, std::int64_t done, std::int64_t total) const {
    if (progress) progress({subject.name, doing, done, total, std::ssize(report.failures)});
  }
  void count(Tally& tally, const Outcome& outcome, const std::string& title) {
    ++tally.cases, ++report.cases;
    for (const std::string& text : outcome.skipped)
      ++tally.skipped, report.skipped.push_back(tally.subject + ", " + title + ": " + text);
    if (!outcome.passed()) ++tally.failures;
    else tally.worst = std::max(tally.worst, outcome.worst);
  }

  void named(const Subject& subject, DType dtype, bool first_dtype, Tally& tally) {
    const auto& all = named_cases();
    for (std::size_t i = 0; i < all.size() && !stop(); ++i) {
      if (!all[i].every_dtype && !first_dtype) continue;
      tell(subject, all[i].name, static_cast<std::int64_t>(i), std::ssize(all));
      const Outcome outcome = all[i].run(subject, dtype);
      count(tally, outcome, all[i].name);
      if (!outcome.passed())
        report.failures.push_back({subject.name, all[i].name, all[i].name + " dtype=" + std::string(name(dtype)), "",
                                   outcome.failure + " (owed: " + all[i].owed + ")"});
    }
  }

  void one_case(const Subject& subject, const CaseSpec& spec, const std::string& title, Tally& tally) {
    if (const std::string why = unfit(subject, spec); !why.empty()) {
      ++tally.skipped, report.skipped.push_back(tally.subject + ", " + title + ": " + line(spec) + ": " + why);
      return;
    }
    Outcome outcome = run_case(subject, spec);
    count(tally, outcome, title);
    if (outcome.passed()) return;
    Failure failure{subject.name, title, line(spec), "", outcome.failure};
    if (options.shrink) {
      const auto deadline = Clock::now() + std::chrono::seconds(20);
      const CaseSpec small = shrink(spec, [&](const CaseSpec& candidate) {
        return Clock::now() < deadline && !run_case(subject, candidate).passed();
      });
      if (!(small == spec)) {
        failure.original = failure.line, failure.line = line(small);
        failure.text = run_case(subject, small).failure;
      }
    }
    report.failures.push_back(std::move(failure));
  }

  // Named cases replay as "name dtype=bf16".
  void replay() {
    const std::string& text = options.case_line;
    const std::string first = text.substr(0, text.find(' '));
    const auto& all = named_cases();
    const auto found = std::find_if(all.begin(), all.end(), [&](const NamedCase& c) { return c.name == first; });
    DType only = DType::none;
    CaseSpec spec;
    if (found == all.end()) {
      if (first.find('=') == std::string::npos) {
        std::string names;
        for (const NamedCase& c : all) names += "\n  " + c.name;
        throw Error(Code::parse, "case '" + text + "' is neither a line of field=value nor one of" + names);
      }
      spec = parse_case(text);
    } else if (const std::size_t at = text.find("dtype="); at != std::string::npos) {
      only = parse_dtype(std::string_view(text).substr(at + 6));
    }
    for (const Subject& subject : subjects) {
      if (found == all.end()) {
        if (!subject.takes(spec.dtype)) continue;
        Tally& tally = report.tallies.emplace_back(Tally{.subject = subject.name, .dtype = spec.dtype});
        one_case(subject, spec, "the case", tally);
        continue;
      }
      for (DType dtype : options.dtypes) {
        if ((only != DType::none && dtype != only) || !subject.takes(dtype)) continue;
        Tally& tally = report.tallies.emplace_back(Tally{.subject = subject.name, .dtype = dtype});
        const Outcome outcome = found->run(subject, dtype);
        count(tally, outcome, found->name);
        if (!outcome.passed())
          report.failures.push_back({subject.name, found->name, found->name + " dtype=" + std::string(name(dtype)), "",
                                     outcome.failure + " (owed: " + found->owed + ")"});
      }
    }
  }

  void everything() {
    for (const Subject& subject : subjects) {
      bool first = true;
      for (std::size_t d = 0; d < options.dtypes.size() && !stop(); ++d) {
        const DType dtype = options.dtypes[d];
        if (!subject.takes(dtype)) continue;
        const auto began = Clock::now();
        Tally tally{.subject = subject.name, .dtype = dtype};
        for (std::int64_t i = 0; i < options.cases && !stop(); ++i) {
          tell(subject, name(dtype), i, options.cases);
          const std::int64_t variants = std::max<std::int64_t>(options.variants, 1);
          const CaseSpec spec = vary(generate(options.seed, i / variants, dtype), i % variants);
          one_case(subject, spec, "generated " + std::to_string(i), tally);
        }
        if (options.named) named(subject, dtype, first, tally);
        first = false;
        tally.seconds = seconds_since(began);
        tell(subject, name(dtype), options.cases, options.cases);
        report.tallies.push_back(tally);
      }
    }
  }
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const Failure& f) {
  out << f.subject << ", " << f.name << ": " << f.text << "\n  replay: --case '" << f.line << "'";
  if (!f.original.empty()) out << "\n  before shrinking: '" << f.original << "'";
  return out;
}

Report run(std::span<const Subject> subjects, const RunOptions& options,
           const std::function<void(const Progress&)>& progress) {
  Run state{subjects, options, progress};
  if (options.case_line.empty()) state.everything();
  else state.replay();
  state.report.seconds = seconds_since(state.start);
  return std::move(state.report);
}

}  // namespace tessera::conformance
