#include "cli/interleave.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace tessera::cli {
namespace {

constexpr int bursts = 10;
constexpr std::size_t least_samples = 3;

bool is_done(const Contender& c, double seconds) { return c.spent_s >= seconds && c.samples.count() >= least_samples; }

}  // namespace

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double Samples::quantile(double share) const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const double at = share * static_cast<double>(sorted.size() - 1);
  const std::size_t below = static_cast<std::size_t>(std::floor(at));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

void interleave(std::span<Contender* const> contenders, double seconds) {
  for (Contender* c : contenders) {
    c->sample();  // warms caches, pages, clocks
    if (c->after) c->after();
  }
  for (std::size_t turn = 0;; ++turn) {
    bool all_done = true;
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      Contender& c = *contenders[(turn + i) % contenders.size()];
      if (is_done(c, seconds)) continue;
      const double start = now_s();
      double spent = 0;
      do {
        c.samples.add(c.sample());
        spent = now_s() - start;
      } while (spent < seconds / bursts);
      c.spent_s += spent;
      if (c.after) c.after();
      all_done = all_done && is_done(c, seconds);
    }
    if (all_done) return;
  }
}

}  // namespace tessera::cli
