#include "accuracy.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iomanip>
#include <limits>
#include <map>
#include <numeric>
#include <sstream>

#include "poison.hpp"
#include "standard.hpp"

namespace tessera::conformance {

double one_rounding(double value, DType dtype) {
  // Half the distance of two neighbours at the top of the value's binade, or of two denormals.
  const double relative = dtype == DType::bf16 ? 0x1p-9 : dtype == DType::f16 ? 0x1p-12 : 0x1p-25;
  const double smallest = dtype == DType::bf16 ? 0x1p-133 : dtype == DType::f16 ? 0x1p-24 : 0x1p-149;
  if (value == 0) return smallest / 2;
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [2^(e-1), 2^e)
  return std::max(std::ldexp(relative, exponent), smallest / 2);
}

double allowed_o(double exact, double standard_error, double sum_pv, DType out) {
  return 2 * standard_error + one_rounding(exact, out) + 0x1p-20 * sum_pv;
}
double allowed_lse(double exact, double standard_error) {
  return 2 * standard_error + 0x1p-20 * std::max(1.0, std::abs(exact));
}

namespace {

using Pair = std::pair<std::int64_t, std::int64_t>;  // sequence, head
struct Errors {
  double o = 0, lse = 0;
};

std::vector<std::size_t> all_indices(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

// Up to `each` rows of every (sequence, head).
std::vector<std::size_t> most_sensitive(const Expectation& e, std::size_t each) {
  std::map<Pair, std::vector<std::size_t>> by_pair;
  for (std::size_t r = 0; r < e.rows.size(); ++r) by_pair[{e.rows[r].b, e.rows[r].h}].push_back(r);
  std::vector<std::size_t> chosen;
  for (auto& [pair, rows] : by_pair) {
    const auto more = [&](std::size_t a, std::size_t b) { return e.exact.sensitivity[a] > e.exact.sensitivity[b]; };
    const auto middle = rows.begin() + static_cast<std::ptrdiff_t>(std::min(each, rows.size()));
    std::partial_sort(rows.begin(), middle, rows.end(), more);
    chosen.insert(chosen.end(), rows.begin(), middle);
  }
  return chosen;
}

// Takes the errors of standard attention on some rows into account, in orders [first, orders) of `orders`.
void widen(std::map<Pair, Errors>& largest, const Expectation& e, const Inputs& inputs, const Options& options,
           Attended& attended, const std::vector<std::size_t>& indices, int first, int orders) {
  std::vector<Row> rows;
  for (std::size_t i : indices) rows.push_back(e.rows[i]);
  const auto raise = [](double& error, double got, double exact) {
    if (std::isfinite(got) && std::isfinite(exact)) error = std::max(error, std::abs(got - exact));
  };
  const std::size_t dim_v = static_cast<std::size_t>(e.exact.dim_v);
  for (int order = first; order < orders; ++order) {
    const Standard standard = attend_standard(inputs, options, e.out, rows, order, orders, &attended);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      Errors& errors = largest[{rows[r].b, rows[r].h}];
      for (std::size_t j = 0; j < dim_v; ++j)
        raise(errors.o, static_cast<double>(standard.o[r * dim_v + j]), e.exact.o[indices[r] * dim_v + j]);
      raise(errors.lse, static_cast<double>(standard.lse_ln[r]), e.exact.lse_ln[indices[r]]);
    }
  }
}

}  // namespace

Expectation expect(const Inputs& inputs, const Options& options, DType out, std::vector<Row> rows) {
  Expectation e;
  e.sequences = sequences(inputs, options), e.rows = std::move(rows), e.out = out;
  Attended attended(inputs, options);
  e.exact = attend_exactly(inputs, options, e.rows, &attended);
  // One number for each (sequence, head): the largest error of standard attention. It must not be a matter of luck: the
  // sums are taken in four orders, and those rows that can show the largest error (whole heads, where rows are few) in
  // many more, each of them standard attention.
  std::map<Pair, Errors> largest;
  widen(largest, e, inputs, options, attended, all_indices(e.rows.size()), 0, 4);
  const bool many = e.rows.size() > 20000;
  widen(largest, e, inputs, options, attended, most_sensitive(e, 16), 4, many ? 4 : 16);
  for (const Row& row : e.rows) {
    const auto& [o_error, lse_error] = largest[{row.b, row.h}];
    e.o_error.push_back(o_error), e.lse_error.push_back(lse_error);
  }
  return e;
}

namespace {

// Share of the allowance that is used; over 1 is a violation. NaN wants NaN. An infinite result (an infinite value with
// a probability that fp32 may round to 0) wants the same infinity or NaN.
double share(double got, double exact, double allowed) {
  constexpr double refused = std::numeric_limits<double>::infinity();
  if (std::isnan(exact)) return std::isnan(got) ? 0 : refused;
  if (std::isinf(exact)) return got == exact || (std::isnan(got) && allowed != 0) ? 0 : refused;
  if (!std::isfinite(got)) return refused;
  const double error = std::abs(got - exact);
  return error == 0 ? 0 : allowed == 0 ? refused : error / allowed;
}

std::string describe_violation(const Row& row, const std::string& what, double got, double exact, double allowed,
                               double standard_error, bool unwritten) {
  std::ostringstream text;
  text << std::setprecision(9) << what << " of sequence " << row.b << ", head " << row.h << ", query " << row.q
       << ": got " << got << (unwritten ? " (never written)" : "") << ", expected " << exact << ", off by "
       << got - exact << ", allowed " << allowed << " (standard attention's largest error " << standard_error << ")";
  return text.str();
}

}  // namespace

Verdict judge(const Expectation& e, const Outputs& got) {
  Verdict verdict;
  const std::int64_t dim_v = e.exact.dim_v;
  const auto weigh = [&](std::size_t r, const std::string& what, const Tensor& tensor, std::int64_t at, double exact,
                         double allowed, double standard_error) {
    const double value = element(tensor, at);
    const bool unwritten = is_output_poison(tensor, at);
    const double used = unwritten ? std::numeric_limits<double>::infinity() : share(value, exact, allowed);
    verdict.worst = std::max(verdict.worst, used);
    if (used <= 1) return;
    if (verdict.violations++ == 0)
      verdict.first = describe_violation(e.rows[r], what, value, exact, allowed, standard_error, unwritten);
  };
  for (std::size_t r = 0; r < e.rows.size(); ++r) {
    const Row& row = e.rows[r];
    const Sequence& sequence = e.sequences[row.b];
    const double lse = e.exact.lse_ln[r];
    const bool empty = lse == -std::numeric_limits<double>::infinity();
    const std::int64_t at = q_row_offset(got.o, sequence, row.q, row.h);
    for (std::int64_t j = 0; j < dim_v; ++j) {
      const double exact = e.exact.o[r * dim_v + j], sum_pv = e.exact.size[r] * e.exact.sum_pv[r * dim_v + j];
      const double allowed = empty ? 0 : allowed_o(exact, e.o_error[r], sum_pv, e.out);
      weigh(r, "O[" + std::to_string(j) + "]", got.o, at + j, exact, allowed, e.o_error[r]);
    }
    if (got.lse.defined())
      weigh(r, "LSE", got.lse, lse_offset(got.lse, sequence, row.q, row.h), lse,
            std::isfinite(lse) ? allowed_lse(lse, e.lse_error[r]) : 0, e.lse_error[r]);
  }
  if (verdict.violations > 1) verdict.first += " (and " + std::to_string(verdict.violations - 1) + " more)";
  return verdict;
}

}  // namespace tessera::conformance
