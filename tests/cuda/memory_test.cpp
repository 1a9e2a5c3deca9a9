// Workspaces, uploads and what graphs keep.
#include <cstring>
#include <numeric>
#include <set>
#include <thread>

#include "cuda/fakes.hpp"
#include "cuda/lane.hpp"
#include "unit/count_allocations.hpp"

namespace tessera::cuda::tests {
namespace {

class MemoryTest : public WithFakes {
 protected:
  fake::Context* context(int device) {
    engine().workspace(device, {}, 1);
    return state().primaries.at(static_cast<std::size_t>(device));
  }
  void* workspace(fake::Stream* s, std::size_t bytes) { return engine().workspace(0, stream(s), bytes); }
  bool is_allocated(void* memory) { return state().memory.count(static_cast<char*>(memory)) > 0; }
  void upload(fake::Stream* s, void* to, const void* from, std::size_t bytes) {
    engine().upload(0, stream(s), to, from, bytes);
  }
};

TEST(GrownBytes, DoublesInWholeUnits) {
  EXPECT_EQ(grown_bytes(0, 1), std::size_t{64} << 10);
  EXPECT_EQ(grown_bytes(64 << 10, (64 << 10) + 1), std::size_t{128} << 10);
  EXPECT_EQ(grown_bytes(0, 5 << 20), std::size_t{6} << 20);
  EXPECT_EQ(grown_bytes(std::size_t{1} << 30, (std::size_t{1} << 30) + 1), (std::size_t{1} << 30) + (256 << 20));
  EXPECT_EQ(grown_bytes(0, ~std::size_t{0}), ~std::size_t{0});
}

TEST_F(MemoryTest, AWorkspaceStaysWithItsStream) {
  fake::Stream *a = control.make_stream(context(0)), *b = control.make_stream(context(0));
  void* const first = workspace(a, 1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 256, 0u);
  EXPECT_EQ(workspace(a, 1000), first);
  EXPECT_EQ(workspace(a, 10), first);
  EXPECT_NE(workspace(b, 1000), first);
  EXPECT_NE(workspace(nullptr, 1000), first);
  EXPECT_NE(engine().workspace(1, {}, 1000), workspace(nullptr, 1000));
  EXPECT_EQ(workspace(a, 1000), first);
}

TEST_F(MemoryTest, TheDefaultStreamGoesByTwoNames) {
  void* const first = engine().workspace(0, {}, 1000);
  EXPECT_EQ(engine().workspace(0, {reinterpret_cast<void*>(1)}, 1000), first);
  EXPECT_NE(engine().workspace(0, {reinterpret_cast<void*>(2)}, 1000), first);  // the thread's own
}

TEST_F(MemoryTest, GrowsAndReleasesInStreamOrder) {
  fake::Stream* const s = control.make_stream(context(0));
  void* const small = workspace(s, 1000);
  void* const large = workspace(s, 1 << 20);
  EXPECT_NE(small, large);
  EXPECT_FALSE(is_allocated(small));
  EXPECT_TRUE(is_allocated(large));
  EXPECT_EQ(state().count("cuMemFreeAsync"), 1);
  EXPECT_EQ(state().count("cuMemFree_v2"), 0);
  EXPECT_EQ(state().count("cuCtxSynchronize"), 0);
  // A need that grows by a little soon asks no more.
  const int before = state().count("cuMemAllocAsync");
  for (std::size_t bytes = 1 << 20; bytes < 8 << 20; bytes += 10000) workspace(s, bytes);
  EXPECT_LE(state().count("cuMemAllocAsync") - before, 4);
}

TEST_F(MemoryTest, WithoutPoolsWhatIsOutgrownIsKeptUntilTheDeviceIsDone) {
  state().pools = false;
  fake::Stream* const s = control.make_stream(context(0));
  void* const small = workspace(s, 1000);
  workspace(s, 1 << 20);
  EXPECT_TRUE(is_allocated(small)) << "kernels in flight may be using it";
  workspace(s, 300 << 20);
  workspace(s, 600 << 20);
  EXPECT_TRUE(is_allocated(small));
  workspace(s, 900 << 20);  // more than 256 MB are kept: now it pays to wait
  EXPECT_EQ(state().count("cuMemFree_v2"), 3)
      << "of 1000 bytes, 1 MB and 300 MB";  // their addresses may be in use again
  EXPECT_EQ(state().count("cuCtxSynchronize"), 1);
}

TEST_F(MemoryTest, AFullDevice) {
  fake::Stream* const s = control.make_stream(context(0));
  const Failure failure = failure_of([&] { workspace(s, std::size_t{1} << 40); });
  EXPECT_EQ(failure.code, Code::out_of_memory);
  EXPECT_TRUE(has(failure.text, "a workspace of 1099511627776 bytes on device 0")) << failure.text;
  EXPECT_NE(workspace(s, 1000), nullptr);  // and on it goes
}

TEST_F(MemoryTest, ThreadsDoNotShareAndInheritFromEachOther) {
  fake::Stream* const s = control.make_stream(context(0));
  void* const mine = workspace(s, 1000);
  void *theirs = nullptr, *later = nullptr, *own = nullptr, *own_later = nullptr;
  std::thread([&] {
    theirs = workspace(s, 1000);
    own = engine().workspace(0, {stream_per_thread()}, 1000);
  }).join();
  EXPECT_NE(theirs, mine);
  std::thread([&] {
    later = workspace(s, 1000);
    own_later = engine().workspace(0, {stream_per_thread()}, 1000);
  }).join();
  EXPECT_EQ(later, theirs) << "that thread is gone, the stream's order holds";
  EXPECT_NE(own_later, own) << "two threads' own streams are two streams";
}

TEST_F(MemoryTest, AStreamsHandleComesBackAsAnotherStream) {
  fake::Stream* const s = control.make_stream(context(0));
  void* const old = workspace(s, 1000);
  control.replace_stream(s);
  void* const now = workspace(s, 1000);
  EXPECT_NE(now, old) << "kernels of the stream that was destroyed may be running still";
  EXPECT_TRUE(is_allocated(old));
  // Those that are gone do not pile up.
  for (int i = 0; i < 10; ++i) {
    control.replace_stream(s);
    workspace(s, 100 << 20);
  }
  std::size_t bytes = 0;
  for (const auto& [data, memory] : state().memory) bytes += memory.bytes;
  EXPECT_LE(bytes, std::size_t{500} << 20);
}

TEST_F(MemoryTest, ADriverWithoutNumbersAndPools) {
  settings.driver = FAKE_CUDA_OLD;
  void* const library = dlopen(FAKE_CUDA_OLD, RTLD_NOW | RTLD_LOCAL);
  control = reinterpret_cast<fake::Control (*)()>(dlsym(library, "fake_control"))();
  control.reset();
  state().version = 11080;
  ASSERT_EQ(engine().missing(), "");
  void* const first = engine().workspace(0, {}, 1000);
  EXPECT_EQ(engine().workspace(0, {}, 1000), first);
  EXPECT_NE(engine().workspace(0, {}, 1 << 20), first);
  EXPECT_EQ(state().count("cuMemAlloc_v2"), 2);
}

TEST_F(MemoryTest, TheSourceOfAnUploadMayBeUsedAgainAtOnce) {
  state().late_copies = true;  // as late as the stream's order allows
  fake::Stream* const s = control.make_stream(context(0));
  std::vector<char> target(1 << 20), source(1000);
  char* const device = static_cast<char*>(workspace(s, target.size()));
  std::size_t at = 0;
  for (int i = 0; i < 200; ++i) {  // more than fits one block of pinned memory
    std::fill(source.begin(), source.end(), static_cast<char>(i));
    upload(s, device + at, source.data(), source.size());
    at += source.size();
  }
  std::fill(source.begin(), source.end(), static_cast<char>(-1));
  control.finish(s);
  for (std::size_t i = 0; i < at; ++i) ASSERT_EQ(device[i], static_cast<char>(i / 1000)) << i;
}

TEST_F(MemoryTest, PinnedMemoryIsUsedAgain) {
  fake::Stream* const s = control.make_stream(context(0));
  std::vector<char> source(50000);
  void* const device = workspace(s, source.size());
  for (int i = 0; i < 100; ++i) upload(s, device, source.data(), 1000 + static_cast<std::size_t>(i) * 480);
  EXPECT_LE(state().count("cuMemHostAlloc"), 2);
  // Large between small: no more than one block of each size is needed while copies are done at once.
  std::vector<char> large(200000);
  void* const room = workspace(s, large.size());
  for (int i = 0; i < 100; ++i) upload(s, room, large.data(), i % 3 ? large.size() : 60000);
  EXPECT_LE(state().count("cuMemHostAlloc"), 4);
}

TEST_F(MemoryTest, ABacklogOfUploadsIsBounded) {
  state().late_copies = true;
  fake::Stream* const s = control.make_stream(context(0));
  std::vector<char> source(4 << 20);
  void* const device = workspace(s, source.size());
  for (int i = 0; i < 40; ++i) upload(s, device, source.data(), source.size());
  EXPECT_GT(state().count("cuEventSynchronize"), 0);
  std::size_t pinned = 0;
  for (const auto& [data, memory] : state().memory) pinned += memory.host ? memory.bytes : 0;
  EXPECT_LE(pinned, std::size_t{72} << 20);
}

TEST_F(MemoryTest, ARepeatedCallAllocatesNothing) {
  const gpu::Kernel& kernel = engine().kernel(0, some_text());
  fake::Stream* const s = control.make_stream(context(0));
  char source[64] = "";
  const auto call = [&] {
    void* const memory = engine().workspace(0, stream(s), 5000);
    engine().upload(0, stream(s), memory, source, sizeof source);
    engine().launch(0, stream(s), kernel, 1, source, sizeof source);
    engine().keep(0, stream(s), nullptr);
  };
  for (int i = 0; i < 3; ++i) call();
  const int device = state().count("cuMemAllocAsync"), host = state().count("cuMemHostAlloc");
  state().launches.reserve(1000);
  const tessera::tests::AllocationCount count;
  for (int i = 0; i < 100; ++i) call();
  EXPECT_EQ(count.of_this_thread(), 0u);
  EXPECT_EQ(state().count("cuMemAllocAsync"), device);
  EXPECT_EQ(state().count("cuMemHostAlloc"), host);
}

TEST_F(MemoryTest, ACapturedWorkspaceBelongsToTheGraph) {
  fake::Stream* const s = control.make_stream(context(0));
  void* const eager = workspace(s, 1000);
  control.begin_capture(s);
  void* const one = workspace(s, 1000);
  EXPECT_NE(one, eager) << "a replay may meet a call on the stream";
  EXPECT_EQ(workspace(s, 1000), one) << "calls in one graph are ordered";
  fake::Graph* const first = control.end_capture(s);
  control.begin_capture(s);
  void* const two = workspace(s, 1000);
  EXPECT_NE(two, one) << "two graphs may be replayed at once";
  fake::Graph* const second = control.end_capture(s);
  EXPECT_EQ(workspace(s, 1000), eager);
  control.destroy_graph(first);
  EXPECT_TRUE(is_allocated(one));
  control.begin_capture(s);
  EXPECT_EQ(workspace(s, 1000), one) << "of a graph that is gone";
  fake::Graph* const third = control.end_capture(s);
  control.destroy_graph(second);
  control.destroy_graph(third);
  EXPECT_EQ(state().count("cuMemAlloc_v2"), 2);
}

TEST_F(MemoryTest, ACapturedWorkspaceThatGrowsKeepsTheSmallOne) {
  fake::Stream* const s = control.make_stream(context(0));
  control.begin_capture(s);
  void* const small = workspace(s, 1000);
  void* const large = workspace(s, 1 << 20);
  EXPECT_NE(small, large);
  EXPECT_TRUE(is_allocated(small)) << "kernels that were captured before have it";
  control.destroy_graph(control.end_capture(s));
}

TEST_F(MemoryTest, ACapturedUploadReplaysWhatWasThere) {
  fake::Stream* const s = control.make_stream(context(0));
  char* const device = static_cast<char*>(workspace(s, 4096));
  std::memset(device, 0, 4096);
  char source[600];
  std::memset(source, 7, sizeof source);
  control.begin_capture(s);
  upload(s, device, source, sizeof source);
  std::memset(source, 9, sizeof source);
  upload(s, device + 1024, source, sizeof source);
  fake::Graph* const graph = control.end_capture(s);
  EXPECT_EQ(device[0], 0) << "nothing runs while it is captured";
  std::memset(source, 1, sizeof source);
  for (int i = 0; i < 3; ++i) upload(s, device + 2048, source, sizeof source);  // eager ones in between
  for (int replay = 0; replay < 2; ++replay) {
    std::memset(device, 0, 2048);
    control.replay(graph);
    EXPECT_EQ(device[599], 7);
    EXPECT_EQ(device[600], 0);
    EXPECT_EQ(device[1024 + 599], 9);
  }
  control.destroy_graph(graph);
}

TEST_F(MemoryTest, ManyCapturedUploadsShareABlock) {
  fake::Stream* const s = control.make_stream(context(0));
  char* const device = static_cast<char*>(workspace(s, 100000));
  std::vector<char> source(10000);
  control.begin_capture(s);
  for (int i = 0; i < 10; ++i) {
    std::fill(source.begin(), source.end(), static_cast<char>(i + 1));
    upload(s, device + i * 10000, source.data(), source.size());
  }
  fake::Graph* const graph = control.end_capture(s);
  EXPECT_EQ(state().count("cuMemHostAlloc"), 2);
  control.replay(graph);
  for (int i = 0; i < 100000; ++i) ASSERT_EQ(device[i], static_cast<char>(i / 10000 + 1)) << i;
  control.destroy_graph(graph);
}

TEST_F(MemoryTest, MemoryOfAPlanIsFreedWithItsLastOwner) {
  std::shared_ptr<void> memory = engine().allocate(1, 1000);
  EXPECT_EQ(engine().place(memory.get()).device, 1);
  void* const address = memory.get();
  std::shared_ptr<void> other = memory;
  memory.reset();
  EXPECT_TRUE(is_allocated(address));
  other.reset();
  EXPECT_FALSE(is_allocated(address));
}

TEST_F(MemoryTest, ConstantsAreThereAtOnceAlsoUnderCapture) {
  state().late_copies = true;
  fake::Stream* const s = control.make_stream(context(0));
  control.begin_capture(s);
  const std::string text = "what a plan keeps";
  const std::shared_ptr<void> memory = engine().constant(0, text.data(), text.size());
  EXPECT_EQ(std::memcmp(memory.get(), text.data(), text.size()), 0);
  fake::Graph* const graph = control.end_capture(s);
  EXPECT_TRUE(graph->nodes.empty());
  control.destroy_graph(graph);
}

TEST_F(MemoryTest, AGraphKeepsWhatItReads) {
  fake::Stream* const s = control.make_stream(context(0));
  std::shared_ptr<void> memory = engine().allocate(0, 1000);
  void* const address = memory.get();
  engine().keep(0, stream(s), memory);
  EXPECT_EQ(memory.use_count(), 1) << "not captured: the caller's plan outlives the call";
  control.begin_capture(s);
  engine().keep(0, stream(s), memory);
  fake::Graph* const graph = control.end_capture(s);
  memory.reset();
  EXPECT_TRUE(is_allocated(address));
  const int frees = state().count("cuMemFree_v2");
  control.destroy_graph(graph);
  EXPECT_EQ(state().count("cuMemFree_v2"), frees) << "the driver may not be called from where it tells of the end";
  engine().allocate(0, 1);
  EXPECT_FALSE(is_allocated(address));
}

TEST_F(MemoryTest, AFirstCallMayBeCaptured) {
  fake::Stream *const s = control.make_stream(context(0)), *const other = control.make_stream(context(0));
  char source[100] = "";
  const std::uint64_t argument = 1;
  control.begin_capture(s);
  const gpu::Kernel& kernel = engine().kernel(0, some_text());  // compiled and loaded
  void* const w = workspace(s, 1000);
  upload(s, w, source, sizeof source);
  const std::shared_ptr<void> constant = engine().constant(0, source, sizeof source);
  engine().launch(0, stream(s), kernel, 1, &argument, sizeof argument);
  engine().keep(0, stream(s), constant);
  upload(other, workspace(other, 1000), source, sizeof source);  // while another stream is captured
  workspace(other, 1 << 20);
  engine().allocate(0, 10);
  std::thread([&] { workspace(other, 1000); }).join();
  fake::Graph* const graph = control.end_capture(s);
  EXPECT_EQ(graph->nodes.size(), 2u);
  control.destroy_graph(graph);
  // And the thread is as strict as before.
  control.begin_capture(s);
  EXPECT_EQ(engine().driver().api.context_synchronise(), cuda_capture_unsupported);
  control.destroy_graph(control.end_capture(s));
}

TEST_F(MemoryTest, ACaptureThatTheStreamCannotBePartOf) {
  fake::Stream* const s = control.make_stream(context(0));
  state().fail["cuStreamGetCaptureInfo_v2"] = cuda_capture_implicit;
  const Failure failure = failure_of([&] { workspace(s, 1000); });
  EXPECT_TRUE(has(failure.text, "being captured into a graph: make the call on that stream")) << failure.text;
}

}  // namespace
}  // namespace tessera::cuda::tests
