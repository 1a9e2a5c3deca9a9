// The conformance suite on every backend and instruction set that runs here, in every input type.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "conformance/runner.hpp"

namespace tessera::conformance {
namespace {

// Cases of one (backend, dtype); TESSERA_CONFORMANCE_CASES and TESSERA_CONFORMANCE_SEED for longer or other runs.
std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Target {
  std::string backend;
  DType dtype;
};

// What takes longest comes first, so that nothing is left to wait for: CTest begins tests in this order, the named
// cases before the generated ones.
std::vector<Target> targets() {
  std::vector<Target> all;
  for (const Subject& s : subjects())
    for (DType dtype : {f32, bf16, f16}) all.push_back({s.name, dtype});
  std::stable_partition(all.begin(), all.end(), [](const Target& t) { return t.backend == "cpu:scalar"; });
  return all;
}

std::string title(const testing::TestParamInfo<Target>& info) {
  std::string text = info.param.backend + "_" + std::string(name(info.param.dtype));
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return text;
}

void expect_no_failures(const Report& report) {
  for (const Failure& failure : report.failures) ADD_FAILURE() << failure;
  EXPECT_TRUE(report.passed());
}

class Conformance : public testing::TestWithParam<Target> {};

TEST_P(Conformance, NamedCases) {
  const Subject s[] = {subject(GetParam().backend)};
  expect_no_failures(run(s, {.cases = 0, .dtypes = {GetParam().dtype}, .max_failures = 100}));
}

TEST_P(Conformance, GeneratedCases) {
  const Subject s[] = {subject(GetParam().backend)};
  const Report report = run(s, {.cases = static_cast<std::int64_t>(setting("TESSERA_CONFORMANCE_CASES", 400)),
                                .seed = setting("TESSERA_CONFORMANCE_SEED", 1),
                                .dtypes = {GetParam().dtype},
                                .named = false,
                                .max_failures = 3});
  expect_no_failures(report);
  RecordProperty("cases", std::to_string(report.cases));
  if (!report.tallies.empty()) RecordProperty("worst_share", std::to_string(report.tallies[0].worst));
}

INSTANTIATE_TEST_SUITE_P(All, Conformance, testing::ValuesIn(targets()), title);

TEST(Subjects, AtLeastThePortableOneRunsEverywhere) {
  const std::vector<Subject> all = subjects();
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const Subject& s) { return s.name == "cpu:scalar"; }));
  EXPECT_THROW(subject("abacus"), Error);
}

}  // namespace
}  // namespace tessera::conformance
