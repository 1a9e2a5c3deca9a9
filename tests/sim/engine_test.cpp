// The emulated GPU as an engine: kernels from texts, their folder, launches, memory.
#include "sim/engine.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "sim/folder.hpp"
#include "sim/small_case.hpp"
#include "sim/sources.hpp"
#include "tessera/error.hpp"

namespace tessera::sim {
namespace {

namespace fs = std::filesystem;

struct AddParams {
  std::uint32_t* to;
  const std::uint32_t* from;
  std::uint32_t what;
};

gpu::KernelText add_text(const std::string& operation = "+") {
  gpu::KernelText text;
  text.name = "add";
  text.spec = "add one number to all";
  text.source = inlined("#include \"kernels/ptx/base.cuh\"\n") +
                "struct Params { ptx::u32* to; const ptx::u32* from; ptx::u32 what; };\n"
                "extern \"C\" __global__ void __launch_bounds__(64) add(const __grid_constant__ Params p) {\n"
                "  const ptx::u32 i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                "  p.to[i] = p.from[i] " +
                operation + " p.what;\n}\n";
  text.threads = 64;
  return text;
}

EngineOptions options(bool checked = false) { return {.checked = checked, .folder = cache_folder()}; }

// A folder of this test's own, gone when it ends.
struct Folder {
  fs::path path = fs::path(cache_folder()) / ("of-" + std::to_string(getpid()) + "-" +
                                              ::testing::UnitTest::GetInstance()->current_test_info()->name());
  Folder() { fs::remove_all(path); }
  ~Folder() { fs::remove_all(path); }
};

std::string message_of(const auto& action, Code code) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}
bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

TEST(Engine, CompilesAndLaunches) {
  for (const bool checked : {false, true}) {
    const Engine engine(options(checked));
    ASSERT_EQ(engine.missing(), "");
    EXPECT_EQ(engine.devices(), 1);
    EXPECT_EQ(engine.caps(0).arch, 80);
    const gpu::Kernel& kernel = engine.kernel(0, add_text());
    EXPECT_EQ(&kernel, &engine.kernel(0, add_text()));
    EXPECT_EQ(kernel.resources.blocks_per_sm, 32);
    const auto from = engine.allocate(0, 512), to = engine.allocate(0, 512);
    std::uint32_t numbers[128], result[128];
    for (std::uint32_t i = 0; i < 128; ++i) numbers[i] = i * i;
    engine.upload(0, {}, from.get(), numbers, sizeof numbers);
    const AddParams params{static_cast<std::uint32_t*>(to.get()), static_cast<std::uint32_t*>(from.get()), 5};
    engine.launch(0, {}, kernel, 2, &params, sizeof params);
    engine.synchronise(0, {});
    engine.download(0, {}, result, to.get(), sizeof result);
    for (std::uint32_t i = 0; i < 128; ++i) EXPECT_EQ(result[i], i * i + 5);
    EXPECT_EQ(engine.place(to.get()).device, 0);
  }
}

TEST(Engine, SaysWhatALaunchDidWrong) {
  Engine engine(options(true));
  engine.schedule.seed = 12;
  const gpu::Kernel& kernel = engine.kernel(0, add_text());
  const auto from = engine.allocate(0, 256), to = engine.allocate(0, 256);
  const AddParams params{static_cast<std::uint32_t*>(to.get()), static_cast<std::uint32_t*>(from.get()), 5};
  const auto launch = [&](std::int64_t blocks) { engine.launch(0, {}, kernel, blocks, &params, sizeof params); };
  const std::string unwritten = message_of([&] { launch(1); }, Code::internal);
  EXPECT_TRUE(has(unwritten, "emulated launch of add (add one number to all), 1 blocks, seed 12")) << unwritten;
  EXPECT_TRUE(has(unwritten, "uninitialised: block 0 thread ")) << unwritten;
  const std::uint32_t zeros[64] = {};
  engine.upload(0, {}, from.get(), zeros, sizeof zeros);
  launch(1);
  EXPECT_TRUE(has(message_of([&] { launch(2); }, Code::internal), "out of bounds"));
  EXPECT_TRUE(has(message_of([&] { launch(0); }, Code::internal), "0 blocks"));
  EXPECT_TRUE(has(message_of([&] { engine.launch(0, {}, kernel, 1, &params, 8); }, Code::internal),
                  "24 bytes of parameters, the launch gives 8"));
  EXPECT_TRUE(has(message_of([&] { engine.kernel(1, add_text()); }, Code::invalid_device), "device 1"));
}

TEST(Engine, VariesSchedulesAndNamesThem) {
  Engine engine({.checked = true, .folder = cache_folder(), .vary = true});
  engine.schedule.seed = 40;
  const gpu::Kernel& kernel = engine.kernel(0, add_text());
  const auto from = engine.allocate(0, 256), to = engine.allocate(0, 256);
  const AddParams params{static_cast<std::uint32_t*>(to.get()), static_cast<std::uint32_t*>(from.get()), 5};
  for (const char* words : {"seed 40, copies late, 1 resident", "seed 41, copies random, 2 resident",
                            "seed 42, copies eager, 3 resident", "seed 43, copies random, 1 resident"}) {
    const std::string text =
        message_of([&] { engine.launch(0, {}, kernel, 1, &params, sizeof params); }, Code::internal);
    EXPECT_TRUE(has(text, words)) << text;
    mark_written(from.get(), 256, false);  // a report comes once only, as long as the memory is the same
  }
}

TEST(Engine, ShowsWhatTheCompilerSaid) {
  const Folder folder;
  const Engine engine({.folder = folder.path});
  const std::string text = message_of([&] { engine.kernel(0, add_text("+ nonsense +")); }, Code::unsupported);
  EXPECT_TRUE(has(text, "nonsense")) << text;
  const Engine other({.folder = folder.path, .compiler = "no-such-compiler"});
  EXPECT_TRUE(has(message_of([&] { other.kernel(0, add_text("-")); }, Code::unsupported), "no-such-compiler"));
  const Engine nowhere({.folder = "/proc/no-such-place"});
  EXPECT_TRUE(has(message_of([&] { nowhere.kernel(0, add_text("-")); }, Code::io), "/proc/no-such-place"));
}

TEST(Engine, RefusesTooMuchSharedMemory) {
  const Engine engine(options());
  gpu::KernelText text = add_text("*");
  text.smem_bytes = std::size_t(engine.caps(0).smem_block_bytes) + 1;
  EXPECT_TRUE(has(message_of([&] { engine.kernel(0, text); }, Code::internal), "166912"));
}

TEST(Engine, KeepsKernelsInItsFolder) {
  const Folder folder;
  const Engine engine({.folder = folder.path});
  const gpu::KernelText text = add_text("^");
  EXPECT_EQ(engine.where(0, text), gpu::Found::nowhere);
  engine.prefetch({text, add_text("|"), add_text("&")}, 2);
  EXPECT_EQ(engine.where(0, text), gpu::Found::memory);
  std::size_t objects = 0;
  for (const auto& entry : fs::directory_iterator(folder.path)) objects += entry.path().extension() == ".so";
  EXPECT_EQ(objects, 3u);
  // A file of that name that is no kernel is made anew.
  const gpu::KernelText damaged = add_text("- 3 +");
  engine.kernel(0, damaged);
  fs::path path;
  for (const auto& entry : fs::directory_iterator(folder.path))
    if (entry.path().extension() == ".so") path = entry.path();
  fs::create_directories(folder.path / "second");
  const Engine fresh({.folder = folder.path / "second"});
  EXPECT_EQ(fresh.where(0, damaged), gpu::Found::nowhere);
  std::ofstream(folder.path / "second" / path.filename()) << "no kernel";
  fresh.prefetch({text, add_text("|"), add_text("&"), damaged});
  EXPECT_EQ(fresh.where(0, damaged), gpu::Found::memory);
  EXPECT_GT(fs::file_size(folder.path / "second" / path.filename()), 1000u);
}

TEST(Engine, WorkspacesAreExactAndForgetful) {
  const Engine engine(options(true));
  auto* a = static_cast<unsigned char*>(engine.workspace(0, {}, 1000));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 256, 0u);
  EXPECT_EQ(a[999], 0xff);
  std::memset(a, 0, 1000);
  EXPECT_EQ(engine.workspace(0, {}, 1000), a);
  EXPECT_EQ(a[0], 0xff);
  int handle = 0;
  EXPECT_NE(engine.workspace(0, Stream{&handle}, 1000), a);
  void* of_another_thread = nullptr;
  std::thread([&] { of_another_thread = engine.workspace(0, {}, 1000); }).join();
  EXPECT_NE(of_another_thread, a);
}

TEST(Engine, ThreadsLaunchAtTheSameTime) {
  const std::string kernel = file_text("tests/sim/small_forward.cuh");
  const auto work = [&](bool checked, unsigned seed) {
    const LoadedCode& code = compiled({"g++", cache_folder(), checked}, "small", small_forward_text(kernel, 64, true));
    for (unsigned i = 0; i < 3; ++i) {
      const SmallCase one({100, 160, 2, 64, true}, seed + i);
      const Result result = one.run(code, {.seed = seed + i, .timing = Timing::random, .resident = 2});
      EXPECT_TRUE(result.ok()) << text_of(result);
      EXPECT_LE(one.error(), 1);
    }
  };
  std::thread other(work, true, 1);
  work(false, 100);
  other.join();
}

TEST(Engine, TensorMapsAreOfSm90) {
  gpu::TensorMapSpec spec;
  alignas(64) static const char data[256] = {};
  spec.data = data, spec.rank = 1, spec.dims[0] = 64, spec.box[0] = 64;
  char map[gpu::tensor_map_bytes];
  Engine({.folder = cache_folder(), .caps = emulated_sm90()}).tensor_map(spec, map);
  EXPECT_THROW(Engine({.folder = cache_folder()}).tensor_map(spec, map), Error);
  spec.rank = 0;
  EXPECT_THROW(Engine({.folder = cache_folder(), .caps = emulated_sm90()}).tensor_map(spec, map), Error);
}

}  // namespace
}  // namespace tessera::sim
