// Tensor maps: what the driver is asked, and what is refused before it is.
#include <cstring>

#include "cuda/fakes.hpp"

namespace tessera::cuda::tests {
namespace {

class TensorMapTest : public WithFakes {
 protected:
  gpu::TensorMapSpec spec() {
    gpu::TensorMapSpec s;
    s.data = reinterpret_cast<const void*>(std::uintptr_t{0x7f0000001000});
    s.type = DType::bf16, s.rank = 4, s.swizzle = gpu::TensorSwizzle::b128;
    const std::uint64_t dims[] = {64, 1000, 8, 2}, strides[] = {0, 1024, 128, 1024000};
    const std::uint32_t box[] = {64, 128, 1, 1};
    for (int i = 0; i < 4; ++i) s.dims[i] = dims[i], s.strides[i] = strides[i], s.box[i] = box[i];
    return s;
  }
  std::string refusal(const gpu::TensorMapSpec& s) {
    alignas(64) char map[128];
    const Failure failure = failure_of([&] { engine().tensor_map(s, map); });
    EXPECT_EQ(failure.code, Code::internal);
    EXPECT_TRUE(state().maps.empty());
    return failure.text;
  }
};

TEST_F(TensorMapTest, TheDriverIsAsked) {
  EXPECT_TRUE(engine().caps(0).tensor_maps);
  char map[129];  // anywhere: only what the driver writes to must be aligned
  engine().tensor_map(spec(), map + 1);
  EXPECT_EQ(std::string(map + 1, 128), std::string(128, 1));
  ASSERT_EQ(state().maps.size(), 1u);
  const fake::TensorMap& asked = state().maps[0];
  EXPECT_EQ(asked.type, 9);
  EXPECT_EQ(asked.swizzle, 3);
  EXPECT_EQ(asked.data, spec().data);
  EXPECT_EQ(asked.dims, (std::vector<std::uint64_t>{64, 1000, 8, 2}));
  EXPECT_EQ(asked.strides, (std::vector<std::uint64_t>{1024, 128, 1024000}));
  EXPECT_EQ(asked.box, (std::vector<std::uint32_t>{64, 128, 1, 1}));
}

TEST_F(TensorMapTest, TypesAndSwizzlesByTheDriversNumbers) {
  char map[128];
  gpu::TensorMapSpec s = spec();
  s.box[0] = 4;
  const std::pair<DType, int> types[] = {
      {DType::u8, 0}, {DType::i32, 3}, {DType::f16, 6}, {DType::f32, 7}, {DType::bf16, 9}};
  for (const auto& [type, number] : types) {
    s.type = type, s.box[0] = type == DType::u8 ? 16 : 8;
    engine().tensor_map(s, map);
    EXPECT_EQ(state().maps.back().type, number) << name(type);
  }
  const std::pair<gpu::TensorSwizzle, int> swizzles[] = {{gpu::TensorSwizzle::none, 0},
                                                         {gpu::TensorSwizzle::b32, 1},
                                                         {gpu::TensorSwizzle::b64, 2},
                                                         {gpu::TensorSwizzle::b128, 3}};
  for (const auto& [swizzle, number] : swizzles) {
    s.swizzle = swizzle;
    engine().tensor_map(s, map);
    EXPECT_EQ(state().maps.back().swizzle, number);
  }
}

TEST_F(TensorMapTest, WhatIsNotPossibleIsRefusedWithItsValue) {
  gpu::TensorMapSpec s = spec();
  s.data = static_cast<const char*>(s.data) + 8;
  EXPECT_TRUE(has(refusal(s), "8 past a multiple of 16"));
  s = spec(), s.rank = 6;
  EXPECT_TRUE(has(refusal(s), "6 dimensions: 1 to 5"));
  s = spec(), s.dims[2] = 0;
  EXPECT_TRUE(has(refusal(s), "dimension 2 of a tensor map is 0"));
  s = spec(), s.box[1] = 257;
  EXPECT_TRUE(has(refusal(s), "box is 257: 1 to 256"));
  s = spec(), s.strides[2] = 72;
  EXPECT_TRUE(has(refusal(s), "stride 2 of a tensor map is 72 bytes: multiples of 16"));
  s = spec(), s.strides[3] = std::uint64_t{1} << 40;
  EXPECT_TRUE(has(refusal(s), "stride 3"));
  s = spec(), s.box[0] = 12;
  EXPECT_TRUE(has(refusal(s), "is 24 bytes: multiples of 16"));
  s = spec(), s.box[0] = 128;
  EXPECT_TRUE(has(refusal(s), "is 256 bytes, its swizzle exchanges within 128"));
  s = spec(), s.type = DType::i64;
  EXPECT_TRUE(has(refusal(s), "i64"));
}

TEST_F(TensorMapTest, TheDriversRefusalSaysWhatWasAsked) {
  state().fail["cuTensorMapEncodeTiled"] = cuda_invalid_value;
  char map[128];
  const Failure failure = failure_of([&] { engine().tensor_map(spec(), map); });
  EXPECT_TRUE(has(failure.text, "a tensor map of dims 64 1000 8 2, strides 1024 128 1024000 bytes, box 64 128 1 1"))
      << failure.text;
}

TEST_F(TensorMapTest, AnOldDriverHasNone) {
  settings.driver = FAKE_CUDA_OLD;
  EXPECT_FALSE(engine().caps(0).tensor_maps);
  char map[128];
  const Failure failure = failure_of([&] { engine().tensor_map(spec(), map); });
  EXPECT_EQ(failure.code, Code::unsupported);
  EXPECT_TRUE(has(failure.text, "CUDA 12.0")) << failure.text;
}

}  // namespace
}  // namespace tessera::cuda::tests
