// What a problem says of a valid call, its hash and its text; and that saying it allocates nothing.
#include "tessera/problem.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <iomanip>
#include <locale>
#include <new>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "../tests/unit/count_allocations.hpp"
#include "problem/validate.hpp"

namespace tessera {
namespace {

// Nothing is read: any address will do.
void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

struct Call {
  Inputs in;
  Outputs out;
};

Call dense(DType dtype = bf16) {
  const auto step = std::uintptr_t{1} << 24;
  return {{tensor(at(1 * step), dtype, {2, 100, 8, 64}), tensor(at(2 * step), dtype, {2, 300, 2, 64}),
           tensor(at(3 * step), dtype, {2, 300, 2, 96})},
          {tensor(at(4 * step), dtype, {2, 100, 8, 96}), tensor(at(5 * step), f32, {2, 8, 100})}};
}

Call packed() {
  const auto step = std::uintptr_t{1} << 24;
  Call call{{tensor(at(1 * step), f16, {100, 8, 64}), tensor(at(2 * step), f16, {300, 2, 64}),
             tensor(at(3 * step), f16, {300, 2, 64})},
            {tensor(at(4 * step), f32, {100, 8, 64})}};
  call.in.packed = {tensor(at(6 * step), i32, {6}), tensor(at(7 * step), i64, {6})};
  return call;
}

std::string text(const Problem& problem) {
  std::ostringstream out;
  out << problem;
  return out.str();
}

TEST(DescribeTest, Dense) {
  const Call call = dense();
  const Problem p = describe(call.in, call.out);
  EXPECT_EQ(p.dtype, bf16);
  EXPECT_EQ(p.out_dtype, bf16);
  EXPECT_EQ(p.device, Device{});
  EXPECT_FALSE(p.packed);
  EXPECT_TRUE(p.wants_lse);
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.heads_q, 8);
  EXPECT_EQ(p.heads_kv, 2);
  EXPECT_EQ(p.group(), 4);
  EXPECT_EQ(p.tokens_q, 100);
  EXPECT_EQ(p.tokens_kv, 300);
  EXPECT_EQ(p.dim, 64);
  EXPECT_EQ(p.dim_v, 96);
  EXPECT_EQ(p.scale, 0.125f);
  EXPECT_EQ(p.align_bytes(), 64);
  EXPECT_FALSE(p.offset_per_sequence);
  EXPECT_FALSE(p.q_offset);
  EXPECT_TRUE(p.mask.is_full());
  EXPECT_EQ(p.pinned(), "");
}

TEST(DescribeTest, Packed) {
  const Call call = packed();
  const Problem p = describe(call.in, call.out);
  EXPECT_TRUE(p.packed);
  EXPECT_FALSE(p.wants_lse);
  EXPECT_EQ(p.batch, 5);
  EXPECT_EQ(p.tokens_q, 100);
  EXPECT_EQ(p.tokens_kv, 300);
  EXPECT_EQ(p.dtype, f16);
  EXPECT_EQ(p.out_dtype, f32);
}

TEST(DescribeTest, OptionsArriveInTheProblem) {
  const Call call = dense();
  Options options;
  options.mask = causal();
  options.scale = -0.5f;
  options.q_offset = -7;
  options.deterministic = options.batch_invariant = true;
  const std::string longer_than_fits_in_place = "a backend's name of more than thirty-two letters";
  options.backend = longer_than_fits_in_place;
  const Problem p = describe(call.in, call.out, options);
  EXPECT_EQ(p.mask, causal());
  EXPECT_EQ(p.scale, -0.5f);
  EXPECT_EQ(p.q_offset, -7);
  EXPECT_TRUE(p.deterministic);
  EXPECT_TRUE(p.batch_invariant);
  EXPECT_EQ(p.pinned(), longer_than_fits_in_place);
}

TEST(DescribeTest, WithoutOutputs) {
  const Call call = dense(f16);
  const Problem p = describe(call.in);
  EXPECT_EQ(p.out_dtype, f16);
  EXPECT_FALSE(p.wants_lse);
  Problem with = describe(call.in, call.out);
  with.wants_lse = false;
  EXPECT_EQ(p, with);
}

TEST(DescribeTest, TheDefaultScaleIsOneOverTheRootOfDim) {
  for (const std::int64_t dim : {1, 3, 64, 72, 96, 128, 511}) {
    const Inputs in{tensor(at(64), f32, {1, 1, 1, dim}), tensor(at(64), f32, {1, 1, 1, dim}),
                    tensor(at(64), f32, {1, 1, 1, 1})};
    EXPECT_EQ(describe(in).scale, static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)))) << dim;
  }
}

TEST(DescribeTest, AllocatesNothingWhenAllIsWell) {
  Call slices = dense();
  Tensor* parts[] = {&slices.in.q, &slices.in.k, &slices.in.v, &slices.out.o};
  std::uintptr_t place = 1 << 20;
  for (Tensor* part : parts) *part = tensor(at(place), bf16, {2, 100, 8, 64}, {100 * 2048, 2048, 64, 1}), place += 1024;
  Options options;
  options.mask = causal() & window(1023, 0);
  options.backend = "cpu:avx512";
  for (const Call& call : {dense(), packed(), slices}) {
    const tests::AllocationCount count;
    const Problem p = describe(call.in, call.out, options);
    problem::check_tensors(p, call.in, call.out);
    (void)hash(p);
    EXPECT_EQ(count.of_this_thread(), 0u) << p;
  }
}

// ------------------------------------------------------------------------------------------------ alignment

TEST(AlignmentTest, IsTheLargestPowerOfTwoThatDividesAll) {
  struct Row {
    const char* what;
    void (*change)(Call&);
    std::int64_t align_bytes;
  };
  const Row rows[] = {
      {"as it is", [](Call&) {}, 64},
      {"q's address", [](Call& c) { c.in.q.data = at((1 << 24) + 32); }, 32},
      {"k's address", [](Call& c) { c.in.k.data = at((2 << 24) + 2); }, 2},
      {"v's address", [](Call& c) { c.in.v.data = at((3 << 24) + 48); }, 16},
      {"o's address", [](Call& c) { c.out.o.data = at((4 << 24) + 8); }, 8},
      {"lse's address does not count", [](Call& c) { c.out.lse.data = at((5 << 24) + 4); }, 64},
      {"a token stride", [](Call& c) { c.in.k.stride[1] = 2 * 64 + 4; }, 8},
      {"a head stride", [](Call& c) { c.in.q.stride[2] = 65; }, 2},
      {"the batch stride of o", [](Call& c) { c.out.o.stride[0] += 8; }, 16},
      {"a stride in bytes of its own type",
       [](Call& c) {
         c.out.o = tensor(at(4 << 24), f32, {2, 100, 8, 96}, {1 << 20, 1000, 100, 1});
       },
       16},
      {"a stride that is never taken",
       [](Call& c) {
         c.in.k.shape[2] = c.in.v.shape[2] = 1;
         c.in.k.stride[2] = 3;
       },
       64},
      {"an address without elements",
       [](Call& c) {
         c.in.k.shape[1] = c.in.v.shape[1] = 0;
         c.in.k.data = at(1);
       },
       64},
  };
  for (const Row& row : rows) {
    Call call = dense();
    row.change(call);
    EXPECT_EQ(describe(call.in, call.out).align_bytes(), row.align_bytes) << row.what;
  }
}

// ------------------------------------------------------------------------------------------------ a value

// Problems that differ from one another in one thing each.
std::vector<Problem> different_problems() {
  const Call call = dense();
  std::vector<Problem> list(1, describe(call.in, call.out));
  auto add = [&](auto change) {
    list.push_back(list.front());
    change(list.back());
  };
  add([](Problem& p) { p.dtype = f16; });
  add([](Problem& p) { p.out_dtype = f32; });
  add([](Problem& p) { p.device = {DeviceType::cuda, 0}; });
  add([](Problem& p) { p.device = {DeviceType::cuda, 1}; });
  add([](Problem& p) { p.packed = true; });
  add([](Problem& p) { p.wants_lse = false; });
  add([](Problem& p) { p.deterministic = true; });
  add([](Problem& p) { p.batch_invariant = true; });
  add([](Problem& p) { p.offset_per_sequence = true; });
  add([](Problem& p) { p.sinks = true; });
  add([](Problem& p) { p.q_offset = 0; });
  add([](Problem& p) { p.q_offset = 1; });
  add([](Problem& p) { p.batch = 3; });
  add([](Problem& p) { p.heads_q = 10; });
  add([](Problem& p) { p.heads_kv = 4; });
  add([](Problem& p) { p.tokens_q = 101; });
  add([](Problem& p) { p.tokens_kv = 301; });
  add([](Problem& p) { p.tokens_q = 300, p.tokens_kv = 100; });
  add([](Problem& p) { p.dim = 65; });
  add([](Problem& p) { p.dim_v = 97; });
  add([](Problem& p) { p.align.q = 32; });
  add([](Problem& p) { p.align.k = 32; });
  add([](Problem& p) { p.align.v = 32; });
  add([](Problem& p) { p.align.o = 32; });
  add([](Problem& p) { p.shared_rows = true; });
  add([](Problem& p) { p.lengths = true; });
  add([](Problem& p) { p.paged = true; });
  add([](Problem& p) { p.paged = true, p.page_size = 16; });
  add([](Problem& p) { p.on_device.cu_q = true; });
  add([](Problem& p) { p.on_device.cu_k = true; });
  add([](Problem& p) { p.on_device.lengths = true; });
  add([](Problem& p) { p.on_device.block_table = true; });
  add([](Problem& p) { p.on_device.q_offset = true; });
  add([](Problem& p) { p.on_device.mask = true; });
  add([](Problem& p) { p.on_device.score = true; });
  add([](Problem& p) { p.scale = std::nextafter(p.scale, 1.0f); });
  add([](Problem& p) { p.mask = causal(); });
  add([](Problem& p) { p.mask = window(5, 0); });
  add([](Problem& p) { p.mask = window(6, 0); });
  add([](Problem& p) { p.backend = detail::Frozen<char, 32>(std::span("cpu", 3)); });
  add([](Problem& p) { p.backend = detail::Frozen<char, 32>(std::span("cpu:avx2", 8)); });
  return list;
}

TEST(ProblemTest, WhatDiffersComparesHashesAndPrintsDifferently) {
  const std::vector<Problem> list = different_problems();
  std::set<std::uint64_t> hashes, last_bits;
  std::set<std::string> texts;
  for (std::size_t i = 0; i < list.size(); ++i) {
    for (std::size_t j = 0; j < list.size(); ++j) EXPECT_EQ(list[i] == list[j], i == j) << i << ' ' << j;
    hashes.insert(hash(list[i])), last_bits.insert(hash(list[i]) % 4096), texts.insert(text(list[i]));
  }
  EXPECT_EQ(hashes.size(), list.size());
  EXPECT_EQ(texts.size(), list.size());
  EXPECT_GE(last_bits.size(), list.size() - 2) << "tables are indexed by the last bits";
}

TEST(ProblemTest, EqualOnesHashAlike) {
  const Call call = dense();
  EXPECT_EQ(hash(describe(call.in, call.out)), hash(describe(call.in, call.out)));
  Problem zero = describe(call.in, call.out), minus_zero = zero;
  zero.scale = 0.0f, minus_zero.scale = -0.0f;
  EXPECT_EQ(zero, minus_zero);
  EXPECT_EQ(hash(zero), hash(minus_zero));
}

TEST(ProblemTest, Text) {
  const Call call = dense();
  Options options;
  options.mask = causal(), options.q_offset = 0, options.backend = "cpu:avx2";
  EXPECT_EQ(text(describe(call.in, call.out, options)),
            "bf16 b=2 sq=100 sk=300 hq=8 hkv=2 d=64 dv=96 mask=(k <= q) scale=0.125 q_offset=0 lse align=64 cpu "
            "backend=cpu:avx2");
  const Call packed_call = packed();
  EXPECT_EQ(text(describe(packed_call.in, packed_call.out)),
            "f16 -> f32 b=5 packed sq=100 sk=300 hq=8 hkv=2 d=64 dv=64 mask=full scale=0.125 q_offset=keys-queries "
            "align=64 cpu");
}

struct Grouping : std::numpunct<char> {
  char do_thousands_sep() const override { return ','; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(ProblemTest, TextsDoNotDependOnTheProgramsLocale) {
  Call call = dense();
  call.in.k.shape[1] = call.in.v.shape[1] = 30000;
  const std::string expected = text(describe(call.in, call.out));
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouping));
  std::ostringstream out;
  out << std::hex << std::setprecision(1) << describe(call.in, call.out);
  call.in.v.shape[1] = 20000;
  std::string what;
  try {
    describe(call.in, call.out);
  } catch (const Error& error) {
    what = error.what();
  }
  std::locale::global(before);
  EXPECT_EQ(out.str(), expected);
  EXPECT_NE(what.find("v has tokens 20000, k has tokens 30000"), std::string::npos) << what;
}

}  // namespace
}  // namespace tessera
