// One query, three keys with equal scores: the answer is the mean of the values. Plans first, to show what will run.
#include <cmath>
#include <iostream>
#include <tessera/tessera.hpp>
#include <vector>

namespace ts = tessera;

int main() {
  std::vector<float> q(8, 1.0f), k(3 * 8, 0.5f), v{1, 2, 6}, o(1);
  const ts::Inputs in{.q = ts::tensor(q.data(), {1, 1, 1, 8}),
                      .k = ts::tensor(k.data(), {1, 3, 1, 8}),
                      .v = ts::tensor(v.data(), {1, 3, 1, 1})};
  const ts::Outputs out{.o = ts::tensor(o.data(), {1, 1, 1, 1})};
  const ts::Plan plan = ts::plan(ts::describe(in, out));
  plan.run(in, out);
  std::cout << plan << "\nmean of 1, 2, 6: " << o[0] << '\n';
  return std::abs(o[0] - 3.0f) < 1e-6f ? 0 : 1;
}
