// The calls: plans are found again, nothing is allocated then, errors come before anything is written, merge() merges.
#include "tessera/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <vector>

#include "../tests/unit/count_allocations.hpp"

namespace tessera {
namespace {

struct Call {
  std::int64_t n, d;
  std::vector<float> data, o, lse;
  Call(std::int64_t tokens, std::int64_t dim)
      : n(tokens),
        d(dim),
        data(static_cast<std::size_t>(tokens * dim)),
        o(data.size(), NAN),
        lse(static_cast<std::size_t>(tokens), NAN) {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>((i * 2654435761u) % 997) / 500 - 1;
  }
  Inputs in() const {
    const Tensor x = tensor(data.data(), {1, n, 1, d});
    return {x, x, x};
  }
  Outputs out() { return {tensor(o.data(), {1, n, 1, d}), tensor(lse.data(), {1, 1, n})}; }
};

TEST(Attention, ACallOnAKnownPlanAllocatesNothing) {
  Call call(300, 64);
  const Options options{.mask = causal() & window(100, 0)};
  for (const int threads : {1, 2}) {
    attention(call.in(), call.out(), options, {.threads = threads});
    const tests::AllocationCount count;
    attention(call.in(), call.out(), options, {.threads = threads});
    attention(call.in(), call.out(), {.mask = causal() & window(100, 0)}, {.threads = threads});
    EXPECT_EQ(count.of_all_threads(), 0u) << threads << " threads";
  }
}

// On the cpu what is wrong is refused instead: the word is taken and left alone.
TEST(Attention, TheErrorWordStaysOnTheCpu) {
  Call call(20, 8);
  std::int32_t word = 9, lengths = 20;
  Inputs in = call.in();
  in.pages.lengths = tensor(&lengths, {1});
  Outputs out = call.out();
  out.errors = tensor(&word, {1});
  attention(in, out);
  EXPECT_EQ(word, 9);
  lengths = 21;
  EXPECT_THROW(attention(in, out), Error);
  EXPECT_EQ(word, 9);
}

// The maps of masks that read tensors are made in every call, in memory that the thread keeps.
TEST(Attention, NorDoesOneWhoseMaskReadsTensors) {
  Call call(700, 32);
  std::vector<std::int32_t> ids(700), lengths{600};
  std::vector<float> slopes{0.5f};
  const auto number = [&](std::size_t documents) {
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * documents / ids.size());
  };
  Inputs in = call.in();
  in.bind = {
      {"ids", tensor(ids.data(), {700})}, {"len", tensor(lengths.data(), {1})}, {"slope", tensor(slopes.data(), {1})}};
  for (const char* mask :
       {"causal & documents(ids)", "key_lengths(len)", "documents(ids) & key_lengths(len) | q == k"}) {
    const Options options{.mask = parse_mask(mask), .score = parse_score("s + slope[h] * (k - q)")};
    number(7);
    attention(in, call.out(), options, {.threads = 1});
    const std::vector<float> first = call.o;
    number(5), lengths[0] = 500;  // other values, as many of them
    const tests::AllocationCount count;
    attention(in, call.out(), options, {.threads = 1});
    EXPECT_EQ(count.of_all_threads(), 0u) << mask;
    EXPECT_NE(call.o, first) << mask;
    number(7), lengths[0] = 600;
    attention(in, call.out(), options, {.threads = 1});
    EXPECT_EQ(count.of_all_threads(), 0u) << mask;
    EXPECT_EQ(call.o, first) << mask;
  }
}

TEST(Attention, APlanRunsWithItsWorkspaceAndRefusesOtherTensors) {
  Call call(70, 16), expected(70, 16), other(71, 16);
  attention(expected.in(), expected.out(), {.mask = causal()});
  const Plan made = plan(describe(call.in(), call.out(), {.mask = causal()}));
  std::vector<float> memory(made.workspace_bytes(2) / sizeof(float) + 16);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64);
  made.run(call.in(), call.out(), {.workspace = {aligned, made.workspace_bytes(2)}, .threads = 2});
  EXPECT_EQ(call.o, expected.o);
  EXPECT_EQ(call.lse, expected.lse);
  const auto code = [&](auto&& run) {
    try {
      run();
    } catch (const Error& error) {
      return error.code();
    }
    return Code::ok;
  };
  EXPECT_EQ(code([&] { made.run(other.in(), other.out()); }), Code::plan_mismatch);
  EXPECT_TRUE(std::isnan(other.o[0]));
  EXPECT_EQ(code([&] {
              made.run(call.in(), call.out(), {.workspace = {aligned, made.workspace_bytes(2) - 1}, .threads = 2});
            }),
            Code::workspace_too_small);
  EXPECT_EQ(code([&] { made.run(call.in(), call.out(), {.threads = -1}); }), Code::invalid_option);
}

TEST(Attention, PlansCompareHashAndPrint) {
  Call call(70, 16);
  const auto made = [&](const Options& options) { return plan(describe(call.in(), call.out(), options)); };
  const Plan a = made({.mask = causal()}), b = made({.mask = causal()}), c = made({.mask = window(3, 0)});
  EXPECT_EQ(a, b);
  EXPECT_EQ(hash(a), hash(b));
  EXPECT_FALSE(a == c);
  std::ostringstream text;
  text << a;
  for (const char* part : {"backend", "cpu:", "band k - q in (-inf, 0]", "(k <= q)", "workspace"})
    EXPECT_NE(text.str().find(part), std::string::npos) << part << " in\n" << text.str();
}

TEST(Attention, APinnedBackendThatCannotSaysWhy) {
  Call call(4, 16);
  const Status unknown = try_attention(call.in(), call.out(), {.backend = "cpu:abacus"});
  EXPECT_EQ(unknown.code, Code::invalid_option);
  EXPECT_NE(unknown.text.find("cpu:scalar"), std::string::npos) << unknown.text;
  Call wide(4, 513);
  const Status status = try_attention(wide.in(), wide.out(), {.backend = "cpu:scalar"});
  EXPECT_EQ(status.code, Code::unsupported);
  for (const char* part : {"513", "512", "cpu:scalar"})
    EXPECT_NE(status.text.find(part), std::string::npos) << part << " in " << status.text;
  EXPECT_TRUE(std::isnan(wide.o[0]));
  EXPECT_TRUE(static_cast<bool>(try_attention(call.in(), call.out(), {.backend = "cpu:scalar"})));
}

// Scores [2, 1, 3, 0] with values [1, 2, 3, 4] in tiles of two: the classic worked example.
TEST(Merge, TheFourNumbers) {
  std::vector<float> q{1}, k{2, 1, 3, 0}, v{1, 2, 3, 4}, o(3), lse(3);
  const auto part = [&](std::size_t i) { return Outputs{tensor(&o[i], {1, 1, 1, 1}), tensor(&lse[i], {1, 1, 1})}; };
  for (const std::size_t i : {0u, 1u})
    attention({tensor(q.data(), {1, 1, 1, 1}), tensor(&k[2 * i], {1, 2, 1, 1}), tensor(&v[2 * i], {1, 2, 1, 1})},
              part(i), {.scale = 1.0f});
  EXPECT_NEAR(std::exp(lse[0] - 2), 1.3679, 1e-4);
  EXPECT_NEAR(o[0] * std::exp(lse[0] - 2), 1.7358, 1e-4);
  merge(part(0), part(1), part(2));
  EXPECT_NEAR(o[2], 2.47115, 1e-5);
  EXPECT_NEAR(lse[2], std::log(std::exp(2) + std::exp(1) + std::exp(3) + 1), 1e-6);
}

TEST(Merge, AnEmptyPartAddsNothingWhateverItHolds) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> o{1.25f, NAN, 7}, lse{0.5f, -inf, 9};
  const auto part = [&](std::size_t i) { return Outputs{tensor(&o[i], {1, 1, 1, 1}), tensor(&lse[i], {1, 1, 1})}; };
  merge(part(0), part(1), part(2));
  EXPECT_EQ(o[2], 1.25f);
  EXPECT_EQ(lse[2], 0.5f);
  merge(part(1), part(0), part(2));
  EXPECT_EQ(o[2], 1.25f);
  o[0] = -0.0f;  // its sign, too
  merge(part(0), part(1), part(2));
  EXPECT_TRUE(std::signbit(o[2]));
  merge(part(1), part(1), part(1));  // in place
  EXPECT_EQ(o[1], 0);
  EXPECT_EQ(lse[1], -inf);
}

}  // namespace
}  // namespace tessera
