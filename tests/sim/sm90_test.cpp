// What the machine does and notices with the instructions of sm_90, one small kernel each (behaviours_sm90.cuh).
#include <gtest/gtest.h>

#include <bit>

#include "sim/behaviours_sm90.hpp"
#include "sim/compile.hpp"
#include "sim/expectations.hpp"
#include "sim/folder.hpp"
#include "sim/sources.hpp"

namespace tessera::sim {
namespace {

constexpr std::uint32_t poison = 0xffffffffu;
Setting90 unchecked(Timing timing = Timing::late) { return {.checked = false, .schedule = {.timing = timing}}; }

// Right kernels are right in every order, with every timing, and nothing is reported.
template <class F>
void in_all_schedules(const std::string& name, F&& expect) {
  for (const Timing timing : {Timing::late, Timing::eager, Timing::random})
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const Behaviour90 b = behave90(name, {.schedule = {.seed = seed, .timing = timing}});
      ASSERT_TRUE(b.result.ok()) << name << ", seed " << seed << "\n" << text_of(b.result);
      expect(b);
    }
}

// Halves in the output, of shared memory from its word `from` on.
std::uint16_t half_at(const Behaviour& b, std::size_t from, int i) {
  return std::uint16_t(b.out[from + std::size_t(i) / 2] >> i % 2 * 16);
}

// --- mbarriers
TEST(MBarriers, HandDataOn) {
  in_all_schedules("phases_hand_data_on", [](const Behaviour& b) {
    for (std::uint32_t i = 0; i < 6; ++i) EXPECT_EQ(b.out[i], i * 100 + 7);
  });
  in_all_schedules("asking_again_and_again", [](const Behaviour& b) { EXPECT_EQ(b.out[0], 63u); });
  in_all_schedules("memory_of_an_mbarrier_used_again", [](const Behaviour& b) { EXPECT_EQ(b.out[0], 17u); });
  in_all_schedules("small_copies_arrive", [](const Behaviour& b) {
    for (std::uint32_t i = 0; i < 64; ++i) ASSERT_EQ(b.out[i], (63 - i) * 4);
  });
}

TEST(MBarriers, TheWrongParityPassesTooEarly) {
  EXPECT_GE(behave90("the_wrong_parity").of("race"), 1);
  EXPECT_EQ(behave90("the_wrong_parity", unchecked()).out[0], poison);
}

TEST(MBarriers, ADeadlockSaysWhatIsMissing) {
  const Behaviour b = behave90("an_arrival_is_missing", unchecked());
  only(b, "deadlock");
  EXPECT_TRUE(says(b, "warp 2 lanes 0xffffffff: mbarrier at shared memory + 0x")) << text_of(b.result);
  EXPECT_TRUE(says(b, "in phase 0 1 of 3 arrivals are missing, 0 bytes have not landed")) << text_of(b.result);
  EXPECT_TRUE(says(b, "for parity 0 at behaviours_sm90.cuh:")) << text_of(b.result);
  only(behave90("asking_in_vain", unchecked()), "deadlock");
}

TEST(MBarriers, AreUsedAsTheyWereMade) {
  const Behaviour b = behave90("an_arrival_too_many", unchecked());
  only(b, "mbarrier");
  EXPECT_TRUE(says(b, "more arrivals than the mbarrier was made for")) << text_of(b.result);
  for (const char* name : {"no_mbarrier_there", "an_mbarrier_written_over", "an_mbarrier_made_twice"})
    only(behave90(name, unchecked()), "mbarrier");
  only(behave90("an_mbarrier_used_before_it_is_made"), "race");
}

TEST(MBarriers, SmallCopiesThatNobodyWaitedFor) {
  const Behaviour b = behave90("small_copies_do_not_arrive");
  EXPECT_GE(b.of("race"), 1);
  EXPECT_GE(b.of("cp.async"), 1);
  EXPECT_EQ(behave90("small_copies_do_not_arrive", unchecked()).out[3], poison);
}

// --- loads in bulk
TEST(BulkLoads, ABoxOverTheEdges) {
  in_all_schedules("a_box", [](const Behaviour& b) {
    for (int z = 0; z < 2; ++z)
      for (int row = 0; row < 24; ++row)
        for (int column = 0; column < 64; ++column) {
          const int line = z * 24 + row, place = line * 64 + ((column / 8) ^ (line % 8)) * 8 + column % 8;
          ASSERT_EQ(half_at(b, 0, place), cube_at(z, 90 + row, 16 + column)) << z << " " << row << " " << column;
        }
  });
}

TEST(BulkLoads, BoxesOfOtherKinds) {
  in_all_schedules("boxes_of_other_kinds", [](const Behaviour& b) {
    for (int row = 0; row < 8; ++row)
      for (int column = 0; column < 24; ++column) {
        ASSERT_EQ(half_at(b, 0, row * 24 + column), cube_at(1, row - 3, column - 8));
        ASSERT_EQ(half_at(b, 96, row * 24 + column), cube_at(0, row + 50, column + 8));
      }
    // Pieces of 16 bytes; a row's own bits above 128 bytes are exchanged with them.
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 32; ++column)
        ASSERT_EQ(half_at(b, 192, row * 32 + ((column / 8) ^ (row / 2 % 4)) * 8 + column % 8),
                  cube_at(1, row + 5, column + 40));
      for (int column = 0; column < 16; ++column)
        ASSERT_EQ(half_at(b, 448, row * 16 + ((column / 8) ^ (row / 4 % 2)) * 8 + column % 8),
                  cube_at(1, row + 60, column + 8));
    }
  });
}

TEST(BulkLoads, Bytes) {
  in_all_schedules("bytes_there_and_back", [](const Behaviour& b) {
    for (std::uint32_t i = 0; i < 128; ++i) ASSERT_EQ(b.out[64 + i], 16 + i);
    EXPECT_EQ(b.out[0], 16u + 127);
  });
}

TEST(BulkLoads, AreOnTheirWayUntilTheWait) {
  only(behave90("a_load_read_before_its_wait"), "race");
  EXPECT_EQ(behave90("a_load_read_before_its_wait", unchecked()).out[0], poison);
  EXPECT_EQ(behave90("a_load_read_before_its_wait", unchecked(Timing::eager)).out[0], 128u);
  only(behave90("a_load_read_by_one_who_did_not_wait"), "race");
  in_all_schedules("a_place_loaded_again", [](const Behaviour& b) { EXPECT_EQ(b.out[0], 0u); });
  only(behave90("a_place_loaded_again_too_early"), "race");
  only(behave90("a_load_nobody_waits_for"), "bulk copy");
}

TEST(BulkLoads, CountTheirBytes) {
  const Behaviour few = behave90("too_few_bytes_expected");
  EXPECT_GE(few.of("race"), 1) << text_of(few.result);
  const Behaviour plain = behave90("too_few_bytes_expected", unchecked());
  EXPECT_FALSE(plain.result.ok()) << text_of(plain.result);
  const Behaviour many = behave90("too_many_bytes_expected", unchecked());
  only(many, "deadlock");
  EXPECT_TRUE(says(many, "0 of 1 arrivals are missing, 16 bytes have not landed")) << text_of(many.result);
}

TEST(BulkLoads, NeedAnMbarrierThatTheProxySees) {
  only(behave90("an_mbarrier_made_without_a_fence", unchecked()), "proxy");
}

TEST(BulkLoads, BoundsAndAlignment) {
  only(behave90("a_load_to_a_misaligned_place", unchecked()), "alignment");
  only(behave90("a_load_with_too_few_coordinates", unchecked()), "tensor map");
  only(behave90("a_load_by_what_is_no_map", unchecked()), "tensor map");
  only(behave90("a_load_of_half_a_chunk", unchecked()), "alignment");
  only(behave90("a_load_past_shared_memory", unchecked()), "out of bounds");
  only(behave90("bytes_that_are_not_sixteen", unchecked()), "alignment");
  only(behave90("a_load_past_the_input"), "out of bounds");
  const Behaviour past = behave90("a_load_past_the_input", unchecked());  // into a guard page
  only(past, "out of bounds");
  EXPECT_TRUE(says(past, "[behaviours_sm90.cuh:")) << text_of(past.result);
}

// --- stores in bulk
TEST(BulkStores, ABoxOverTheEdges) {
  const auto expect = [](const Behaviour90& b) {
    for (int row = 0; row < 48; ++row)
      for (int column = 0; column < 72; ++column)
        ASSERT_EQ(b.sheet[std::size_t(row * 72 + column)],
                  row >= 24 && column >= 16 ? (row - 24) * 64 + column - 16 : 0xffff);
  };
  in_all_schedules("a_box_stored", expect);
  in_all_schedules("a_box_whose_outside_was_never_written", expect);
  in_all_schedules("a_source_written_over_after_the_wait", expect);
}

TEST(BulkStores, WantWhatLiesInsideToBeWritten) {
  only(behave90("a_box_whose_last_column_was_never_written"), "uninitialised");
}

TEST(BulkStores, NeedTheFenceOfTheProxy) {
  const Behaviour b = behave90("a_box_stored_without_a_fence");
  only(b, "proxy");
  EXPECT_TRUE(says(b, "is read by the asynchronous proxy without a fence_async()")) << text_of(b.result);
}

TEST(BulkStores, AreOnTheirWayUntilTheWait) {
  only(behave90("a_source_written_over"), "race");
  EXPECT_EQ(behave90("a_source_written_over", unchecked()).sheet[30 * 72 + 30], 9);
  only(behave90("what_was_stored_is_read_too_early"), "race");
  EXPECT_EQ(behave90("what_was_stored_is_read_too_early", unchecked()).out[0], 0xffffu);
  only(behave90("a_box_stored_and_not_waited_for", unchecked()), "bulk copy");
  only(behave90("a_box_stored_and_not_committed", unchecked()), "bulk copy");
}

TEST(BulkStores, GroupByGroup) {
  in_all_schedules("two_groups_of_stores", [](const Behaviour& b) {
    for (std::uint32_t i = 0; i < 128; ++i) ASSERT_EQ(b.out[i], i);
  });
  only(behave90("the_other_group_of_stores"), "race");
}

// --- products
float expected(int row, int column) {  // of fill(): A B^T
  int sum = 0;
  for (int k = 0; k < 64; ++k) sum += (row * 64 + k) % 7 * ((column * 64 + k) % 5);
  return float(sum);
}
int row_of(int t, int i) { return t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8; }
int column_of(int t, int i) { return i / 4 * 8 + t % 4 * 2 + i % 2; }

TEST(Products, OfSharedMemory) {
  in_all_schedules("a_product", [](const Behaviour& b) {
    for (int i = 0; i < 32; ++i)
      for (int t = 0; t < 128; ++t)
        ASSERT_EQ(std::bit_cast<float>(b.out[std::size_t(i * 128 + t)]), expected(row_of(t, i), column_of(t, i)));
  });
}

TEST(Products, GroupByGroupAndFromRegisters) {
  in_all_schedules("a_product_of_two_groups", [](const Behaviour& b) {
    for (int i = 0; i < 32; ++i)
      for (int t = 0; t < 128; ++t) {
        int sum = 1;  // of ones and the first 16 rows of B, and what was there
        for (int k = 0; k < 16; ++k) sum += (k * 64 + column_of(t, i)) % 5;
        const std::uint32_t first = std::bit_cast<std::uint32_t>(expected(row_of(t, i), column_of(t, i)));
        ASSERT_EQ(b.out[std::size_t(i * 128 + t)], first + (std::uint32_t(sum) << 16));
      }
  });
}

TEST(Products, NeedTheirFences) {
  const Behaviour b = behave90("a_product_without_a_fence_of_the_proxy");
  only(b, "proxy");
  only(behave90("a_product_without_a_fence", unchecked()), "wgmma");
  only(behave90("a_second_product_without_a_fence", unchecked()), "wgmma");
}

TEST(Products, OwnTheirRegistersUntilTheWait) {
  only(behave90("accumulators_read_before_the_wait"), "registers in flight");
  EXPECT_EQ(behave90("accumulators_read_before_the_wait", unchecked()).result.reports.size(), 0u);
  only(behave90("accumulators_written_before_the_wait"), "registers in flight");
  only(behave90("accumulators_written_before_the_wait", unchecked()), "registers in flight");
  only(behave90("a_wait_that_leaves_the_accumulators", unchecked()), "registers in flight");
  only(behave90("a_register_operand_written_too_early"), "registers in flight");
  only(behave90("a_register_operand_written_too_early", unchecked()), "registers in flight");
}

TEST(Products, ReadSharedMemoryLate) {
  const Behaviour b = behave90("an_operand_written_too_early");
  only(b, "race");
  EXPECT_TRUE(says(b, "write is not ordered after the read by the tensor cores of warpgroup 0")) << text_of(b.result);
  const auto last = [](Timing timing) { return behave90("an_operand_written_too_early", unchecked(timing)).out; };
  EXPECT_NE(last(Timing::late), last(Timing::eager));
  only(behave90("an_operand_that_is_not_ready"), "race");
}

TEST(Products, AreWaitedFor) {
  only(behave90("a_product_nobody_waits_for", unchecked()), "wgmma");
  EXPECT_GE(behave90("a_product_in_no_group", unchecked()).of("wgmma"), 1);
}

TEST(Products, AreTheWarpgroups) {
  only(behave90("warps_with_different_operands", unchecked()), "divergent warpgroup");
  const Behaviour b = behave90("a_warp_without_its_product", unchecked());
  only(b, "deadlock");
  EXPECT_TRUE(says(b, "wgmma.wait_group for product 4 of its warpgroup, for which 96 of 128 threads have asked"))
      << text_of(b.result);
  EXPECT_TRUE(says(b, "warp 3 lanes 0xffffffff: ended")) << text_of(b.result);
}

TEST(Products, Descriptors) {
  only(behave90("an_operand_that_begins_in_an_atom", unchecked()), "descriptor");
  only(behave90("an_operand_past_shared_memory", unchecked()), "out of bounds");
}

TEST(Products, AreFedByARing) {
  std::vector<std::uint32_t> first;
  in_all_schedules("a_ring", [&](const Behaviour& b) {
    if (first.empty()) first = b.out;
    EXPECT_EQ(b.out, first);
  });
  const Behaviour b = behave90("a_ring_released_by_one_warp");
  only(b, "race");
}

TEST(Products, AreFedBySmallCopies) {
  const std::vector<std::uint32_t> wanted = behave90("small_copies_fenced_where_they_are_made").out;
  EXPECT_NE(wanted[0], poison);
  for (const char* name : {"small_copies_fenced_where_they_are_made", "small_copies_fenced_where_they_are_read"})
    in_all_schedules(name, [&](const Behaviour& b) { EXPECT_EQ(b.out, wanted); });
  only(behave90("small_copies_without_a_fence"), "proxy");
}

// --- roles
TEST(Roles, RegistersAddUp) {
  const auto with = [](const std::string& name) { return behave90(name, {.checked = false, .threads = 384}); };
  quiet(with("registers_handed_over"));
  const Behaviour b = with("more_registers_than_there_are");
  only(b, "deadlock");
  EXPECT_TRUE(says(b, "setmaxnreg to 240 registers")) << text_of(b.result);
  only(with("registers_the_wrong_way"), "setmaxnreg");
  only(with("one_warp_sets_registers"), "setmaxnreg");
}

TEST(Roles, RegistersOfSeveralBlocks) {  // what the launch bounds leave to each
  for (const int blocks : {1, 4}) {
    const std::string text = inlined("#include \"kernels/ptx/roles.cuh\"\n") +
                             "struct Params {\n  int x;\n};\nextern \"C\" __global__ void __launch_bounds__(128, " +
                             std::to_string(blocks) +
                             ") raises(const __grid_constant__ Params p) {\n  ptx::registers_lower<128>();\n"
                             "  ptx::registers_raise<160>();\n}\n";
    const int params = 0;
    const Result result = launch(compiled({"g++", cache_folder()}, "raises", text), 1, 128, 0, &params, {});
    EXPECT_EQ(result.ok(), blocks == 1) << text_of(result);
  }
}

TEST(Roles, OneLaneOfAWarp) {
  in_all_schedules("one_lane_of_a_warp", [](const Behaviour& b) {
    for (std::size_t w = 0; w < 8; ++w) {
      int elected = 0;
      for (std::size_t t = w * 32; t < w * 32 + 32; ++t) {
        EXPECT_EQ(b.out[t] & 1, b.out[t] >> 1 & 1);
        EXPECT_EQ(b.out[t] / 4, w);
        elected += b.out[t] & 1;
        EXPECT_EQ(b.out[256 + t], w < 4);
      }
      EXPECT_EQ(elected, 1);
    }
  });
}

TEST(Roles, RowsOfMatrices) {
  in_all_schedules("rows_of_matrices", [](const Behaviour& b) {
    for (int matrix = 0; matrix < 4; ++matrix)
      for (int row = 0; row < 8; ++row)
        for (int column = 0; column < 8; ++column) {
          const int place = (matrix % 2 * 8 + row) * 16 + matrix / 2 * 8 + column;
          const auto word = [&](int lane) { return std::uint16_t(matrix * 100 + lane); };
          const int lane = row * 4 + column / 2, turned = column * 4 + row / 2;
          EXPECT_EQ(half_at(b, 0, place), column % 2 ? 0 : word(lane));
          EXPECT_EQ(half_at(b, 0, 256 + place), row % 2 ? 0 : word(turned));
          if (matrix < 2) {
            EXPECT_EQ(half_at(b, 256, matrix * 64 + row * 8 + column), column % 2 ? 0 : 400 + word(lane));
          }
        }
  });
}

}  // namespace
}  // namespace tessera::sim
