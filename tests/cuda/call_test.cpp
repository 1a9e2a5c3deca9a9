// Calls of attention() all the way to a driver that is none: what is launched, what a repeated call costs, what is
// said.
#include <algorithm>
#include <chrono>
#include <thread>

#include "cuda/fakes.hpp"
#include "tessera/tessera.hpp"
#include "unit/count_allocations.hpp"

namespace tessera::cuda::tests {
namespace {

// The engine of the process, which reads the environment when it is first asked for: here.
class CallTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    void* const library = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    control = reinterpret_cast<fake::Control (*)()>(dlsym(library, "fake_control"))();
    control.reset();
    folder = new Folder;
    setenv("TESSERA_CUDA_DRIVER", FAKE_CUDA, 1);
    setenv("TESSERA_NVRTC", FAKE_NVRTC, 1);
    setenv("TESSERA_CACHE_DIR", (*folder / "cache").c_str(), 1);
    unsetenv("FAKE_NVRTC_MS");
    ASSERT_EQ(cuda::engine().missing(), "");
  }
  static void TearDownTestSuite() {
    delete folder;
    for (const char* name : {"TESSERA_CUDA_DRIVER", "TESSERA_NVRTC", "TESSERA_CACHE_DIR"}) unsetenv(name);
  }
  void SetUp() override { control.state().launches.clear(); }
  fake::State& state() { return control.state(); }

  // Tensors of one call, on a device.
  struct Call {
    Inputs in;
    Outputs out;
    std::vector<std::shared_ptr<void>> memory;
  };
  Call call(int device, std::int64_t b, std::int64_t sq, std::int64_t sk, std::int64_t h = 2, std::int64_t d = 64) {
    Call made;
    const Device on{DeviceType::cuda, device};
    const auto one = [&](std::int64_t tokens) {
      made.memory.push_back(cuda::engine().allocate(device, static_cast<std::size_t>(b * tokens * h * d * 2)));
      return tensor(made.memory.back().get(), bf16, {b, tokens, h, d}, {}, on);
    };
    made.in.q = one(sq), made.in.k = one(sk), made.in.v = one(sk), made.out.o = one(sq);
    return made;
  }
  static fake::Control control;
  static Folder* folder;
};
fake::Control CallTest::control{};
Folder* CallTest::folder = nullptr;

TEST_F(CallTest, ACallBecomesALaunch) {
  const Call c = call(1, 2, 300, 300);
  attention(c.in, c.out, {.mask = causal()});
  ASSERT_GE(state().launches.size(), 1u);
  const fake::Launch& launch = state().launches.front();
  EXPECT_TRUE(has(std::string(launch.name), "forward")) << launch.name;
  EXPECT_EQ(launch.context, state().primaries.at(1));
  EXPECT_GT(launch.blocks, 0u);
  EXPECT_GT(launch.smem, 48u << 10);
}

TEST_F(CallTest, InTheStreamThatWasGiven) {
  const Call c = call(0, 1, 64, 64);
  fake::Stream* const s = control.make_stream(state().primaries.at(0));
  attention(c.in, c.out, {}, {.stream = {s}});
  ASSERT_GE(state().launches.size(), 1u);
  for (const fake::Launch& launch : state().launches) EXPECT_EQ(launch.stream, s);
}

TEST_F(CallTest, MergeIsOneLaunchAndNothingElse) {
  const Device on{DeviceType::cuda, 1};
  std::vector<std::shared_ptr<void>> memory;
  const auto part = [&](DType dtype) {
    for (int i = 0; i < 2; ++i) memory.push_back(cuda::engine().allocate(1, 4 << 20));
    const std::size_t last = memory.size() - 1;
    return Outputs{tensor(memory[last].get(), dtype, {2, 300, 8, 64}, {}, on),
                   tensor(memory[last - 1].get(), f32, {2, 8, 300}, {}, on)};
  };
  Outputs a = part(bf16), b = part(bf16);
  const Outputs out = part(f32);
  fake::Stream* const s = control.make_stream(state().primaries.at(1));
  merge(a, b, out, {.stream = {s}});
  ASSERT_EQ(state().launches.size(), 1u);
  EXPECT_TRUE(has(std::string(state().launches[0].name), "merge")) << state().launches[0].name;
  EXPECT_EQ(state().launches[0].stream, s);
  EXPECT_EQ(state().launches[0].context, state().primaries.at(1));
  EXPECT_EQ(state().launches[0].blocks, 2u * 300 * 8 / (128 / 8));  // eight lanes a row
  merge(a, b, a, {.stream = {s}});  // in place: another type of the result, another kernel
  state().launches.reserve(10);
  const tessera::tests::AllocationCount count;
  merge(a, b, a, {.stream = {s}});
  merge(a, b, out, {.stream = {s}});
  EXPECT_EQ(count.of_this_thread(), 0u);
  // Captured without a word from before.
  control.begin_capture(s);
  merge(a, b, out, {.stream = {s}});
  fake::Graph* const graph = control.end_capture(s);
  EXPECT_EQ(graph->nodes.size(), 1u);
  control.replay(graph);
  control.destroy_graph(graph);

  state().launches.clear();
  b.lse.device.index = 0;
  Failure failure = failure_of([&] { merge(a, b, out); });
  EXPECT_EQ(failure.code, Code::invalid_device);
  EXPECT_TRUE(has(failure.text, "b.lse is on cuda:0, a.o on cuda:1")) << failure.text;
  const std::shared_ptr<void> elsewhere = cuda::engine().allocate(0, 4 << 20);
  b.lse.device = on, b.lse.data = elsewhere.get();
  failure = failure_of([&] { merge(a, b, out); });
  EXPECT_TRUE(has(failure.text, "b.lse is said to be on device 1, its address is memory of device 0")) << failure.text;
  for (Tensor* t : {&a.o, &a.lse, &b.o, &b.lse}) t->device.index = 9;
  Outputs far = out;
  far.o.device.index = far.lse.device.index = 9;
  failure = failure_of([&] { merge(a, b, far); });
  EXPECT_TRUE(has(failure.text, "on device 9: there are 2")) << failure.text;
  EXPECT_TRUE(state().launches.empty());
}

TEST_F(CallTest, ATensorOnAnotherDeviceIsRefusedByName) {
  Call c = call(0, 1, 64, 64);
  const Call other = call(1, 1, 64, 64);
  c.in.v.data = other.in.v.data;
  Failure failure = failure_of([&] { attention(c.in, c.out); });
  EXPECT_EQ(failure.code, Code::invalid_device);
  EXPECT_TRUE(has(failure.text, "v") && has(failure.text, "device 1")) << failure.text;
  std::vector<char> host(64 * 2 * 64 * 2 + 64);
  c.in.v.data = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(host.data()) + 63) / 64 * 64);
  failure = failure_of([&] { attention(c.in, c.out); });
  EXPECT_EQ(failure.code, Code::invalid_device);
  EXPECT_TRUE(has(failure.text, "host memory")) << failure.text;
  EXPECT_TRUE(state().launches.empty());
}

TEST_F(CallTest, ARepeatedCallAllocatesNothingAndCostsMicroseconds) {
  const Call c = call(0, 2, 1, 8192);  // one query: keys are split, partial results are combined
  const Options options{.mask = causal()};
  state().launches.reserve(1000);
  for (int i = 0; i < 3; ++i) attention(c.in, c.out, options);
  const std::size_t launches = state().launches.size() / 3;
  const tessera::tests::AllocationCount count;
  attention(c.in, c.out, options);
  EXPECT_EQ(count.of_this_thread(), 0u);
  const auto asked = [&](const char* name) { return state().count(name); };
  const int before =
      asked("cuMemAlloc_v2") + asked("cuMemAllocAsync") + asked("cuMemHostAlloc") + asked("cuStreamSynchronize");
  double best_us = 1e9;
  for (int round = 0; round < 30; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; ++i) attention(c.in, c.out, options);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    best_us = std::min(best_us, took.count() / 20);
  }
  EXPECT_EQ(asked("cuMemAlloc_v2") + asked("cuMemAllocAsync") + asked("cuMemHostAlloc") + asked("cuStreamSynchronize"),
            before);
  std::printf("a call of %zu launches: %.2f us on a driver that does nothing\n", launches, best_us);
  EXPECT_LT(best_us, 20) << "a loaded machine is allowed for; docs/cuda.md has the figure of a quiet one";
}

TEST_F(CallTest, ThreadsOnTheirStreams) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const Call c = call(t % 2, 1, 64, 64 + t);
      fake::Stream* const s = control.make_stream(state().primaries.at(static_cast<std::size_t>(t % 2)));
      for (int i = 0; i < 20; ++i) attention(c.in, c.out, {}, {.stream = {s}});
    });
  for (std::thread& t : threads) t.join();
  EXPECT_GE(state().launches.size(), 80u);
}

TEST_F(CallTest, ACapturedCallIsReplayedBesideOthers) {
  const Call c = call(0, 2, 1, 8192);
  fake::Stream* const s = control.make_stream(state().primaries.at(0));
  control.begin_capture(s);
  attention(c.in, c.out, {}, {.stream = {s}});
  fake::Graph* const graph = control.end_capture(s);
  EXPECT_GE(graph->nodes.size(), 2u);
  EXPECT_FALSE(graph->kept.empty()) << "its workspace";
  control.replay(graph);
  control.destroy_graph(graph);
}

TEST_F(CallTest, AMaskThatReadsATensorOnTheHost) {
  Call c = call(0, 1, 512, 512);
  std::vector<std::int32_t> ids(512);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i / 100);
  c.in.bind = {{"ids", tensor(ids.data(), {512})}};
  const int before = state().count("cuMemcpyHtoDAsync_v2");
  attention(c.in, c.out, {.mask = causal() & documents("ids")});
  EXPECT_GE(state().launches.size(), 1u);
  EXPECT_GT(state().count("cuMemcpyHtoDAsync_v2"), before) << "the work list, and the ids";
}

}  // namespace
}  // namespace tessera::cuda::tests
