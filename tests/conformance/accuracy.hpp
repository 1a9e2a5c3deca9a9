// The accuracy rule, in one place (docs/contracts.md):
//   |O - exact| <= 2 E + one rounding of the output type + 2^-20 sum(p |v|)
//   |LSE - exact| <= 2 E_lse + 2^-20 max(1, |LSE|)
// with E the largest error of standard attention over the same (sequence, head). Rows that are not finite must match in
// kind; a row that attends to nothing is exactly 0 with LSE -inf.
// Must not know: how cases are made, what computed the result.
#pragma once
#include <string>

#include "oracle.hpp"

namespace tessera::conformance {

struct Expectation {
  std::vector<Sequence> sequences;
  std::vector<Row> rows;
  DType out = DType::none;
  Exact exact;
  std::vector<double> o_error, lse_error;  // [rows] E of the row's (sequence, head)
};
Expectation expect(const Inputs& inputs, const Options& options, DType out, std::vector<Row> rows);

struct Verdict {
  std::int64_t violations = 0;
  std::string first;  // which element, got, expected, allowed
  double worst = 0;   // largest |error| / allowed
  explicit operator bool() const { return violations == 0; }
};
Verdict judge(const Expectation& expectation, const Outputs& got);

// The two bounds, for those who compare single numbers (merge).
double allowed_o(double exact, double standard_error, double sum_pv, DType out);
double allowed_lse(double exact, double standard_error);
double one_rounding(double value, DType dtype);  // the most that rounding `value` to the type moves it

}  // namespace tessera::conformance
