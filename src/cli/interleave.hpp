// Measuring several things side by side: bursts in turn, from another start each time, so that a slow phase of the
// machine falls on all of them.
// Must not know: what is measured.
#pragma once
#include <functional>
#include <span>
#include <vector>

namespace tessera::cli {

double now_s();

class Samples {
 public:
  void add(double value) { values_.push_back(value); }
  std::size_t count() const { return values_.size(); }
  double min() const { return quantile(0); }
  double max() const { return quantile(1); }
  double median() const { return quantile(0.5); }
  // Between the quartiles, as a share of the median.
  double spread() const { return (quantile(0.75) - quantile(0.25)) / median(); }
  double quantile(double share) const;  // 0 without values

 private:
  std::vector<double> values_;
};

struct Contender {
  std::function<double()> sample;    // measures once: a time, or a rate
  std::function<void()> after = {};  // after each burst, not counted
  Samples samples{};
  double spent_s = 0;
};

// Each contender gets at least `seconds` of samples and at least three, after one that does not count; in ten bursts or
// more, fewer only where one sample is longer than a burst.
void interleave(std::span<Contender* const> contenders, double seconds);

// Seconds of one call.
template <class Call>
double seconds_of(Call&& call) {
  const double start = now_s();
  call();
  return now_s() - start;
}

}  // namespace tessera::cli
