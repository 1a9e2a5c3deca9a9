// Global memory on the emulated GPU: bounds, what may be read and written, and what orders threads and blocks.
#include <gtest/gtest.h>

#include <bit>

#include "sim/expectations.hpp"
#include "sim/region.hpp"

namespace tessera::sim {
namespace {

TEST(Global, BoundsNameTheMemory) {
  for (const bool checked : {false, true}) {
    const Behaviour b = behave("write_past_the_output", {.checked = checked});
    only(b, "out of bounds");
    EXPECT_TRUE(says(b, "'out' of 4096 bytes, at byte 4096")) << text_of(b.result);
    EXPECT_TRUE(says(b, "thread 127")) << text_of(b.result);
    only(behave("read_past_the_input", {.checked = checked}), "out of bounds");
  }
}

TEST(Global, InputsAreNotWrittenAndFreshMemoryNotRead) {
  only(behave("write_to_the_input"), "write to an input");
  const Behaviour b = behave("read_what_nobody_wrote");
  only(b, "uninitialised");
  EXPECT_TRUE(says(b, "'fresh' at byte")) << text_of(b.result);
  quiet(behave("write_and_read_again"));
}

TEST(Global, AlignmentAndSpace) {
  only(behave("load16_misaligned", plain()), "alignment");
  only(behave("load4_of_shared_memory", plain()), "out of bounds");
  only(behave("atomic_on_shared_memory", plain()), "out of bounds");
  only(behave("read_only_load_of_what_is_written"), "read-only load");
}

TEST(Global, LoadsAndStoresOfAllWidths) {
  const Behaviour b = behave("loads_and_stores_of_all_widths");
  quiet(b);
  for (std::uint32_t i = 0; i < 128; ++i) EXPECT_EQ(b.out[i], i);
  EXPECT_EQ(b.out[40 * 4], 80u);
  EXPECT_EQ(b.out[40 * 4 + 1], 81u);
  EXPECT_EQ(b.out[70 * 4], 70u);
  EXPECT_EQ(b.out[100 * 4], 0xffff0064u);
}

TEST(Global, Races) {
  only(behave("global_race_in_a_block"), "race");
  for (const int resident : {1, 2}) {
    const Behaviour b = behave("global_race_of_blocks", {.schedule = {.resident = resident}, .blocks = 2});
    only(b, "race");
    EXPECT_TRUE(says(b, "'out' at byte 0: write is not ordered after the write by block 0")) << text_of(b.result);
  }
  quiet(behave("blocks_apart", {.schedule = {.seed = 2, .resident = 3}, .blocks = 5}));
}

TEST(Global, LaunchesAreInOrder) {  // the same memory by the same thread of the host: what one wrote the next may read
  const Memory memory("memory", 64);
  quiet(behave("blocks_apart", {.blocks = 2}));
  quiet(behave("write_and_read_again"));
}

TEST(Global, Atomics) {
  const Behaviour b = behave("atomics_do_not_race", {.schedule = {.seed = 4, .resident = 2}, .blocks = 3, .zeroed = 4});
  quiet(b);
  EXPECT_EQ(b.out[0], 384u);
  EXPECT_EQ(b.out[1], 127u);
  EXPECT_EQ(b.out[2], 0xffffffffu);
  EXPECT_EQ(std::bit_cast<float>(b.out[3]), 192.0f);
  only(behave("atomic_beside_a_plain_read", {.zeroed = 1}), "race");
}

TEST(Blocks, TellEachOther) {
  for (const char* right : {"release_and_acquire", "relaxed_with_fences"})
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const Behaviour b = behave(right, {.schedule = {.seed = seed, .resident = 2}, .blocks = 2, .zeroed = 1});
      quiet(b);
      for (std::uint32_t t = 0; t < 128; ++t) EXPECT_EQ(b.out[256 + t], 127 - t);
    }
  for (const char* wrong : {"relaxed_without_fences", "flag_set_before_the_data"})
    only(behave(wrong, {.schedule = {.resident = 2}, .blocks = 2, .zeroed = 1}), "race");
}

TEST(Blocks, ABlockThatWaitsForALaterOneWaitsForEver) {
  const Behaviour b = behave("release_and_acquire", {.checked = false, .blocks = 2, .zeroed = 1});
  only(b, "deadlock");
  EXPECT_TRUE(says(b, "a word of global memory: 'out' of 4096 bytes, at byte 0, which holds 0")) << text_of(b.result);
}

TEST(Blocks, TheLastOneAddsUp) {
  for (const int resident : {1, 3})
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const Setting setting{.schedule = {.seed = seed, .resident = resident}, .blocks = 5, .zeroed = 2};
      const Behaviour b = behave("last_block_adds_up", setting);
      quiet(b);
      for (std::uint32_t t = 0; t < 128; ++t) EXPECT_EQ(b.out[128 + t], 5 * t);
      only(behave("last_block_without_fences", setting), "race");
    }
}

TEST(Regions, KnowTheirPlaceAndTheirContent) {
  const Memory memory("memory", 100, Content::nothing);
  const auto all = regions();
  const RegionInfo* r = region_at(*all, memory.as<>() + 99);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->name, "memory");
  EXPECT_EQ(region_at(*all, memory.as<>() + 100), nullptr);
  EXPECT_TRUE(memory.intact());
  memory.as<>()[100] = 0;
  EXPECT_FALSE(memory.intact());
  memory.as<>()[100] = char(0xff);
  EXPECT_TRUE(memory.intact());
  mark_written(memory.as<>() + 2, 5);
  EXPECT_EQ(r->written.get()[0], 12);
  EXPECT_EQ(r->written.get()[1], 7);
  {
    const Region part("part", memory.as<>(), 10);
    EXPECT_EQ(region_at(*regions(), memory.as<>() + 50)->name, "memory");
  }
  EXPECT_EQ(region_at(*regions(), memory.as<>())->name, "memory");
}

}  // namespace
}  // namespace tessera::sim
