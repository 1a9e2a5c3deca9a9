// A real kernel on the emulated GPU, plain and checked, in several schedules: right results, no reports.
#include "sim/small_case.hpp"

#include <gtest/gtest.h>

#include "sim/folder.hpp"
#include "sim/sources.hpp"

namespace tessera::sim {
namespace {

const LoadedCode& code(int dim, bool causal, bool checked) {
  const std::string kernel = file_text("tests/sim/small_forward.cuh");
  return compiled({"g++", cache_folder(), checked}, "small", small_forward_text(kernel, dim, causal));
}

const LoadedCode& code_sm90(int dim, bool causal, bool checked) {
  const std::string kernel = file_text("tests/sim/small_forward_sm90.cuh");
  return compiled({"g++", cache_folder(), checked}, "small", small_forward_sm90_text(kernel, dim, causal));
}

void check(bool checked, int seeds) {
  const SmallShape shapes[] = {{128, 128, 1, 64, false}, {192, 320, 2, 64, true}, {200, 333, 1, 64, true},
                               {64, 512, 1, 64, false},  {150, 40, 1, 64, true},  {70, 130, 1, 128, true}};
  for (const SmallShape& s : shapes)
    for (int seed = 0; seed < seeds; ++seed) {
      const Timing timings[] = {Timing::late, Timing::random, Timing::late, Timing::eager};
      const Schedule schedule{std::uint64_t(seed), timings[seed % 4], seed % 3 == 2 ? 3 : 1};
      const SmallCase one(s, unsigned(seed + 1));
      const Result result = one.run(code(s.dim, s.causal, checked), schedule);
      EXPECT_TRUE(result.ok()) << text_of(result);
      EXPECT_LE(one.error(), 1) << s.queries << " queries, " << s.keys << " keys, dim " << s.dim << ", seed " << seed;
    }
}

TEST(SmallForward, PlainInManySchedules) { check(false, 8); }
TEST(SmallForward, CheckedInManySchedules) { check(true, 4); }

void check_sm90(bool checked, int seeds) {
  const SmallShape shapes[] = {{128, 128, 1, 64, false}, {192, 320, 2, 64, true}, {200, 333, 1, 64, true},
                               {64, 512, 1, 64, false},  {250, 40, 1, 64, true},  {70, 130, 1, 128, true}};
  for (const SmallShape& s : shapes)
    for (int seed = 0; seed < seeds; ++seed) {
      const Timing timings[] = {Timing::late, Timing::random, Timing::late, Timing::eager};
      const SmallCase one(s, unsigned(seed + 1));
      const Result result = one.run_sm90(code_sm90(s.dim, s.causal, checked),
                                         {std::uint64_t(seed), timings[seed % 4], seed % 3 == 2 ? 3 : 1});
      EXPECT_TRUE(result.ok()) << text_of(result);
      EXPECT_LE(one.error(), 1) << s.queries << " queries, " << s.keys << " keys, dim " << s.dim << ", seed " << seed;
    }
}
TEST(SmallForwardSm90, PlainInManySchedules) { check_sm90(false, 8); }
TEST(SmallForwardSm90, CheckedInManySchedules) { check_sm90(true, 4); }

TEST(SmallForwardSm90, Speed) {
  for (const bool checked : {false, true}) {
    const SmallCase one({512, 512, 1, 64, false}, 1);
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const Result result = one.run_sm90(code_sm90(64, false, checked), {});
      ASSERT_TRUE(result.ok()) << text_of(result);
      best = std::min(best, result.seconds);
    }
    RecordProperty(checked ? "checked_ms" : "plain_ms", int(best * 1e3));
    std::printf("512 queries, 512 keys, dim 64, one head, sm_90, %s: %.1f ms\n", checked ? "checked" : "plain",
                best * 1e3);
  }
}

TEST(SmallForward, TheSameScheduleIsTheSameRun) {
  const SmallCase one({130, 200, 1, 64, true}, 1);
  const Schedule schedule{7, Timing::random, 2};
  const Result a = one.run(code(64, true, false), schedule), b = one.run(code(64, true, false), schedule);
  EXPECT_EQ(a.switches, b.switches);
  EXPECT_GT(a.switches, 1000u);
  const Result c = one.run(code(64, true, false), {8, Timing::random, 2});
  EXPECT_NE(a.switches, c.switches);
}

TEST(SmallForward, Speed) {
  for (const bool checked : {false, true}) {
    const SmallCase one({512, 512, 1, 64, false}, 1);
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const Result result = one.run(code(64, false, checked), {});
      ASSERT_TRUE(result.ok()) << text_of(result);
      best = std::min(best, result.seconds);
    }
    RecordProperty(checked ? "checked_ms" : "plain_ms", int(best * 1e3));
    std::printf("512 queries, 512 keys, dim 64, one head, %s: %.1f ms\n", checked ? "checked" : "plain", best * 1e3);
  }
}

}  // namespace
}  // namespace tessera::sim
