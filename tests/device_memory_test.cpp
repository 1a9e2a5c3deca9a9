// What device subjects are made of: memory that goes to a device and back with its guards, and variations of cases.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>

#include "conformance/data.hpp"
#include "conformance/device_subject.hpp"
#include "conformance/vary.hpp"
#include "gpu/testing/fake_engine.hpp"

namespace tessera::conformance {
namespace {

TEST(DeviceMemory, TakesGuardsAndPoisonThereAndBack) {
  const tests::FakeEngine engine;
  const auto memory = copied_memory(engine, 0)();
  Buffer buffer(bf16, 100, 3, Poison::output);
  const Tensor t = tensor(buffer.data(), bf16, {10, 10});
  const std::optional<Region> region = region_of(buffer.data());
  ASSERT_TRUE(region);
  auto* const there = static_cast<char*>(memory->enter("o", t, &*region, true));
  EXPECT_NE(there, buffer.data());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(there) % 256, reinterpret_cast<std::uintptr_t>(buffer.data()) % 256);
  EXPECT_EQ(std::memcmp(there, buffer.data(), 200), 0);
  EXPECT_TRUE(buffer.guards_intact());
  there[-1] = 1;  // what a kernel does that writes before its output,
  there[20] = 2;  // and to an element of it
  memory->leave();
  EXPECT_FALSE(buffer.guards_intact());
  std::vector<char> owned(100, 0);
  EXPECT_EQ(buffer.first_stray_write(owned), 10);
}

// Tensors of one buffer lie in one piece of memory there, too.
TEST(DeviceMemory, KeepsWhatLiesSideBySideSideBySide) {
  const tests::FakeEngine engine;
  const auto memory = copied_memory(engine, 0)();
  Buffer buffer(f32, 64, 0, Poison::input);
  const auto view = [&](std::int64_t from) { return tensor(static_cast<float*>(buffer.data()) + from, {16}); };
  const Region region = *region_of(buffer.data());
  auto* const a = static_cast<char*>(memory->enter("k", view(0), &region, false));
  auto* const b = static_cast<char*>(memory->enter("v", view(16), &region, false));
  EXPECT_EQ(b - a, 64);
}

// Of memory that the suite does not know, the elements of the tensor go there and back, and nothing else.
TEST(DeviceMemory, CopiesRowsOfUnknownMemory) {
  const tests::FakeEngine engine;
  const auto memory = copied_memory(engine, 0)();
  std::vector<float> mine(1000, 1);
  const Tensor t = tensor(mine.data(), {3, 4}, {100, 1});
  EXPECT_FALSE(region_of(mine.data()));
  auto* const there = static_cast<float*>(memory->enter("o", t, nullptr, true));
  EXPECT_EQ(there[203], 1.0f);
  there[203] = 7, there[204] = 8;
  memory->leave();
  EXPECT_EQ(mine[203], 7.0f);
  EXPECT_EQ(mine[204], 1.0f);
}

// Calls at once have a stream each; one after the other has the stream and the memory of the one before.
TEST(DeviceMemory, IsKeptWithItsStream) {
  const tests::FakeEngine engine;
  std::array<char, 2> streams{};
  std::size_t made = 0;
  const MakeMemory make = copied_memory(engine, 0, [&] { return Stream{&streams.at(made++)}; });
  std::vector<float> mine(100, 1);
  const Tensor t = tensor(mine.data(), {100});
  const auto enter = [&](DeviceMemory& memory) { return memory.enter("k", t, nullptr, false); };
  auto first = make(), second = make();
  const Stream stream = second->stream();
  EXPECT_NE(first->stream(), stream);
  void* const there = enter(*second);
  EXPECT_NE(enter(*first), there);
  second->leave();
  second.reset();
  const auto third = make();
  EXPECT_EQ(third->stream(), stream);
  EXPECT_EQ(enter(*third), there);
  EXPECT_EQ(made, 2u);
}

TEST(Regions, EndWithTheirBuffers) {
  const void* at = nullptr;
  {
    const Buffer buffer(bf16, 10, 0, Poison::input);
    at = buffer.data();
    ASSERT_TRUE(region_of(at));
    EXPECT_EQ(region_of(at)->data, at);
    EXPECT_EQ(region_of(at)->data_bytes, 20u);
  }
  EXPECT_FALSE(region_of(at));
}

TEST(Vary, KeepsWhatKernelsAreMadeOfAndChangesTheRest) {
  std::set<std::string> lines;
  for (std::int64_t b = 0; b < 40; ++b) {
    const CaseSpec base = generate(5, b, bf16);
    EXPECT_EQ(vary(base, 0), base);
    for (std::int64_t i = 1; i < 10; ++i) {
      const CaseSpec c = vary(base, i);
      EXPECT_EQ(c, vary(base, i));
      EXPECT_EQ(c, parse_case(line(c))) << line(c);
      EXPECT_EQ(c.dim, base.dim);
      EXPECT_EQ(c.dim_v, base.dim_v);
      EXPECT_EQ(c.out, base.out);
      EXPECT_EQ(c.score, base.score);
      EXPECT_EQ(c.layout, base.layout);
      EXPECT_EQ(c.packed.empty(), base.packed.empty());
      lines.insert(line(c));
    }
  }
  EXPECT_GT(lines.size(), 350u);
}

}  // namespace
}  // namespace tessera::conformance
