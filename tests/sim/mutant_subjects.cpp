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

// The first thing that is wrong with one run of it.
std::string notice_in_run(const SmallShape& shape, bool checked, std::uint64_t seed) {
  const std::string text = small_forward_text(file_text("tests/sim/small_forward.cuh"), shape.dim, shape.causal);
  const LoadedCode& code = compiled({"g++", cache_folder(), checked}, "small", text);
  const Timing timings[] = {Timing::late, Timing::random, Timing::late, Timing::eager};
  const SmallCase one(shape, unsigned(seed + 1));
  const Result result = one.run(code, {.seed = seed, .timing = timings[seed]});
  if (!result.ok()) return (checked ? "checked: " : "plain: ") + text_of(result);
  const double error = one.error();
  return error <= 1 ? "" : "wrong result, " + std::to_string(error);
}

std::string notice_in_small() {
  // Keys that end within a tile, with it, and one behind it; queries without keys; one key.
  const SmallShape shapes[] = {{190, 300, 2, 64, true},
                               {100, 30, 1, 64, true},
                               {64, 1, 1, 64, true},
                               {128, 128, 1, 64, true},
                               {70, 65, 2, 64, false}};
  try {
    for (const bool checked : {true, false})
      for (const SmallShape& shape : shapes)
        for (std::uint64_t seed = 0; seed < (checked ? 2 : 4); ++seed)
          if (const std::string noticed = notice_in_run(shape, checked, seed); !noticed.empty()) return noticed;
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
