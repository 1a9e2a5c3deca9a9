#include "gpu/class_rule.hpp"

#include "gpu/decision.hpp"

namespace tessera::gpu {
namespace {

// Class 90 has a problem where every number is as large as the table asks.
struct Rule {
  std::int64_t (*number)(const Problem&);
  std::int64_t least;
  const char *what, *why;
};
constexpr Rule rules[] = {
    // Its tiles have 128 rows and more, those of class 80 from 16 on.
    {[](const Problem& p) { return usual_queries(p) * p.group(); }, 65,
     "rows that share keys (queries of a sequence x heads of a group)", "it has tiles of so few rows"},
    // Rows must have the same bits in a call that the rule would give to the other class.
    {[](const Problem& p) { return p.batch_invariant ? std::int64_t{0} : std::int64_t{1}; }, 1,
     "calls that may differ in bits (batch_invariant)", "one class of kernels for all shapes"},
};

}  // namespace

std::string left_to_sm80(const Problem& p) {
  for (const Rule& rule : rules)
    if (const std::int64_t number = rule.number(p); number < rule.least)
      return std::to_string(number) + " " + rule.what + ", fewer than " + std::to_string(rule.least) +
             ": left to cuda:sm_80, " + rule.why;
  return {};
}

}  // namespace tessera::gpu
