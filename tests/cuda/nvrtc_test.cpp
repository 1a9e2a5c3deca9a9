// The real compiler, where there is one: no GPU is needed for it. Where there is none a line says so.
#include <chrono>

#include "cuda/fakes.hpp"

namespace tessera::cuda::tests {
namespace {

class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!compiler.about().missing.empty()) GTEST_SKIP() << compiler.about().missing;
  }
  // Without the compiler that is none, which other tests of this program have loaded.
  static NvrtcPlaces real_places() {
    NvrtcPlaces places = nvrtc_places("", settings_from_environment().nvrtc);
    std::erase_if(places.loaded, [](const std::string& path) { return has(path, "fake"); });
    return places;
  }
  Settings settings_in(const Folder& folder) {
    Settings settings;
    settings.nvrtc = compiler.about().path;
    settings.cache = folder.path;
    return settings;
  }
  Notes notes;
  Compiler compiler{real_places(), 0, notes};
};

constexpr const char* source = R"(
struct Params { float* x; int n; };
extern "C" __global__ void __launch_bounds__(128) reverse(const __grid_constant__ Params p) {
  extern __shared__ float s[];
  const int i = blockIdx.x * 128 + threadIdx.x;
  s[threadIdx.x] = i < p.n ? p.x[i] : 0;
  __syncthreads();
  if (i < p.n) p.x[i] = 2 * s[127 - threadIdx.x];
})";

TEST_F(NvrtcTest, CompilesForEveryClassOfDevice) {
  const gpu::KernelText text{"reverse", "reverse of a test", source, 128, 512};
  for (const int device : {80, 86, 89, 90, 100, 120}) {
    std::string arch;
    try {
      arch = compiler.arch_for(device);
    } catch (const Error& error) {  // an NVRTC that is older than the device
      EXPECT_TRUE(has(error.what(), "a newer NVRTC is needed")) << error.what();
      continue;
    }
    const KernelImage image = compiler.compile(text, arch);
    EXPECT_EQ(image.cubin.substr(0, 4), "\177ELF") << arch;
    EXPECT_GT(image.registers, 2) << image.log;
    EXPECT_LT(image.registers, 64) << image.log;
    EXPECT_EQ(image.stack_bytes, 0) << image.log;
    EXPECT_EQ(image.spill_bytes, 0) << image.log;
    EXPECT_TRUE(has(image.log, "ptxas info")) << image.log;
    std::string why;
    const std::optional<KernelImage> back = decode(encode(image), why);
    ASSERT_TRUE(back) << why;
    EXPECT_EQ(*back, image);
  }
}

TEST_F(NvrtcTest, SaysWhatStandsInTheWay) {
  const gpu::KernelText text{"broken", "broken of a test", "extern \"C\" __global__ void broken() { undeclared(); }", 1,
                             0};
  const Failure failure = failure_of([&] { compiler.compile(text, compiler.arch_for(90)); });
  EXPECT_EQ(failure.code, Code::unsupported);
  for (const char* part : {"does not compile broken for sm_90a", "identifier \"undeclared\" is undefined", "broken.cu"})
    EXPECT_TRUE(has(failure.text, part)) << failure.text;
}

TEST_F(NvrtcTest, FromDiskWithoutOpeningIt) {
  Folder folder;
  const Settings settings = settings_in(folder);
  const gpu::KernelText text{"reverse", "reverse of a test", source, 128, 512};
  {
    KernelStore store(settings, 0, notes);
    EXPECT_EQ(store.get(text, text_key(text), 90).found, gpu::Found::nowhere);
  }
  double best_ms = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    KernelStore store(settings, 0, notes);
    EXPECT_EQ(store.get(text, text_key(text), 90).found, gpu::Found::disk);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    best_ms = std::min(best_ms, took.count());
  }
  EXPECT_LT(best_ms, 5.0) << "as much as a start from disk may take, of which the driver needs some";
  EXPECT_TRUE(notes.all().empty()) << notes.all().front();
}

TEST_F(NvrtcTest, AStoreOfARealKernelInTheFakeDriver) {
  Folder folder;
  Settings settings = settings_in(folder);
  settings.driver = FAKE_CUDA;
  const CudaEngine engine(settings);
  const gpu::Kernel& kernel = engine.kernel(0, {"reverse", "reverse of a test", source, 128, 512});
  const std::uint64_t argument = 3;
  engine.launch(0, {}, kernel, 1, &argument, sizeof argument);
  EXPECT_EQ(engine.driver().missing(), "");
}

}  // namespace
}  // namespace tessera::cuda::tests
