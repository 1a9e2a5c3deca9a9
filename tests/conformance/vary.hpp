// Cases like another one: other numbers of tokens, sequences and heads, other data, positions and run-time values,
// while what a kernel is specialised for mostly stays. For subjects whose kernels cost seconds to compile. Must not
// know: subjects, kernels.
#pragma once
#include "cases.hpp"

namespace tessera::conformance {

// The index-th variation of a case; 0 is the case itself.
CaseSpec vary(const CaseSpec& base, std::int64_t index);

}  // namespace tessera::conformance
