// What the machine does and what it notices, one small kernel each (behaviours.cuh): synchronisation, shared memory,
// asynchronous copies, schedules. Global memory and blocks together: global_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "sim/expectations.hpp"

namespace tessera::sim {
namespace {

constexpr std::uint32_t poison = 0xffffffffu;

TEST(Machine, ADeadlockNamesEveryWarpItsBarrierAndTheLine) {
  const Behaviour b = behave("deadlock_at_syncthreads", plain());
  only(b, "deadlock");
  EXPECT_TRUE(says(b, "block 0 warp 1 lanes 0xffffffff: barrier 0 (64 of 128 threads arrived) at behaviours.cuh:"));
  EXPECT_TRUE(says(b, "block 0 warp 3 lanes 0xffffffff: ended"));
}

TEST(Machine, ADeadlockBesideABlockThatEnds) {
  const Behaviour b = behave("deadlock_beside_a_block_that_ends",
                             {.checked = false, .schedule = {.resident = 2}, .blocks = 2, .zeroed = 1});
  only(b, "deadlock");
  EXPECT_TRUE(says(b, "block 1 warp 1 lanes 0xffffffff: barrier 0 (64 of 128 threads arrived)")) << text_of(b.result);
}

TEST(Machine, BarriersAreUsedAsTheyWereBegun) {
  only(behave("barrier_with_two_counts", plain()), "barrier");
  only(behave("barrier_with_a_bad_id", plain()), "barrier");
  const Behaviour left = behave("arrivals_left_over", plain());
  only(left, "barrier");
  EXPECT_TRUE(says(left, "64 arrivals are left at barrier 3"));
}

TEST(Machine, NamedBarriersOrderProducersAndConsumers) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const Behaviour b = behave("producers_and_consumers", {.schedule = {.seed = seed}});
    quiet(b);
    for (std::uint32_t i = 0; i < 256; ++i) ASSERT_EQ(b.out[i], i / 64 * 1000 + i % 64);
  }
  EXPECT_GE(behave("consumers_do_not_wait").of("race"), 1);
}

TEST(Machine, BlocksVote) {
  const Behaviour b = behave("votes_of_the_block");
  quiet(b);
  EXPECT_EQ(b.out[0], 1u);
  EXPECT_EQ(b.out[127], 5u);
}

TEST(Machine, WarpInstructions) {
  const Behaviour b = behave("warp_instructions");
  quiet(b);
  for (std::uint32_t t = 0; t < 128; ++t) {
    EXPECT_EQ(b.out[t], (t ^ 5) + 1000 * (t / 32 * 32 + 3));
    EXPECT_EQ(b.out[128 + t], 0x49249249u);
    EXPECT_EQ(b.out[256 + t], 5u);
  }
}

TEST(Machine, LanesThatPartCompany) {
  const Behaviour b = behave("divergent_instructions", plain());
  only(b, "divergent warp");
  EXPECT_TRUE(says(b, "vote")) << text_of(b.result);
  only(behave("half_a_warp_for_a_whole", plain()), "deadlock");
  only(behave("mask_without_the_lane", plain()), "divergent warp");
  only(behave("masks_that_overlap", plain()), "divergent warp");
}

TEST(Machine, PartsOfAWarpByTheirMask) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Behaviour b = behave("two_halves_by_themselves", {.schedule = {.seed = seed}});
    quiet(b);
    EXPECT_EQ(b.out[33], (33u ^ 3) + 1000 * 0xaaaau);
    EXPECT_EQ(b.out[60], 49u);
  }
}

TEST(Shared, RacesAndWhatOrders) {
  for (const char* wrong : {"race_between_warps", "race_in_a_warp", "syncwarp_does_not_order_warps",
                            "a_shuffle_orders_nothing", "overwritten_too_early"})
    EXPECT_GE(behave(wrong).of("race"), 1) << wrong;
  for (const char* right : {"syncwarp_orders", "syncwarp_of_some_orders_only_them", "syncthreads_orders",
                            "halves_of_a_word_are_two", "structs_of_its_own"})
    for (std::uint64_t seed = 0; seed < 3; ++seed) quiet(behave(right, {.schedule = {.seed = seed}}));
}

TEST(Shared, ARaceNamesBothSides) {
  const Behaviour b = behave("race_in_a_warp");
  EXPECT_TRUE(says(b, "shared memory + 0x")) << text_of(b.result);
  EXPECT_TRUE(says(b, "read is not ordered after the write by thread ")) << text_of(b.result);
  const std::string text = text_of(b.result);
  EXPECT_GE(std::count(text.begin(), text.end(), ':'), 4) << text;  // two places of the form file:line
  EXPECT_NE(text.find("behaviours.cuh:"), text.rfind("behaviours.cuh:")) << text;
}

TEST(Shared, IsPoisonUntilItIsWritten) {
  EXPECT_EQ(behave("never_written", plain()).out[7], poison);
  only(behave("never_written"), "uninitialised");
}

TEST(Shared, BoundsAndAlignment) {
  only(behave("shared_out_of_bounds"), "out of bounds");
  only(behave("shared_far_out_of_bounds", plain()), "out of bounds");
  only(behave("shared_out_of_bounds", plain()), "out of bounds");  // its end stands against the zone behind it
  only(behave("shared_below_bounds"), "out of bounds");
  only(behave("ldmatrix_misaligned", plain()), "alignment");
  only(behave("ldmatrix_past_the_end", plain()), "out of bounds");
}

TEST(Copies, WriteWhatTheyReadAndZeros) {
  for (const Timing timing : {Timing::late, Timing::eager, Timing::random}) {
    const Behaviour b = behave("copies_of_all_sizes", {.schedule = {.seed = 3, .timing = timing}});
    quiet(b);
    for (std::uint32_t t = 0; t < 128; ++t) {
      const auto expect = [&](std::uint32_t at, std::uint32_t first, std::uint32_t bytes, std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i) {
          const std::uint32_t left = bytes > i * 4 ? std::min(4u, bytes - i * 4) : 0;
          const std::uint32_t mask = left == 4 ? ~0u : (1u << left * 8) - 1;
          EXPECT_EQ(b.out[t * 8 + at + i], (first + i) & mask) << t << " " << at << " " << i;
        }
      };
      expect(0, t * 4, t % 17, 4);
      expect(4, t * 2, t % 9, 2);
      expect(6, t, t % 5, 1);
      expect(7, 0, 0, 1);
    }
  }
}

TEST(Copies, AreOnTheirWayUntilTheWait) {
  for (const char* name : {"copy_read_before_its_wait", "copy_with_too_weak_a_wait", "copy_without_a_commit"}) {
    only(behave(name), "race");
    const Behaviour late = behave(name, plain());
    quiet(late);  // nobody reports it, but what is read is no number
    EXPECT_TRUE(late.out[5] == poison || late.out[5] == poison + 5) << late.out[5];
  }
  EXPECT_EQ(behave("copy_read_before_its_wait", {.checked = false, .schedule = {.timing = Timing::eager}}).out[5], 5u);
  EXPECT_GE(behave("copy_without_a_barrier").of("race"), 1);
  only(behave("copy_never_waited_for", plain()), "cp.async");
  only(behave("copy_source_overwritten"), "race");
  const Behaviour later = behave("copy_source_overwritten_later");
  quiet(later);
  EXPECT_EQ(later.out[3], 10u);
}

TEST(Copies, BoundsAndAlignment) {
  only(behave("copy_to_a_misaligned_place", plain()), "alignment");
  only(behave("copy_from_a_misaligned_place", plain()), "alignment");
  only(behave("copy_past_shared_memory", plain()), "out of bounds");
  only(behave("copy_past_the_input"), "out of bounds");
  const Behaviour past = behave("copy_past_the_input", plain());  // its end stands against a guard page
  only(past, "out of bounds");
  EXPECT_TRUE(says(past, "[behaviours.cuh:")) << text_of(past.result);
  EXPECT_TRUE(says(past, "'in' of 4096 bytes, at byte 4096")) << text_of(past.result);
}

TEST(Machine, SchedulesOrderBlocks) {
  const auto order = [](std::uint64_t seed, int resident) {
    const Behaviour b =
        behave("tickets", {.schedule = {.seed = seed, .resident = resident}, .blocks = 50, .zeroed = 1});
    quiet(b);
    EXPECT_EQ(b.out[0], 50u);
    std::vector<std::uint32_t> tickets(b.out.begin() + 1, b.out.begin() + 51);
    EXPECT_EQ(std::set<std::uint32_t>(tickets.begin(), tickets.end()).size(), 50u);
    return tickets;
  };
  std::vector<std::uint32_t> in_order = order(0, 1), mixed = order(5, 1), again = order(5, 1), other = order(6, 4);
  EXPECT_TRUE(std::is_sorted(in_order.begin(), in_order.end()));
  EXPECT_FALSE(std::is_sorted(mixed.begin(), mixed.end()));
  EXPECT_EQ(mixed, again);
  EXPECT_NE(mixed, other);
}

TEST(Machine, IndicesStayInTheirArraysAndNothingIsDividedByZero) {
  const Behaviour b = behave("index_beyond_its_array");
  only(b, "out of bounds");
  EXPECT_TRUE(says(b, "thread 4 (warp 0 lane 4) [behaviours.cuh:")) << text_of(b.result);
  EXPECT_TRUE(says(b, "an index beyond its array")) << text_of(b.result);
  only(behave("division_by_zero", plain()), "arithmetic");
}

TEST(Machine, ATrapEndsTheLaunch) {
  const Behaviour b = behave("a_trap", plain());
  only(b, "trap");
  EXPECT_TRUE(says(b, "thread 5 (warp 0 lane 5) [behaviours.cuh:")) << text_of(b.result);
}

}  // namespace
}  // namespace tessera::sim
