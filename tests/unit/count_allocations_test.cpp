// The count sees allocations, and masks make none.
#include "unit/count_allocations.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <new>
#include <thread>

#include "mods/graph.hpp"
#include "tessera/tile_map.hpp"

namespace tessera {
namespace {

using tests::AllocationCount;

// Called by name, they may not be optimised away.
void allocate_once() { ::operator delete(::operator new(sizeof(int))); }

TEST(AllocationCount, SeesEveryFormOfNew) {
  const AllocationCount count;
  allocate_once();
  EXPECT_EQ(count.of_this_thread(), 1u);
  ::operator delete[](::operator new[](100));
  EXPECT_EQ(count.of_this_thread(), 2u);
  constexpr std::align_val_t alignment{256};
  void* aligned = ::operator new(100, alignment);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned) % 256, 0u);
  ::operator delete(aligned, alignment);
  EXPECT_EQ(count.of_this_thread(), 3u);
  ::operator delete(::operator new(8, std::nothrow), std::nothrow);
  EXPECT_EQ(count.of_this_thread(), 4u);
  EXPECT_GE(count.of_all_threads(), 4u);
}

TEST(AllocationCount, TellsThreadsApart) {
  std::atomic<bool> go{false};
  std::thread other([&] {
    while (!go) std::this_thread::yield();
    allocate_once();
  });
  const AllocationCount count;
  go = true;
  other.join();
  EXPECT_EQ(count.of_this_thread(), 0u);
  EXPECT_GE(count.of_all_threads(), 1u);
}

TEST(AllocationCount, ReadyMadeMasksAllocateNothing) {
  const auto use = [] {
    const Mask mask = causal() & window(1023, 0);
    const Mask other = (!mask) | window(3, unbounded);
    return hash(mask.graph()) + hash(other.graph()) + (mask == other) +
           mods::evaluate_mask(mask.graph(), {.q = 5, .k = 3}) + Mask(mask.graph()).is_full();
  };
  const std::uint64_t first = use();  // the thread's builder grows once
  const AllocationCount count;
  EXPECT_EQ(use(), first);
  EXPECT_EQ(count.of_this_thread(), 0u);
}

TEST(AllocationCount, LargeMasksAreSharedWhenCopied) {
  Mask mask = causal();
  for (std::int64_t i = 0; i < 20; ++i) mask = mask | window(i, i);
  ASSERT_GT(mask.graph().nodes.size(), 20u);
  const AllocationCount count;
  const Mask copy = mask;
  EXPECT_EQ(count.of_this_thread(), 0u);
  EXPECT_EQ(copy, mask);
}

TEST(AllocationCount, CoversAllocateNothing) {
  const TileMap map(window(1023, 0));
  const AllocationCount count;
  EXPECT_EQ(map.cover(0, 64, 0, 64).coverage, Coverage::partial);
  EXPECT_EQ(map.pairs(0, 64, 64), 64.0 * 65 / 2);
  EXPECT_EQ(count.of_this_thread(), 0u);
}

}  // namespace
}  // namespace tessera
