// Typical mistakes, switched on one at a time in a library built for it: the suite must see every one of them.
#include <gtest/gtest.h>

#include "conformance/runner.hpp"
#include "cpu/fault.hpp"

namespace tessera::conformance {
namespace {

constexpr const char* fault_names[] = {
#define TESSERA_FAULT_NAME(name) #name,
    TESSERA_FAULTS(TESSERA_FAULT_NAME)
#undef TESSERA_FAULT_NAME
};

// The instruction sets share one kernel text: two of them are enough, the portable one and the best.
std::vector<Subject> planted_subjects() {
  std::vector<Subject> all = subjects();
  if (all.size() > 2) all.erase(all.begin() + 1, all.end() - 1);
  return all;
}

class PlantedFault : public testing::TestWithParam<int> {
  void TearDown() override { cpu::planted = -1; }
};

TEST_P(PlantedFault, IsSeenInEveryType) {
  for (const Subject& subject : planted_subjects())
    for (DType dtype : {f32, bf16, f16}) {
      cpu::planted = GetParam();
      const Report report =
          run({&subject, 1}, {.cases = 150, .seed = 5, .dtypes = {dtype}, .shrink = false, .max_failures = 1});
      cpu::planted = -1;
      EXPECT_FALSE(report.failures.empty())
          << fault_names[GetParam()] << " is not seen on " << subject.name << " in " << name(dtype);
    }
}
INSTANTIATE_TEST_SUITE_P(All, PlantedFault, testing::Range(0, static_cast<int>(std::size(fault_names))),
                         [](const auto& one) { return std::string(fault_names[one.param]); });

TEST(PlantedFaults, WithNoneThereIsNone) {
  for (const Subject& subject : planted_subjects()) {
    const Report report = run({&subject, 1}, {.cases = 60, .seed = 5, .named = false, .shrink = false});
    for (const Failure& failure : report.failures) ADD_FAILURE() << failure;
    EXPECT_TRUE(report.passed());
  }
}

}  // namespace
}  // namespace tessera::conformance
