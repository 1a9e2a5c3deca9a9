// Captured tensors: what is refused, in which words, and what reaches the tables.
#include "problem/bindings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tessera/attention.hpp"
#include "unit/count_allocations.hpp"
#include "unit/failure_of.hpp"

namespace tessera::problem {
namespace {

float reals[64];
std::int32_t integers[64];

Failure refused(const char* what, const Graph& graph, const Bindings& bind) {
  return failure_of([&] { check_bindings(what, graph, bind, Device{}); });
}
Failure refused(const char* score, const Bindings& bind) { return refused("score", parse_score(score).graph(), bind); }

void expect(const Failure& failure, Code code, const std::vector<std::string>& parts) {
  EXPECT_EQ(failure.code, code) << failure.text;
  for (const std::string& part : parts)
    EXPECT_NE(failure.text.find(part), std::string::npos) << "'" << part << "' is not in: " << failure.text;
}

TEST(Bindings, ANameWithoutATensor) {
  expect(refused("s + slope[h]", {}), Code::invalid_mod,
         {"the score reads 'slope', nothing is bound: add it to Inputs::bind\n  (s + slope[h])\n       ^~~~~~~~"});
  expect(refused("s + slope[h]", {{"slopes", tensor(reals, {4})}, {"other", tensor(reals, {4})}}), Code::invalid_mod,
         {"reads 'slope', bound are slopes, other: add it"});
  expect(refused("mask", parse_mask("documents(ids)").graph(), {}), Code::invalid_mod, {"the mask ", "reads 'ids'"});
}

TEST(Bindings, ATensorOfAnotherKind) {
  expect(refused("s + slope[h]", {{"slope", tensor(integers, {4})}}), Code::invalid_dtype,
         {"'slope' is bound to i32[4]", "the score reads reals: f32, bf16 or f16\n  (s + slope[h])\n       ^~~~~~~~"});
  expect(refused("mask", parse_mask("documents(ids)").graph(), {{"ids", tensor(reals, {4})}}), Code::invalid_dtype,
         {"'ids' is bound to f32[4]", "the mask reads integers: i32, i64 or u8"});
  expect(refused("mask", parse_mask("seen:bool[k]").graph(), {{"seen", tensor(integers, {4})}}), Code::invalid_dtype,
         {"'seen' is bound to i32[4]", "the mask reads booleans: b8\n  seen:bool[k]\n  ^~~~~~~~~~~~"});
  Tensor none = tensor(reals, {4});
  none.dtype = DType::none;
  EXPECT_EQ(refused("s + slope[h]", {{"slope", none}}).code, Code::invalid_dtype);
}

// Each type that a capture may have takes its own tensors, and no other.
TEST(Bindings, KindsThatFit) {
  const struct {
    const char* score;
    std::vector<DType> fit;
  } cases[] = {
      {"s + x[h]", {f32, bf16, f16}}, {"s + real(x:int[h])", {i32, i64, u8}}, {"where(x:bool[h], s, s - 1.0)", {b8}}};
  for (const auto& c : cases)
    for (const DType dtype : {f32, bf16, f16, i32, i64, u8, b8}) {
      const bool fits = std::find(c.fit.begin(), c.fit.end(), dtype) != c.fit.end();
      const Bindings bind{{"x", tensor(static_cast<void*>(reals), dtype, {4})}};
      EXPECT_EQ(refused(c.score, bind).code, fits ? Code::ok : Code::invalid_dtype) << c.score << " " << name(dtype);
    }
}

TEST(Bindings, ATensorOfAnotherRank) {
  expect(refused("s + slope[h]", {{"slope", tensor(reals, {2, 4})}}), Code::invalid_shape,
         {"'slope' is bound to f32[2, 4]",
          "of rank 2; the score reads a tensor of 1 axis\n  (s + slope[h])\n       ^~~~~~~~"});
  expect(refused("s + bias[q][k]", {{"bias", tensor(reals, {4})}}), Code::invalid_shape,
         {"of rank 1; the score reads a tensor of 2 axes\n  (s + bias[q][k])\n       ^~~~~~~~~~"});
  expect(refused("mask", parse_mask("k < 4 | documents_from_offsets(cu, 2)").graph(), {{"cu", tensor(integers, {4})}}),
         Code::invalid_shape,
         {"of 2 axes\n  ((k < 4) | (upper_bound(cu[b], q) == upper_bound(cu[b], k)))\n              "
          "^~~~~~~~~~~~~~~~~~~~~"});
}

TEST(Bindings, ATensorOnAnotherDevice) {
  Tensor away = tensor(reals, {4});
  away.device = {DeviceType::cuda, 1};
  expect(refused("s + slope[h]", {{"slope", away}}), Code::invalid_device,
         {"'slope' is on cuda:1, q is on cpu: all tensors of a call are on one device\n  (s + slope[h])\n       "
          "^~~~~~~~"});
}

TEST(Bindings, ATensorWithoutElementsOrData) {
  expect(refused("s + bias[q][k]", {{"bias", tensor(reals, {4, 0})}}), Code::invalid_shape,
         {"'bias' is f32[4, 0]", "a tensor that is read has at least one element"});
  expect(refused("s + slope[h]", {{"slope", tensor(static_cast<float*>(nullptr), {4})}}), Code::null_pointer,
         {"'slope' is f32[4]", "without data"});
}

TEST(Bindings, ANameTwiceAndOneTooMany) {
  Bindings bind{{"a", tensor(reals, {4})}};
  expect(failure_of([&] {
           bind.add({"a", tensor(integers, {2, 3})});
         }),
         Code::invalid_option, {"bind: 'a' is bound twice, to f32[4]", "and to i32[2, 3]"});
  expect(failure_of([] {
           Bindings({{"x", tensor(reals, {4})}, {"x", tensor(reals, {4})}});
         }),
         Code::invalid_option, {"'x' is bound twice"});
  EXPECT_EQ(bind.end() - bind.begin(), 1) << "what was refused is not added";
  const char* names[] = {"b", "c", "d", "e", "f", "g", "h"};
  for (const char* name : names) bind.add({name, tensor(reals, {4})});
  EXPECT_EQ(bind.end() - bind.begin(), static_cast<std::ptrdiff_t>(Bindings::most));
  expect(failure_of([&] {
           bind.add({"i", tensor(reals, {4})});
         }),
         Code::invalid_option, {"bind: 'i' is one more than the 8 tensors that a call may bind"});
}

TEST(Bindings, MoreThanMayBeRead) {
  std::string text = "s";
  for (std::size_t i = 0; i <= Bindings::most; ++i) text += " + x" + std::to_string(i) + "[h]";
  expect(refused(text.c_str(), {}), Code::invalid_mod, {"the score reads 9 tensors, at most 8 are allowed: ", "x8[h]"});
}

TEST(Bindings, TensorsThatNobodyReadsAreNotLookedAt) {
  EXPECT_EQ(refused("s + slope[h]", {{"junk", Tensor{}}, {"slope", tensor(reals, {4})}}).code, Code::ok);
}

TEST(Bindings, TablesFollowTheCapturesOrder) {
  const Graph graph = parse_score("s + bias[q][k] + slope[h]").graph();
  const Bindings bind{{"slope", tensor(reals + 5, {4}, {3})}, {"bias", tensor(reals, {2, 7}, {8, 1})}};
  mods::Table tables[Bindings::most];
  bind_tables(graph, bind, tables);
  ASSERT_EQ(graph.captures.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const bool is_bias = mods::name(graph.captures[i]) == "bias";
    EXPECT_EQ(tables[i].data, is_bias ? reals : reals + 5);
    EXPECT_EQ(tables[i].extent[0], is_bias ? 2 : 4);
    EXPECT_EQ(tables[i].stride[0], is_bias ? 8 : 3);
    EXPECT_EQ(tables[i].extent[1], is_bias ? 7 : 0);
    EXPECT_EQ(tables[i].dtype, f32);
  }
}

// The refusals reach those who call describe() and attention(), for masks and for scores.
TEST(Bindings, ACallRefusesWhatItsModsDoNotFind) {
  static float q[2 * 8], k[3 * 8], o[2 * 8];
  Inputs in{.q = tensor(q, {1, 2, 1, 8}), .k = tensor(k, {1, 3, 1, 8}), .v = tensor(k, {1, 3, 1, 8})};
  const Outputs out{.o = tensor(o, {1, 2, 1, 8})};
  Options options{.score = alibi("slope")};
  expect(failure_of([&] { describe(in, out, options); }), Code::invalid_mod, {"the score", "reads 'slope'"});
  expect(failure_of([&] { attention(in, out, options); }), Code::invalid_mod, {"the score", "reads 'slope'"});
  options = {.mask = documents("ids")};
  expect(failure_of([&] { describe(in, out, options); }), Code::invalid_mod, {"the mask", "reads 'ids'"});
  in.bind = {{"ids", tensor(integers, {3})}};
  EXPECT_EQ(failure_of([&] { attention(in, out, options); }).code, Code::ok);
}

TEST(Bindings, AKnownCallWithCapturedTensorsAllocatesNothing) {
  const std::int64_t tokens = 150, heads = 4, dim = 16;
  std::vector<float> x(static_cast<std::size_t>(tokens * heads * dim), 0.25f), o(x.size()),
      bias(static_cast<std::size_t>(tokens * tokens), 0.5f);
  const Tensor t = tensor(x.data(), {1, tokens, heads, dim});
  const Inputs in{.q = t,
                  .k = t,
                  .v = t,
                  .bind = {{"slope", tensor(reals, {heads})}, {"bias", tensor(bias.data(), {tokens, tokens})}}};
  const Outputs out{.o = tensor(o.data(), {1, tokens, heads, dim})};
  for (const ScoreMod& score : {softcap(20.0), alibi("slope"), bias_tensor("bias"), softcap(9.0) >> alibi("slope")}) {
    const Options options{.mask = causal() & window(100, 0), .score = score};
    for (const int threads : {1, 2}) {
      // Which thread takes which item is open, and each keeps room of its own once it has worked: a few calls first.
      for (int i = 0; i < (threads == 1 ? 1 : 20); ++i) attention(in, out, options, {.threads = threads});
      const tests::AllocationCount count;
      const Problem problem = describe(in, out, options);
      check_bindings("score", problem.score.graph(), in.bind, Device{});
      EXPECT_EQ(count.of_this_thread(), 0u) << "describe, " << score;
      attention(in, out, options, {.threads = threads});
      if (threads == 1) EXPECT_EQ(count.of_all_threads(), 0u) << score;
      else EXPECT_EQ(count.of_this_thread(), 0u) << score;
    }
  }
}

// Kernels are made for the types of the tensors that they read: a problem knows them, a plan holds them to it.
TEST(Bindings, TheirTypesArePartOfTheProblem) {
  const std::int64_t heads = 4, dim = 16;
  std::vector<float> x(static_cast<std::size_t>(8 * heads * dim), 0.25f), o(x.size());
  const Tensor t = tensor(x.data(), {1, 8, heads, dim});
  const Inputs f32_slopes{.q = t, .k = t, .v = t, .bind = {{"slope", tensor(reals, {heads})}}};
  Inputs bf16_slopes = f32_slopes;
  bf16_slopes.bind = {{"slope", tensor(static_cast<const void*>(reals), bf16, {heads})}};
  const Outputs out{.o = tensor(o.data(), {1, 8, heads, dim})};
  const Options options{.score = alibi("slope")};
  const Problem a = describe(f32_slopes, out, options), b = describe(bf16_slopes, out, options);
  EXPECT_FALSE(a == b);
  EXPECT_NE(hash(a), hash(b));
  ASSERT_EQ(a.score_tables.size(), 1u);
  EXPECT_EQ(a.score_tables[0], f32);
  EXPECT_EQ(a.mask_tables.size(), 0u);
  plan(a).run(f32_slopes, out);
  expect(failure_of([&] { plan(a).run(bf16_slopes, out); }), Code::plan_mismatch,
         {"tensors of the score change of type f32, that of the call is bf16"});
}

}  // namespace
}  // namespace tessera::problem
