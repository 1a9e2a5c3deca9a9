// The idea of the library in four numbers: attention over two keys at a time, and merge().
#include <cmath>

#include "cli/demo.hpp"
#include "conformance/accuracy.hpp"

namespace tessera::cli::demo {
namespace {

// attention() and merge() speak of normalised results and of lse = m + log(l); a partial result on paper is the
// unnormalised triple. m is the largest score, which whoever made the scores knows.
Partial on_paper(double m, float o, float lse) {
  const double l = std::exp(static_cast<double>(lse) - m);
  return {m, l, static_cast<double>(o) * l};
}

}  // namespace

FourNumbers four_numbers(const Settings& settings) {
  // With one dim, a query of 1 and a scale of 1 the keys are the scores.
  const float one = 1;
  const Options options{.scale = 1.0f, .backend = settings.backend};
  const auto attend = [&](std::size_t first, std::int64_t count, float& o, float& lse) {
    attention({.q = tensor(&one, {1, 1, 1, 1}),
               .k = tensor(FourNumbers::scores.data() + first, {1, count, 1, 1}),
               .v = tensor(FourNumbers::values.data() + first, {1, count, 1, 1})},
              {.o = tensor(&o, {1, 1, 1, 1}), .lse = tensor(&lse, {1, 1, 1})}, options);
  };
  FourNumbers result;
  float o[4]{}, lse[4]{};
  const auto view = [&](int i) { return Outputs{tensor(&o[i], {1, 1, 1, 1}), tensor(&lse[i], {1, 1, 1})}; };
  attend(0, 2, o[0], lse[0]);
  attend(2, 2, o[1], lse[1]);
  merge(view(0), view(1), view(2));
  attend(0, 4, o[3], lse[3]);
  result.tile = {on_paper(2, o[0], lse[0]), on_paper(3, o[1], lse[1])};
  result.merged = on_paper(3, o[2], lse[2]);
  result.answer = static_cast<double>(o[2]), result.at_once = static_cast<double>(o[3]);

  double sum = 0, weighted = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const double p = std::exp(static_cast<double>(FourNumbers::scores[i]));
    sum += p, weighted += p * static_cast<double>(FourNumbers::values[i]);
  }
  result.exact = weighted / sum;
  const double allowed = conformance::allowed_o(result.exact, 0, result.exact, f32);
  const double allowed_lse = conformance::allowed_lse(std::log(sum), 0);
  result.passed = true;
  for (const int i : {2, 3})
    result.passed = result.passed && std::abs(static_cast<double>(o[i]) - result.exact) <= allowed &&
                    std::abs(static_cast<double>(lse[i]) - std::log(sum)) <= allowed_lse;
  return result;
}

}  // namespace tessera::cli::demo
