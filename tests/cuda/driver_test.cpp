// The driver: whether there is one, in which context a call works, what a refusal says.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "cuda/fakes.hpp"

namespace tessera::cuda::tests {
namespace {

class DriverTest : public WithFakes {};

TEST_F(DriverTest, NoLibrary) {
  settings.driver = folder / "libnothing.so";
  EXPECT_TRUE(has(engine().missing(), settings.driver)) << engine().missing();
  EXPECT_TRUE(has(engine().missing(), "TESSERA_CUDA_DRIVER")) << engine().missing();
  EXPECT_EQ(engine().devices(), 0);
  const Failure failure = failure_of([&] { engine().kernel(0, some_text()); });
  EXPECT_EQ(failure.code, Code::unsupported);
  EXPECT_TRUE(has(failure.text, "install an NVIDIA driver")) << failure.text;
  int here = 0;
  EXPECT_EQ(engine().place(&here).device, -1);
}

TEST_F(DriverTest, ALibraryThatIsNoDriver) {
  settings.driver = FAKE_NVRTC;
  EXPECT_TRUE(has(engine().missing(), "lacks cuInit")) << engine().missing();
}

TEST_F(DriverTest, TooOld) {
  state().version = 11020;
  EXPECT_TRUE(has(engine().missing(), "CUDA 11.2")) << engine().missing();
  EXPECT_TRUE(has(engine().missing(), "11.4")) << engine().missing();
}

TEST_F(DriverTest, NoDevice) {
  state().init_result = cuda_no_device;
  EXPECT_TRUE(has(engine().missing(), "CUDA_ERROR_NO_DEVICE (100)")) << engine().missing();
  EXPECT_TRUE(has(engine().missing(), "CUDA_VISIBLE_DEVICES")) << engine().missing();
}

TEST_F(DriverTest, NoDeviceInAStartThatSucceeds) {
  state().devices = 0;
  EXPECT_TRUE(has(engine().missing(), "CUDA_VISIBLE_DEVICES")) << engine().missing();
}

TEST_F(DriverTest, TheToolkitsStub) {
  state().init_result = cuda_stub_library;
  EXPECT_TRUE(has(engine().missing(), "stub")) << engine().missing();
}

TEST_F(DriverTest, Capabilities) {
  ASSERT_EQ(engine().missing(), "");
  ASSERT_EQ(engine().devices(), 2);
  const gpu::Caps& caps = engine().caps(1);
  EXPECT_EQ(caps.name, "Fake 1");
  EXPECT_EQ(caps.arch, 90);
  EXPECT_EQ(caps.sms, 132);
  EXPECT_EQ(caps.smem_block_bytes, 232448);
  EXPECT_NEAR(caps.dram_bytes_s, 4.917e12, 1e9);    // 3201 MHz, both edges, 6144 bits
  EXPECT_NEAR(caps.tensor_flops, 1.0706e15, 1e11);  // 132 * 4096 * 1.98 GHz
  const Failure failure = failure_of([&] { engine().caps(2); });
  EXPECT_EQ(failure.code, Code::invalid_device);
  EXPECT_TRUE(has(failure.text, "device 2: the driver has 2")) << failure.text;
}

TEST_F(DriverTest, WithoutACurrentContextThePrimaryOneIsUsedAndPutBack) {
  const gpu::Kernel& kernel = engine().kernel(1, some_text());
  EXPECT_EQ(control.current(), nullptr);
  const std::uint64_t argument = 77;
  engine().launch(1, {}, kernel, 5, &argument, sizeof argument);
  EXPECT_EQ(control.current(), nullptr);
  ASSERT_EQ(state().launches.size(), 1u);
  const fake::Launch& launch = state().launches[0];
  EXPECT_EQ(launch.name, "scale");
  EXPECT_EQ(launch.context, state().primaries[1]);
  EXPECT_EQ(launch.blocks, 5u);
  EXPECT_EQ(launch.threads, 128u);
  EXPECT_EQ(launch.smem, 60000u);
  EXPECT_EQ(launch.first, 77u);
  EXPECT_EQ(state().count("cuDevicePrimaryCtxRetain"), 1);
}

TEST_F(DriverTest, TheCallersContextIsUsedIfItIsOfTheDevice) {
  fake::Context* const mine = control.make_context(0);
  control.set_current(mine);
  const gpu::Kernel& kernel = engine().kernel(0, some_text());
  const std::uint64_t argument = 1;
  engine().launch(0, {}, kernel, 1, &argument, 8);
  EXPECT_EQ(state().launches.at(0).context, mine);
  EXPECT_EQ(state().count("cuDevicePrimaryCtxRetain"), 0);
  // Of another device: its primary one, and the caller's is current again afterwards.
  const gpu::Kernel& other = engine().kernel(1, some_text());
  engine().launch(1, {}, other, 1, &argument, 8);
  EXPECT_EQ(state().launches.at(1).context, state().primaries.at(1));
  EXPECT_EQ(control.current(), mine);
}

TEST_F(DriverTest, AKernelMeetsAnotherContextOfItsDevice) {
  const gpu::Kernel& kernel = engine().kernel(0, some_text());
  const std::uint64_t argument = 1;
  engine().launch(0, {}, kernel, 1, &argument, 8);
  control.set_current(control.make_context(0));
  engine().launch(0, {}, kernel, 1, &argument, 8);
  engine().launch(0, {}, kernel, 1, &argument, 8);
  EXPECT_EQ(state().launches.at(2).context, control.current());
  EXPECT_EQ(state().count("cuModuleLoadDataEx"), 2);
  EXPECT_EQ(compilations(), 1);
}

TEST_F(DriverTest, AResetDeviceIsTakenUpAgain) {
  const gpu::Kernel& kernel = engine().kernel(0, some_text());
  state().primaries.at(0)->destroyed = true;
  const std::uint64_t argument = 1;
  engine().launch(0, {}, kernel, 1, &argument, 8);
  EXPECT_EQ(state().launches.at(0).context, state().primaries.at(0));
  EXPECT_EQ(state().count("cuDevicePrimaryCtxRetain"), 2);
}

TEST_F(DriverTest, AStreamOfAnotherDevice) {
  const gpu::Kernel& kernel = engine().kernel(0, some_text());
  engine().workspace(1, {}, 1);  // so that device 1 has a context
  fake::Stream* const other = control.make_stream(state().primaries.at(1));
  const std::uint64_t argument = 1;
  const Failure failure = failure_of([&] { engine().launch(0, stream(other), kernel, 1, &argument, 8); });
  EXPECT_EQ(failure.code, Code::internal);
  EXPECT_TRUE(has(failure.text, "device 0 (Fake 0)")) << failure.text;
  EXPECT_TRUE(has(failure.text, "the stream must belong to the device of the tensors")) << failure.text;
  EXPECT_EQ(control.current(), nullptr);
}

TEST_F(DriverTest, ARefusedLaunchSaysWhat) {
  const gpu::Kernel& kernel = engine().kernel(0, some_text());
  state().fail["cuLaunchKernel"] = cuda_launch_out_of_resources;
  const std::uint64_t argument = 1;
  const Failure failure = failure_of([&] { engine().launch(0, {}, kernel, 3, &argument, 8); });
  EXPECT_EQ(failure.code, Code::internal);
  for (const char* part : {"launching scale in 3 blocks of 128 threads", "60000 bytes of shared memory", "(701)",
                           "more registers or shared memory"})
    EXPECT_TRUE(has(failure.text, part)) << failure.text;
  EXPECT_EQ(control.current(), nullptr);
}

TEST_F(DriverTest, LaunchesThatMakeNoSense) {
  const gpu::Kernel& kernel = engine().kernel(0, some_text());
  const std::uint64_t argument = 1;
  EXPECT_EQ(failure_of([&] { engine().launch(0, {}, kernel, std::int64_t{1} << 31, &argument, 8); }).code,
            Code::unsupported);
  const Failure failure = failure_of([&] { engine().launch(1, {}, kernel, 1, &argument, 8); });
  EXPECT_EQ(failure.code, Code::invalid_device);
  EXPECT_TRUE(has(failure.text, "loaded on device 0 and is launched on device 1")) << failure.text;
  engine().launch(0, {}, kernel, 0, &argument, 8);  // nothing to do
  EXPECT_TRUE(state().launches.empty());
}

TEST_F(DriverTest, MoreSharedMemoryThanABlockMayHave) {
  gpu::KernelText text = some_text();
  text.smem_bytes = 300000;
  const Failure failure = failure_of([&] { engine().kernel(0, text); });
  EXPECT_EQ(failure.code, Code::unsupported);
  EXPECT_TRUE(has(failure.text, "300000") && has(failure.text, "232448")) << failure.text;
  EXPECT_EQ(compilations(), 0);
}

TEST_F(DriverTest, ResourcesOfAKernel) {
  const gpu::Resources r = engine().kernel(0, some_text()).resources;
  EXPECT_EQ(r.registers, 42);
  EXPECT_EQ(r.smem_bytes, 60016);
  EXPECT_EQ(r.blocks_per_sm, 16);
}

TEST_F(DriverTest, WhereMemoryIs) {
  void* const device = engine().workspace(1, {}, 1000);
  EXPECT_EQ(engine().place(static_cast<char*>(device) + 500).device, 1);
  int here = 0;
  EXPECT_EQ(engine().place(&here).device, -1);
  EXPECT_STREQ(engine().place(&here).what, "host memory");
}

TEST_F(DriverTest, AfterAFork) {
  engine().kernel(0, some_text());
  const pid_t child = fork();
  if (child == 0) {
    state().fail["cuCtxGetCurrent"] = cuda_not_initialised;  // as the real one says there
    const Failure failure = failure_of([&] { engine().kernel(0, some_text()); });
    _exit(has(failure.text, "forked after CUDA had been started") ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(DriverTest, ManyThreadsOneKernel) {
  setenv("FAKE_NVRTC_MS", "30", 1);
  const CudaEngine& one = engine();  // opened by whichever thread is first
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      const gpu::Kernel& kernel = one.kernel(i % 2, some_text());
      const std::uint64_t argument = 1;
      for (int j = 0; j < 50; ++j) one.launch(i % 2, {}, kernel, 1, &argument, 8);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(compilations(), 1);
  EXPECT_EQ(state().count("cuModuleLoadDataEx"), 2);
  EXPECT_EQ(state().launches.size(), 400u);
}

}  // namespace
}  // namespace tessera::cuda::tests
