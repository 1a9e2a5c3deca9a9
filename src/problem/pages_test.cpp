// Lengths, block tables, and numbers about the sequences that lie elsewhere than q: what is refused, with which words,
// what is allowed, and what is never looked at.
#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "problem/validate.hpp"
#include "tessera/attention.hpp"
#include "unit/failure_of.hpp"

namespace tessera::problem {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};
constexpr bool dense = false, packed = true;

// Two sequences of 3 and 5 queries (dense: 4 each), with 6 and 9 keys in pages of 4: a table of width 3 over 7 pages.
struct Call {
  std::vector<float> q = std::vector<float>(512), k = std::vector<float>(512), v = std::vector<float>(512),
                     o = std::vector<float>(512), lse = std::vector<float>(64);
  std::int32_t table[2][3] = {{5, 0, 2147480000}, {1, 6, 1}};
  std::int32_t lengths[2] = {6, 9}, cu_q[3] = {0, 3, 8};
  std::int64_t offsets[2] = {3, 4};
  float slopes[2] = {1, 2};
  Inputs in;
  Outputs out;
  Options options;

  explicit Call(bool is_packed) {
    if (is_packed) {
      in.q = tensor(q.data(), {8, 2, 8}), in.packed.cu_q = tensor(cu_q, {3});
      out = {tensor(o.data(), {8, 2, 8}), tensor(lse.data(), {2, 8})};
    } else {
      in.q = tensor(q.data(), {2, 4, 2, 8});
      out = {tensor(o.data(), {2, 4, 2, 8}), tensor(lse.data(), {2, 2, 4})};
    }
    in.k = tensor(k.data(), {7, 4, 1, 8}), in.v = tensor(v.data(), {7, 4, 1, 8});
    in.pages = {tensor(&table[0][0], {2, 3}), tensor(lengths, {2})};
  }
  Call(const Call&) = delete;
  // Without a block table: caches of 12 tokens.
  void lay_out() {
    in.k = tensor(k.data(), {2, 12, 1, 8}), in.v = tensor(v.data(), {2, 12, 1, 8});
    in.pages.block_table = {};
  }
  // q, k, v and the outputs on a device; the numbers stay. Such addresses fault when they are read.
  void move() {
    std::uintptr_t at = 64;
    for (Tensor* t : {&in.q, &in.k, &in.v, &out.o, &out.lse})
      t->device = gpu, t->data = reinterpret_cast<void*>(at += 1 << 16);
  }
  static void move(Tensor& t) { t.device = gpu, t.data = reinterpret_cast<void*>(1 << 10); }
};

struct Row {
  const char* name;
  bool packed;
  void (*change)(Call&);
  Code code;
  std::vector<const char*> parts;  // of the text
};

// clang-format off
const Row rows[] = {
    {"table_alone", dense, [](Call& c) { c.in.pages.lengths = {}; }, Code::invalid_pages, {"pages.block_table is given, pages.lengths is not"}},
    {"lengths_and_cu_k", packed, [](Call& c) { c.in.packed.cu_k = c.in.packed.cu_q; }, Code::invalid_packing, {"packed.cu_k and pages.lengths are both given", "take the place"}},
    {"lengths_and_cu_k_alone", dense, [](Call& c) { c.in.packed.cu_k = tensor(c.cu_q, {3}); }, Code::invalid_packing, {"packed.cu_k and pages.lengths"}},
    {"cu_q_alone", packed, [](Call& c) { c.in.pages = {}; }, Code::invalid_packing, {"packed.cu_q is given", "pages.lengths instead of cu_k"}},
    {"table_of_i64", dense, [](Call& c) { c.in.pages.block_table.dtype = i64; }, Code::invalid_dtype, {"pages.block_table is i64", "i32"}},
    {"table_of_rank_1", dense, [](Call& c) { c.in.pages.block_table = tensor(&c.table[0][0], {6}); }, Code::invalid_shape, {"pages.block_table is i32[6]", "[2, width]"}},
    {"table_of_another_batch", packed, [](Call& c) { c.in.pages.block_table = tensor(&c.table[0][0], {3, 2}); }, Code::invalid_shape, {"i32[3, 2]", "[2, width]"}},
    {"table_transposed", dense, [](Call& c) { c.in.pages.block_table = tensor(&c.table[0][0], {2, 3}, {1, 2}); }, Code::invalid_stride, {"pages.block_table has stride 2 over its width"}},
    {"table_null", dense, [](Call& c) { c.in.pages.block_table.data = nullptr; }, Code::null_pointer, {"pages.block_table has elements"}},
    {"lengths_of_f32", dense, [](Call& c) { c.in.pages.lengths = tensor(c.slopes, {2}); }, Code::invalid_dtype, {"pages.lengths is f32", "i32 and i64"}},
    {"lengths_of_another_batch", dense, [](Call& c) { c.in.pages.lengths = tensor(c.lengths, {1}); }, Code::invalid_shape, {"pages.lengths is i32[1]", "[2]"}},
    {"k_of_rank_3", packed, [](Call& c) { c.in.k = tensor(c.k.data(), {28, 1, 8}); }, Code::invalid_shape, {"k has rank 3", "block table", "[pages, page size, heads, dim]"}},
    {"k_of_rank_3_without_table", packed, [](Call& c) { c.lay_out(); c.in.k = tensor(c.k.data(), {24, 1, 8}); }, Code::invalid_shape, {"k has rank 3", "lengths", "[batch, tokens, heads, dim]"}},
    {"q_of_rank_3_without_prefix_sums", packed, [](Call& c) { c.in.packed = {}; }, Code::invalid_shape, {"q has rank 3", "packed.cu_q"}},
    {"pages_of_no_tokens", dense, [](Call& c) { c.in.k.shape[1] = c.in.v.shape[1] = 0; }, Code::invalid_shape, {"k has page size 0", "1 or more"}},
    {"v_of_other_pages", dense, [](Call& c) { c.in.v.shape[0] = 6; }, Code::invalid_shape, {"v has pages 6, k has pages 7"}},
    {"v_of_another_page_size", dense, [](Call& c) { c.in.v.shape[1] = 3; }, Code::invalid_shape, {"v has page size 3, k has page size 4"}},
    {"caches_of_another_batch", packed, [](Call& c) { c.lay_out(); c.in.k.shape[0] = c.in.v.shape[0] = 1; }, Code::invalid_shape, {"k has batch 1", "2 sequences"}},
    {"k_heads", packed, [](Call& c) { c.in.k = tensor(c.k.data(), {7, 4, 3, 4}); c.in.v = c.in.k; c.in.q.shape[2] = 4; }, Code::invalid_shape, {"q has 2 heads, k has 3"}},
    {"more_tokens_than_there_are_numbers", dense, [](Call& c) { c.in.k.shape[1] = c.in.v.shape[1] = std::numeric_limits<std::int64_t>::max() / 512; c.in.k.stride[1] = c.in.v.stride[1] = 0; c.in.pages.block_table.shape[1] = 4096; c.in.pages.block_table.stride[0] = 0; }, Code::size_overflow, {"pages.block_table is i32[2, 4096]", "2^63 - 1"}},
    {"o_on_the_table", dense, [](Call& c) { c.in.pages.block_table.data = c.o.data(); }, Code::overlap, {"o (", "shares memory with pages.block_table"}},
    {"lse_on_the_lengths", dense, [](Call& c) { c.in.pages.lengths.data = c.lse.data(); }, Code::overlap, {"lse (", "shares memory with pages.lengths"}},
    // Values.
    {"length_negative", dense, [](Call& c) { c.lengths[1] = -1; }, Code::invalid_pages, {"pages.lengths[1] is -1", "3 pages of 4 tokens", "0 to 12"}},
    {"length_past_the_table", packed, [](Call& c) { c.lengths[0] = 13; }, Code::invalid_pages, {"pages.lengths[0] is 13", "0 to 12"}},
    {"length_past_the_cache", dense, [](Call& c) { c.lay_out(); c.lengths[0] = 13; }, Code::invalid_pages, {"pages.lengths[0] is 13", "k has 12 tokens"}},
    {"page_negative", dense, [](Call& c) { c.table[0][1] = -1; }, Code::invalid_pages, {"pages.block_table[0][1] is -1", "6 tokens use its first 2 entries", "k has 7 pages", "0 to 6"}},
    {"page_past_the_end", packed, [](Call& c) { c.table[1][2] = 7; }, Code::invalid_pages, {"pages.block_table[1][2] is 7", "9 tokens use its first 3 entries"}},
    {"cu_q_decreases", packed, [](Call& c) { c.cu_q[1] = 9; }, Code::invalid_packing, {"packed.cu_q[2] is 8", "never decrease"}},
    // Devices.
    {"table_on_a_device_alone", dense, [](Call& c) { Call::move(c.in.pages.block_table); }, Code::invalid_device, {"pages.block_table is on cuda:0", "q on cpu"}},
    {"lengths_on_another_device", dense, [](Call& c) { c.move(); c.in.pages.lengths.device = {DeviceType::cuda, 1}; }, Code::invalid_device, {"pages.lengths is on cuda:1, q on cuda:0", "on the cpu or where q does"}},
    {"k_on_the_host", dense, [](Call& c) { c.move(); c.in.k.device = {}; }, Code::invalid_device, {"k is on cpu, q on cuda:0"}},
    {"capture_on_another_device", dense, [](Call& c) { c.move(); c.options.score = parse_score("s * slope[h]"); c.in.bind = {{"slope", tensor(c.slopes, {2}, {}, {DeviceType::cuda, 1})}}; }, Code::invalid_device, {"'slope' is on cuda:1", "q is on cuda:0", "on the cpu or where q does"}},
    {"sinks_on_the_host", dense, [](Call& c) { c.move(); c.in.sinks = tensor(c.slopes, {2}); }, Code::invalid_device, {"sinks is on cpu, q on cuda:0"}},
};
// clang-format on

TEST(PagesTest, BadInputIsRefused) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    Call call(row.packed);
    row.change(call);
    const Failure failure = failure_of([&] {
      const Problem problem = describe(call.in, call.out, call.options);
      check_values(problem, call.in);
    });
    EXPECT_EQ(name(failure.code), name(row.code)) << failure.text;
    for (const char* part : row.parts)
      EXPECT_NE(failure.text.find(part), std::string::npos) << "lacks: " << part << "\ntext: " << failure.text;
    const Status status = try_attention(call.in, call.out, call.options);
    EXPECT_EQ(status.text, failure.text) << "the call and describe() must say the same";
  }
}

Problem described(const Call& call) {
  const Problem problem = describe(call.in, call.out, call.options);
  check_values(problem, call.in);
  check_tensors(problem, call.in, call.out);
  return problem;
}

TEST(PagesTest, AProblemOfPages) {
  for (const bool is_packed : {dense, packed}) {
    const Problem p = described(Call(is_packed));
    EXPECT_EQ(p.packed, is_packed);
    EXPECT_TRUE(p.paged && p.lengths);
    EXPECT_FALSE(p.packed_keys() || p.keys_known());
    EXPECT_EQ(p.page_size, 4);
    EXPECT_EQ(p.tokens_kv, 12);
    EXPECT_EQ(p.batch, 2);
    EXPECT_EQ(p.heads_kv, 1);
  }
}

TEST(PagesTest, AProblemOfLengths) {
  for (const bool is_packed : {dense, packed}) {
    Call call(is_packed);
    call.lay_out();
    const Problem p = described(call);
    EXPECT_TRUE(p.lengths);
    EXPECT_FALSE(p.paged);
    EXPECT_EQ(p.page_size, 0);
    EXPECT_EQ(p.tokens_kv, 12);
  }
}

TEST(PagesTest, Prints) {
  Call call(packed);
  call.options.mask = causal();
  const auto text = [&] {
    std::ostringstream out;
    out << describe(call.in, call.out, call.options);
    return out.str();
  };
  EXPECT_NE(text().find("b=2 packed sq=8 sk=12 paged page_size=4 hq=2"), std::string::npos) << text();
  call.lay_out();
  EXPECT_NE(text().find("b=2 packed sq=8 sk=12 lengths hq=2"), std::string::npos) << text();
  call.move(), Call::move(call.in.packed.cu_q), Call::move(call.in.pages.lengths);
  EXPECT_NE(text().find("cuda:0 there=cu_q,lengths"), std::string::npos) << text();
  call.in.k.stride[1] = 9;
  EXPECT_NE(text().find("align=32/4/32/32 "), std::string::npos) << text();
}

// What no sequence uses may be anything: entries behind the last page, whole rows, and there may be no pages at all.
TEST(PagesTest, WhatIsNotUsedIsNotLookedAt) {
  Call call(dense);
  call.lengths[0] = 4, call.lengths[1] = 0;
  call.table[0][1] = -5, call.table[1][0] = 1 << 30;
  described(call);
  call.lengths[0] = 0;
  call.in.k.shape[0] = call.in.v.shape[0] = 0, call.in.k.data = call.in.v.data = nullptr;
  described(call);
  call.in.pages.block_table.shape[1] = 0, call.in.pages.block_table.data = nullptr;
  EXPECT_EQ(described(call).tokens_kv, 0);
}

TEST(PagesTest, NumbersOnADeviceAreNotReadByTheHost) {
  Call call(packed);
  call.move();
  call.lengths[0] = 7;  // still checked: it is on the host
  EXPECT_EQ(described(call).on_device, OnDevice{});
  Call::move(call.in.pages.block_table);
  EXPECT_EQ(described(call).on_device, OnDevice{.block_table = true});
  Call::move(call.in.pages.lengths), Call::move(call.in.packed.cu_q);
  call.in.q_offset = tensor(call.offsets, {2});
  EXPECT_EQ(described(call).on_device, (OnDevice{.cu_q = true, .lengths = true, .block_table = true}));
  Call::move(call.in.q_offset);
  call.options.score = parse_score("s * slope[h]");
  call.options.mask = parse_mask("documents(ids)");
  float* const nowhere = reinterpret_cast<float*>(1 << 12);
  call.in.bind = {{"slope", tensor(nowhere, {2}, {}, gpu)},
                  {"ids", tensor(static_cast<std::int32_t*>(nullptr) + 1024, {12})}};
  EXPECT_EQ(described(call).on_device,
            (OnDevice{.cu_q = true, .lengths = true, .block_table = true, .q_offset = true, .score = true}));
  // A table on the host whose used part is known to the device alone cannot be checked.
  Call other(dense);
  other.move(), Call::move(other.in.pages.lengths);
  other.table[0][0] = -1;
  EXPECT_EQ(described(other).on_device, OnDevice{.lengths = true});
}

TEST(PagesTest, APlanSaysWhatDiffers) {
  const auto failure_with = [](bool is_packed, void (*change)(Call&)) {
    Call planned(is_packed), given(is_packed);
    const Problem problem = describe(planned.in, planned.out);
    change(given);
    return failure_of([&] { check_tensors(problem, given.in, given.out); });
  };
  const auto expect = [](const Failure& failure, const char* part) {
    EXPECT_EQ(failure.code, Code::plan_mismatch) << failure.text;
    EXPECT_NE(failure.text.find(part), std::string::npos) << failure.text;
  };
  expect(failure_with(dense, [](Call& c) { c.lay_out(); }), "made with a block table, the call is without");
  expect(failure_with(dense, [](Call& c) { c.lay_out(), c.in.pages = {}; }), "made with lengths, the call is without");
  expect(failure_with(dense,
                      [](Call& c) {
                        c.in.k = c.in.v = tensor(c.k.data(), {7, 3, 1, 8}), c.in.pages.block_table.shape[1] = 4;
                        c.in.pages.block_table.stride[0] = 0;
                      }),
         "page size 4, the tensors have 3");
  expect(failure_with(packed, [](Call& c) { c.in.pages.block_table.shape[1] = 2; }),
         "tokens of k 12, the tensors have 8");
  Call planned(dense);
  planned.move();
  const Problem problem = describe(planned.in, planned.out);
  Call::move(planned.in.pages.lengths);
  expect(failure_of([&] { check_tensors(problem, planned.in, planned.out); }),
         "made for pages.lengths on the cpu, it is on q's device");
}

}  // namespace
}  // namespace tessera::problem
