#include "cuda/kernel_image.hpp"

#include <gtest/gtest.h>

namespace tessera::cuda {
namespace {

KernelImage some_image() {
  KernelImage image;
  image.text = digest("the text");
  image.name = "forward", image.spec = "a spec", image.arch = "sm_90a", image.compiler = "NVRTC 13.0";
  image.compiler_id = "a path", image.library = "0.1.0", image.log = "a log",
  image.cubin = std::string("\177ELF\0 code", 10);
  image.registers = 168, image.stack_bytes = 8, image.spill_bytes = 4, image.smem_bytes = 1024;
  return image;
}

TEST(KernelImageTest, ComesBackWhole) {
  std::string why;
  const std::optional<KernelImage> image = decode(encode(some_image()), why);
  ASSERT_TRUE(image) << why;
  EXPECT_EQ(*image, some_image());
}

TEST(KernelImageTest, EveryCutAndEveryBit) {
  const std::string whole = encode(some_image());
  std::string why;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    why.clear();
    EXPECT_FALSE(decode(whole.substr(0, length), why)) << length;
    EXPECT_FALSE(why.empty()) << length;
  }
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(decode(flipped, why)) << bit;
  }
  EXPECT_FALSE(decode(whole + '\0', why));
}

TEST(KernelImageTest, LengthsThatLieAreNotFollowed) {
  Writer writer;
  writer.number(~std::uint64_t{0});
  writer.bytes += "short";
  Reader reader(writer.bytes);
  EXPECT_EQ(reader.text(), "");
  EXPECT_FALSE(reader.ok);
  EXPECT_EQ(reader.number(), 0u);
}

TEST(KernelImageTest, TheKeyHoldsAllThatMatters) {
  const gpu::KernelText text{"name", "spec", "source", 128, 1024};
  const auto differs = [&](gpu::KernelText other) { return text_key(other) != text_key(text); };
  EXPECT_FALSE(differs(text));
  EXPECT_TRUE(differs({"name2", "spec", "source", 128, 1024}));
  EXPECT_TRUE(differs({"name", "spec2", "source", 128, 1024}));
  EXPECT_TRUE(differs({"name", "spec", "source2", 128, 1024}));
  EXPECT_TRUE(differs({"name", "spec", "source", 256, 1024}));
  EXPECT_TRUE(differs({"name", "spec", "source", 128, 2048}));
}

TEST(ArchTest, WhatRunsWhere) {
  EXPECT_TRUE(runs_on("sm_80", 80));
  EXPECT_TRUE(runs_on("sm_80", 89));
  EXPECT_FALSE(runs_on("sm_86", 80));
  EXPECT_FALSE(runs_on("sm_80", 90));
  EXPECT_TRUE(runs_on("sm_90a", 90));
  EXPECT_TRUE(runs_on("sm_100f", 103));
  EXPECT_FALSE(runs_on("sm_100a", 103));
  EXPECT_FALSE(runs_on("sm_120", 100));
  for (const char* nonsense : {"", "sm_", "sm_9", "sm_9x", "compute_90", "sm_1000", "90", "sm_a"}) {
    EXPECT_FALSE(runs_on(nonsense, 90)) << nonsense;
    EXPECT_EQ(arch_number(nonsense), 0) << nonsense;
  }
  EXPECT_EQ(arch_number("sm_120a"), 120);
}

}  // namespace
}  // namespace tessera::cuda
