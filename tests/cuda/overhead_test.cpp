// What a launch costs beside the driver's own part, measured on a driver that does next to nothing.
#include <algorithm>
#include <chrono>

#include "cuda/fakes.hpp"

namespace tessera::cuda::tests {
namespace {

class OverheadTest : public WithFakes {};

template <class F>
double best_ns(F call) {
  double best = 1e9;
  for (int round = 0; round < 50; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 200; ++i) call();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() / 200);
  }
  return best;
}

TEST_F(OverheadTest, ALaunchCostsLessThanAMicrosecondBesideTheDriversOwn) {
  const gpu::Kernel& kernel = engine().kernel(0, some_text());
  engine().workspace(0, {}, 1000);
  control.set_current(state().primaries.at(0));  // as in a process that uses CUDA elsewhere
  const DriverApi& api = engine().driver().api;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(api.module_load(&module, "FAKE sm_90a\nscale", 0, nullptr, nullptr), cuda_success);
  ASSERT_EQ(api.module_function(&function, module, "scale"), cuda_success);
  std::uint64_t argument[64] = {1};
  void* arguments[] = {argument};
  const double own = best_ns([&] { api.launch(function, 1, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr); });
  const double ours = best_ns([&] { engine().launch(0, {}, kernel, 1, argument, sizeof argument); });
  RecordProperty("launch_ns_beside_the_driver", static_cast<int>(ours - own));
  EXPECT_LT(ours - own, 1000) << "of which three calls that ask for the current context";
  const double workspace = best_ns([&] { engine().workspace(0, {}, 1000); });
  EXPECT_LT(workspace, 1500);
  std::printf("launch: %.0f ns beside the driver's %.0f; workspace: %.0f ns\n", ours - own, own, workspace);
}

}  // namespace
}  // namespace tessera::cuda::tests
