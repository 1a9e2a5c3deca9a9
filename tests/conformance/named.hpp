// Cases with a history: each is an input that has broken some attention library, or an edge of the contracts, by name.
// Must not know: how generated cases are chosen.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "cases.hpp"

namespace tessera::conformance {

struct NamedCase {
  std::string name;         // "rows.causal_more_queries_than_keys"
  std::string owed;         // what must hold, for people
  bool every_dtype = true;  // false: run once for each subject, in f32
  std::function<Outcome(const Subject&, DType)> run;
};
const std::vector<NamedCase>& named_cases();
// Of merge(): partial results, split sums.
std::vector<NamedCase> merge_cases();
// Of masks and score changes beyond causal and windows.
std::vector<NamedCase> mod_cases();

}  // namespace tessera::conformance
