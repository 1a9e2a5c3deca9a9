// Who stays on the CPU does not open the driver: in a process of its own, where nobody has opened it before.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "tessera/tessera.hpp"

namespace tessera::cuda::tests {
namespace {

bool driver_is_open() { return dlopen(FAKE_CUDA, RTLD_NOW | RTLD_NOLOAD) != nullptr; }

// Exit codes: 0 as it should be, 1 the driver was opened by CPU calls, 2 it was not opened by a question about CUDA.
[[noreturn]] void compute_on_the_cpu() {
  setenv("TESSERA_CUDA_DRIVER", FAKE_CUDA, 1);
  std::vector<float> memory(4 * 64 * 16), lse(64);
  const auto at = [&](int i) { return tensor(memory.data() + i * 64 * 16, {1, 64, 1, 16}); };
  const Inputs in{at(0), at(1), at(2)};
  const Outputs out{at(3), tensor(lse.data(), {1, 1, 64})};
  attention(in, out, {.mask = causal()});
  attention(in, out, {.backend = "cpu"});
  merge(out, out, out);
  if (driver_is_open()) std::exit(1);
  try {
    plan(describe(in, {.backend = "cuda"}));  // asked by name: what is missing belongs to the answer
  } catch (const Error&) {
  }
  std::exit(driver_is_open() ? 0 : 2);
}

TEST(CpuOnlyDeathTest, OpensNoDriver) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(compute_on_the_cpu(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tessera::cuda::tests
