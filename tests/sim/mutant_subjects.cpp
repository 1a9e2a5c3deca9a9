#include "sim/mutant_subjects.hpp"

#include <stdexcept>
#include <vector>

#include "sim/folder.hpp"
#include "sim/small_case.hpp"
#include "sim/sources.hpp"
#include "tessera/error.hpp"

namespace tessera::sim {
namespace {

std::string small_text() { return small_forward_text(file_text("tests/sim/small_forward.cuh"), 64, true); }

std::string notice_in_small() {
  const SmallShape shape{190, 300, 2, 64, true};
  const std::string text = small_text();
  try {
    for (const bool checked : {true, false}) {
      const LoadedCode& code = compiled({"g++", cache_folder(), checked}, "small", text);
      // Plain runs see less: what they have beside the checked ones is that copies can be early.
      for (std::uint64_t seed = 0; seed < (checked ? 2 : 4); ++seed) {
        const Timing timings[] = {Timing::late, Timing::random, Timing::late, Timing::eager};
        for (const SmallShape& s : {shape, SmallShape{100, 30, 1, 64, true}}) {
          const SmallCase one(s, unsigned(seed + 1));
          const Result result = one.run(code, {.seed = seed, .timing = timings[seed]});
          if (!result.ok()) return (checked ? "checked: " : "plain: ") + text_of(result);
          if (const double error = one.error(); !(error <= 1)) return "wrong result, " + std::to_string(error);
        }
      }
    }
  } catch (const Error& e) {
    if (e.code() == Code::unsupported) return std::string("compiler: ") + e.what();
    throw;
  }
  return "";
}

}  // namespace

const MutantSubject& mutant_subject(const std::string& name) {
  static const std::vector<MutantSubject> all = {{"small", small_text, notice_in_small}};
  for (const MutantSubject& s : all)
    if (s.name == name) return s;
  std::string names;
  for (const MutantSubject& s : all) names += " " + s.name;
  throw std::runtime_error("no kernel '" + name + "' to plant bugs in; there are:" + names);
}

}  // namespace tessera::sim
