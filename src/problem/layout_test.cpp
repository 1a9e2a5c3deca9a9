// Where views lie, against counting their bytes one by one.
#include "problem/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace tessera::problem {
namespace {

constexpr std::uintptr_t base = 1 << 20;  // nothing is read: any address will do

Tensor view(std::uintptr_t address, DType dtype, std::initializer_list<std::int64_t> shape,
            std::initializer_list<std::int64_t> stride = {}) {
  return tensor(reinterpret_cast<void*>(address), dtype, shape, stride);
}

// The addresses of all elements.
std::vector<std::uintptr_t> places(const Tensor& t) {
  std::vector<std::uintptr_t> list{reinterpret_cast<std::uintptr_t>(t.data)};
  for (int axis = 0; axis < t.rank; ++axis) {
    std::vector<std::uintptr_t> longer;
    for (const std::uintptr_t at : list)
      for (std::int64_t i = 0; i < t.shape[axis]; ++i)
        longer.push_back(at + static_cast<std::uintptr_t>(i * t.stride[axis] * size_bytes(t.dtype)));
    list = std::move(longer);
  }
  return list;
}

std::set<std::uintptr_t> bytes(const Tensor& t) {
  std::set<std::uintptr_t> all;
  for (const std::uintptr_t at : places(t))
    for (std::int64_t i = 0; i < size_bytes(t.dtype); ++i) all.insert(at + static_cast<std::uintptr_t>(i));
  return all;
}

bool share(const Tensor& a, const Tensor& b) {
  const auto first = bytes(a), second = bytes(b);
  return std::ranges::any_of(first, [&](std::uintptr_t x) { return second.contains(x); });
}

bool writes_twice(const Tensor& t) {
  auto list = places(t);
  std::ranges::sort(list);
  return std::ranges::adjacent_find(list) != list.end();
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::int64_t operator()(std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(engine_);
  }

 private:
  std::mt19937_64 engine_;
};

Tensor random_view(Random& random) {
  Tensor t;
  const DType types[] = {u8, bf16, f32, i64};
  t.dtype = types[random(0, 3)];
  t.data = reinterpret_cast<void*>(base + static_cast<std::uintptr_t>(random(0, 24)));
  t.rank = static_cast<int>(random(1, 4));
  for (int axis = 0; axis < t.rank; ++axis) t.shape[axis] = random(0, 4), t.stride[axis] = random(0, 14);
  return t;
}

TEST(LayoutTest, ReachIsTheLastByte) {
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    const Tensor t = random_view(random);
    const auto all = bytes(t);
    if (all.empty()) continue;
    ASSERT_EQ(reach_bytes(t), static_cast<std::int64_t>(*all.rbegin() - reinterpret_cast<std::uintptr_t>(t.data)) + 1)
        << t;
  }
}

TEST(LayoutTest, ReachBeyond63Bits) {
  constexpr std::int64_t half = std::int64_t{1} << 31;
  EXPECT_EQ(reach_bytes(view(base, u8, {half, half - 1})), half * (half - 1));
  EXPECT_FALSE(reach_bytes(view(base, f32, {half, half})));
  EXPECT_FALSE(reach_bytes(view(base, u8, {3, 1}, {std::int64_t{1} << 62, 1})));
  EXPECT_FALSE(reach_bytes(view(base, u8, {half, half, 2}, {0, 0, 0}))) << "so many elements, if on one place";
  EXPECT_FALSE(reach_bytes(view(base, u8, {half, 0, half, 2}, {1, 1, 1, 1}))) << "an extent of 0 hides nothing";
  EXPECT_EQ(reach_bytes(view(base, f32, {1, 2}, {std::int64_t{1} << 62, 1})), 8) << "a stride that is never taken";
}

TEST(LayoutTest, NoCollisionMeansNoPlaceTwice) {
  Random random(2);
  int nested = 0, twice = 0;
  for (int i = 0; i < 5000; ++i) {
    const Tensor t = random_view(random);
    const bool found = find_collision(t).has_value();
    if (writes_twice(t)) {
      ASSERT_TRUE(found) << t;
    }
    nested += !found, twice += writes_twice(t);
  }
  EXPECT_GT(nested, 500) << "too few to mean anything";
  EXPECT_GT(twice, 500);
}

TEST(LayoutTest, SlicesStepsAndTranspositionsDoNotCollide) {
  Random random(3);
  for (int i = 0; i < 2000; ++i) {
    Tensor t = view(base, f32, {random(1, 6), random(1, 6), random(1, 6), random(1, 6)});
    for (int axis = 0; axis < t.rank; ++axis) {
      const std::int64_t step = random(1, 3);
      t.shape[axis] = (t.shape[axis] + step - 1) / step, t.stride[axis] *= step;
      const auto other = static_cast<std::size_t>(random(0, t.rank - 1)), here = static_cast<std::size_t>(axis);
      std::swap(t.shape[here], t.shape[other]), std::swap(t.stride[here], t.stride[other]);
    }
    ASSERT_FALSE(find_collision(t)) << t;
  }
}

TEST(LayoutTest, CollisionNamesTheAxisAndTheLeastStride) {
  const auto collision = find_collision(view(base, f32, {4, 8, 16}, {128, 12, 1}));
  ASSERT_TRUE(collision);
  EXPECT_EQ(collision->axis, 1);
  EXPECT_EQ(collision->covered, 16);
  EXPECT_EQ(find_collision(view(base, f32, {4, 8, 16}, {0, 16, 1}))->axis, 0);
  EXPECT_FALSE(find_collision(view(base, f32, {1, 8, 16}, {0, 16, 1})));
}

// Small views take few steps, so the answer is exact for any strides.
TEST(LayoutTest, MeetingIsExact) {
  Random random(4);
  int shared = 0, interwoven = 0;
  for (int i = 0; i < 5000; ++i) {
    const Tensor a = random_view(random), b = random_view(random);
    const bool expected = share(a, b);
    ASSERT_EQ(meet(a, b), expected ? Meeting::shared : Meeting::apart)
        << a << ' ' << a.data << ", " << b << ' ' << b.data;
    shared += expected;
    if (const auto x = bytes(a), y = bytes(b); !expected && !x.empty() && !y.empty())
      interwoven += *x.begin() < *y.rbegin() && *y.begin() < *x.rbegin();
  }
  EXPECT_GT(shared, 500) << "too few to mean anything";
  EXPECT_GT(interwoven, 100);
}

// q, k, v and o side by side in one buffer of a hundred million tokens.
TEST(LayoutTest, SlicesOfOneBufferAreToldApart) {
  constexpr std::int64_t b = 3, s = 100'000'000, h = 8, d = 64;
  const auto slice = [&](std::int64_t first, std::int64_t heads) {
    return view(base + static_cast<std::uintptr_t>(first * d * 2), bf16, {b, s, heads, d},
                {s * 4 * h * d, 4 * h * d, d, 1});
  };
  EXPECT_EQ(meet(slice(0, h), slice(h, h)), Meeting::apart);
  EXPECT_EQ(meet(slice(3 * h, h), slice(h, 2 * h)), Meeting::apart);
  EXPECT_EQ(meet(slice(0, h + 1), slice(h, h)), Meeting::shared);
  EXPECT_EQ(meet(slice(0, 1), slice(0, h)), Meeting::shared);
  // Where the first token of one lies on a later token of the other.
  Tensor later = slice(0, h);
  later.data = reinterpret_cast<void*>(base + static_cast<std::uintptr_t>(12345 * 4 * h * d * 2));
  EXPECT_EQ(meet(slice(0, h), later), Meeting::shared);
  EXPECT_EQ(meet(slice(h, h), later), Meeting::apart);
}

TEST(LayoutTest, WhatTakesTooLongIsUndecided) {
  // Multiples of 2 * 1001 and odd multiples of 2 * 999 ... over millions of rows.
  const Tensor a = view(base, u8, {10'000'000, 1}, {2002, 1}), b = view(base + 1, u8, {10'000'000, 1}, {1998, 1});
  EXPECT_EQ(meet(a, b), Meeting::undecided);
}

}  // namespace
}  // namespace tessera::problem
