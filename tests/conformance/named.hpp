// Cases with a history: each is an input that has broken some attention library, or an edge of the contracts, by name.
// Must not know: how generated cases are chosen.
#pragma once
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "cases.hpp"
#include "data.hpp"

namespace tessera::conformance {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

struct NamedCase {
  std::string name;         // "rows.causal_more_queries_than_keys"
  std::string owed;         // what must hold, for people
  bool every_dtype = true;  // false: run once for each subject, in f32
  std::function<Outcome(const Subject&, DType)> run;
};
const std::vector<NamedCase>& named_cases();
// Of cases that are lines, each in the dtype that runs; of code that throws Failed or returns the worst share.
NamedCase of_lines(std::string name, std::string owed, std::vector<std::string> lines, bool every_dtype = true);
NamedCase of_body(std::string name, std::string owed, std::function<double(const Subject&, DType)> body,
                  bool every_dtype = true);
// What such bodies are made of: a line in the dtype that runs; one guarded call; two results that must be the same.
CaseSpec spec_of(const std::string& text, DType dtype);
OutputSet run_once(const Subject& subject, const CaseSpec& spec, const CaseData& data);
void require_same_bits(const CaseData& data, const Outputs& a, const Outputs& b, const std::string& what);
// Of caches: lengths, pages.
std::vector<NamedCase> page_cases();
// Of merge(): partial results, split sums.
std::vector<NamedCase> merge_cases();
// Of masks and score changes beyond causal and windows.
std::vector<NamedCase> mod_cases();

}  // namespace tessera::conformance
