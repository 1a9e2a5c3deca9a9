// The parts of the smoke test: each says what it expects of the real driver.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <thread>

#include "cuda/device_smoke.hpp"
#include "cuda/pack.hpp"
#include "emit/kernel_text.hpp"

namespace tessera::cuda::smoke {
namespace {

namespace fs = std::filesystem;

constexpr long long milliseconds = 1500000;  // in clocks, about

std::string us(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f us", seconds * 1e6);
  return text;
}
std::string ms(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f ms", seconds * 1e3);
  return text;
}

}  // namespace

void check_kernels(Smoke& s) {
  std::string pattern = (fs::temp_directory_path() / "tessera-smoke-XXXXXX").string();
  const std::string folder = mkdtemp(pattern.data());
  Settings settings = settings_from_environment();
  settings.cache = folder + "/cache";
  {
    const CudaEngine cold(settings);
    cold.missing();
    const double took = seconds([&] { cold.kernel(0, adding_kernel()); });
    s.expect(took < 1, "a cold kernel in " + ms(took) + " (under 1 s)");
    const gpu::Resources r = cold.kernel(0, adding_kernel()).resources;
    s.expect(r.registers > 0 && r.smem_bytes >= 100000 && r.blocks_per_sm >= 1 && r.local_bytes == 0,
             std::to_string(r.registers) + " registers, " + std::to_string(r.smem_bytes) + " B of shared memory, " +
                 std::to_string(r.blocks_per_sm) + " blocks a multiprocessor");
  }
  std::vector<double> disk;
  for (int i = 0; i < 7; ++i) {
    const CudaEngine again(settings);
    again.missing();
    disk.push_back(seconds([&] { again.kernel(0, adding_kernel()); }));
    s.expect(again.notes().empty(), "nothing to note of a start from disk");
  }
  s.expect(median(disk) < 5e-3, "a kernel from disk in " + ms(median(disk)) + " (under 5 ms)");
  for (const int dim : {64, 128, 256}) {  // kernels of attention as a call would have them
    emit::ForwardSpec spec;
    spec.dim = spec.dim_v = dim, spec.warps = dim == 64 ? 4 : 8, spec.keys = emit::Keys::bands, spec.bands = 1;
    spec.narrow = true;
    const gpu::KernelText forward = emit::forward_text(spec);
    const std::string name = "forward, dim " + std::to_string(dim);
    const CudaEngine cold(settings);
    cold.missing();
    const double took = seconds([&] { cold.kernel(0, forward); });
    const gpu::Resources r = cold.kernel(0, forward).resources;
    s.expect(took < 1, name + ": cold in " + ms(took) + " (under 1 s)");
    s.expect(r.local_bytes == 0, name + ": " + std::to_string(r.registers) + " registers, " +
                                     std::to_string(r.smem_bytes) + " B of shared memory, " +
                                     std::to_string(r.blocks_per_sm) + " blocks a multiprocessor, nothing spilled");
    const CudaEngine warm(settings);
    warm.missing();
    const double again = seconds([&] { warm.kernel(0, forward); });
    s.expect(again < 5e-3, name + ": from disk in " + ms(again) + " (under 5 ms)");
  }
  const std::string pack = folder + "/kernels.tpack";
  const int arch = s.engine.caps(0).arch;
  const gpu::KernelText text = adding_kernel(" in a pack");
  write_pack(pack, {s.engine.store().compiler().compile(text, arch_name(arch))});
  settings.packs = {pack}, settings.cache = folder + "/empty", settings.nvrtc = folder + "/none";
  const CudaEngine carried(settings);
  s.expect(carried.where(0, text) == gpu::Found::pack, "a kernel is found in a pack");
  carried.kernel(0, text);
  std::error_code error;
  fs::remove_all(folder, error);
}

void check_contexts(Smoke& s) {
  constexpr int n = 1000;
  CUcontext before = nullptr, after = nullptr;
  s.call(s.api.context_current(&before), "cuCtxGetCurrent");
  std::shared_ptr<void> x = s.engine.allocate(0, n * sizeof(int));
  const std::vector<int> ones(n, 1);
  s.engine.upload(0, {}, x.get(), ones.data(), n * sizeof(int));
  s.add(nullptr, x.get(), x.get(), n, 4);
  s.expect(s.all(nullptr, x.get(), n, 5), "a launch without a current context, in the primary one");
  s.call(s.api.context_current(&after), "cuCtxGetCurrent");
  s.expect(before == after, "what was current is current again");
  CUcontext mine = nullptr;
  s.call(s.more.context_create(&mine, 0, s.engine.driver().handle(0)), "cuCtxCreate");
  {
    std::shared_ptr<void> y = s.engine.constant(0, ones.data(), n * sizeof(int));
    s.add(nullptr, y.get(), y.get(), n, 6);
    s.expect(s.all(nullptr, y.get(), n, 7), "the same kernel in the caller's own context");
    s.call(s.api.context_current(&after), "cuCtxGetCurrent");
    s.expect(after == mine, "which is current still");
    std::thread([&] {
      s.add(nullptr, x.get(), x.get(), n, 1);
      s.expect(s.all(nullptr, x.get(), n, 6), "another thread, meanwhile, in the primary one");
    }).join();
  }
  s.call(s.more.context_destroy(mine), "cuCtxDestroy");
  s.add(nullptr, x.get(), x.get(), n, 1);
  s.expect(s.all(nullptr, x.get(), n, 7), "and on it goes after the own context is gone");
  if (s.engine.devices() > 1) {
    std::shared_ptr<void> z = s.engine.constant(1, ones.data(), n * sizeof(int));
    const Params params{static_cast<const int*>(z.get()), static_cast<int*>(z.get()), n, 1, 0};
    s.engine.launch(1, {}, s.engine.kernel(1, adding_kernel()), 4, &params, sizeof params);
    std::vector<int> values(n);
    s.engine.download(1, {}, values.data(), z.get(), n * sizeof(int));
    s.expect(values[n - 1] == 2, "a kernel on the second device");
  }
}

void check_streams(Smoke& s) {
  const Current current(s.engine.driver(), 0);
  constexpr int n = 4096;
  const std::vector<int> ones(n, 1);
  const CUstream a = s.stream(), b = s.stream();
  void *wa = s.engine.workspace(0, {a}, n * 4), *wb = s.engine.workspace(0, {b}, n * 4);
  s.expect(wa != wb && wa == s.engine.workspace(0, {a}, n * 4), "two streams have two workspaces, each keeps its own");
  s.expect(reinterpret_cast<std::uintptr_t>(wa) % 256 == 0, "aligned to 256 bytes");
  // A kernel is in flight on the small workspace when it is outgrown; its result is copied out behind it.
  std::shared_ptr<void> out = s.engine.allocate(0, n * 4);
  s.engine.upload(0, {a}, wa, ones.data(), n * 4);
  s.add(a, wa, wa, n, 10, 20 * milliseconds);
  s.add(a, wa, out.get(), n, 100);
  const double grown = seconds([&] { s.engine.workspace(0, {a}, 100 << 20); });
  s.expect(s.all(a, out.get(), n, 111), "a workspace is outgrown under a running kernel, and nothing is lost");
  s.expect(grown < 10e-3, "growing did not wait for it: " + ms(grown));
  // Another stream takes what the first gave back, while the first is busy again.
  void* large = s.engine.workspace(0, {b}, 100 << 20);
  s.engine.upload(0, {b}, large, ones.data(), n * 4);
  s.add(b, large, large, n, 1);
  s.expect(s.all(b, large, n, 2), "a second large workspace");
  const CUstream old = s.stream();
  void* before = s.engine.workspace(0, {old}, n * 4);
  s.add(old, before, before, n, 1, 20 * milliseconds);
  s.call(s.more.stream_destroy(old), "cuStreamDestroy");
  const CUstream next = s.stream();
  s.expect(s.engine.workspace(0, {next}, n * 4) != before, old == next
                                                               ? "a stream's handle came back: its workspace did not"
                                                               : "a stream is gone, its workspace is left alone");
  std::vector<std::thread> threads;
  std::vector<int> good(8);
  for (std::size_t t = 0; t < good.size(); ++t)
    threads.emplace_back([&, t] {
      const CUstream stream = t % 2 ? a : nullptr;
      good[t] = 1;
      for (int i = 0; i < 50; ++i) {
        void* w = s.engine.workspace(0, {stream}, n * 4);
        s.engine.upload(0, {stream}, w, ones.data(), n * 4);
        s.add(stream, w, w, n, static_cast<int>(t));
        good[t] &= s.all(stream, w, n, 1 + static_cast<int>(t));
      }
    });
  for (std::thread& t : threads) t.join();
  s.expect(std::accumulate(good.begin(), good.end(), 0) == 8, "eight threads on two streams");
}

void check_uploads(Smoke& s) {
  const Current current(s.engine.driver(), 0);
  const CUstream a = s.stream();
  constexpr int n = 1000, times = 300;
  std::shared_ptr<void> out = s.engine.allocate(0, n * times * 4);
  std::vector<int> source(n);
  s.add(a, out.get(), out.get(), n, 0, 50 * milliseconds);  // so that no copy starts before all are asked for
  const double took = seconds([&] {
    for (int i = 0; i < times; ++i) {
      std::fill(source.begin(), source.end(), i);
      s.engine.upload(0, {a}, static_cast<int*>(out.get()) + i * n, source.data(), n * 4);
    }
  });
  const std::vector<int> values = s.read(a, out.get(), n * times);
  bool good = true;
  for (int i = 0; i < n * times; ++i) good &= values[static_cast<std::size_t>(i)] == i / n;
  s.expect(good, "300 uploads from one buffer that is overwritten at once");
  s.expect(took < 20e-3, "which did not wait for the stream: " + us(took / times) + " each");
}

void check_graphs(Smoke& s) {
  const Current current(s.engine.driver(), 0);
  const CUstream a = s.stream(), b = s.stream();
  constexpr int n = 5000;
  std::vector<int> source(n, 3);
  void* const eager = s.engine.workspace(0, {a}, n * 4);
  std::shared_ptr<void> out = s.engine.allocate(0, n * 4);
  for (const int mode : {0, 1, 2}) {  // global, thread local, relaxed
    const gpu::KernelText text = adding_kernel(" in mode " + std::to_string(mode));
    s.call(s.more.capture_begin(a, mode), "cuStreamBeginCapture");
    void* const w = s.engine.workspace(0, {a}, n * 4);
    std::fill(source.begin(), source.end(), 3 + mode);
    s.engine.upload(0, {a}, w, source.data(), n * 4);
    // Compiled, loaded and met for the first time while a stream is captured; and a constant is made.
    const gpu::Kernel& kernel = s.engine.kernel(0, text);
    const std::shared_ptr<void> constant = s.engine.constant(0, source.data(), 400);
    const Params params{static_cast<const int*>(w), static_cast<int*>(out.get()), n, 10, 0};
    s.engine.launch(0, {a}, kernel, (n + 255) / 256, &params, sizeof params);
    s.engine.keep(0, {a}, constant);
    CUgraph graph = nullptr;
    void* exec = nullptr;
    s.call(s.more.capture_end(a, &graph), "cuStreamEndCapture");
    const std::string name = "captured in mode " + std::to_string(mode);
    s.expect(w != eager, name + ": a workspace of the graph's own");
    s.expect(s.all(b, constant.get(), 100, 3 + mode), name + ": the constant was there at once");
    s.call(s.more.graph_instantiate(&exec, graph, 0), "cuGraphInstantiate");
    std::fill(source.begin(), source.end(), -1);
    for (int replay = 0; replay < 3; ++replay) {
      s.engine.upload(0, {a}, s.engine.workspace(0, {a}, n * 4), source.data(), n * 4);  // eager calls beside it
      s.engine.upload(0, {a}, out.get(), source.data(), n * 4);
      s.call(s.more.graph_launch(exec, a), "cuGraphLaunch");
      s.expect(s.all(a, out.get(), n, 13 + mode), name + ": replayed with what was uploaded then");
    }
    const long before = constant.use_count();
    s.call(s.more.exec_destroy(exec), "cuGraphExecDestroy");
    s.call(s.more.graph_destroy(graph), "cuGraphDestroy");
    s.call(s.api.context_synchronise(), "cuCtxSynchronize");
    for (int i = 0; i < 200 && constant.use_count() > 1; ++i) {  // the driver tells it from a thread of its own
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      s.engine.allocate(0, 1);
    }
    s.expect(before > 1 && constant.use_count() == 1, name + ": the graph is gone, and what it kept is let go");
    s.call(s.more.capture_begin(a, mode), "cuStreamBeginCapture");
    s.expect(s.engine.workspace(0, {a}, n * 4) == w, name + ": the next graph has its workspace");
    s.call(s.more.capture_end(a, &graph), "cuStreamEndCapture");
    if (graph) s.call(s.more.graph_destroy(graph), "cuGraphDestroy");
  }
}

void check_places(Smoke& s) {
  const Current current(s.engine.driver(), 0);
  int here = 0;
  void* pinned = nullptr;
  CUdeviceptr managed = 0;
  std::shared_ptr<void> device = s.engine.allocate(0, 1000);
  s.call(s.api.host_allocate(&pinned, 1000, 0), "cuMemHostAlloc");
  s.call(s.more.managed_allocate(&managed, 1000, 1), "cuMemAllocManaged");
  const auto is = [&](const void* p, int number, const char* what) {
    const gpu::Engine::Place place = s.engine.place(p);
    s.expect(place.device == number && std::string(place.what) == what,
             std::string(what) + " is on device " + std::to_string(place.device));
  };
  is(&here, -1, "host memory");
  is(nullptr, -1, "host memory");
  is(pinned, -1, "pinned host memory");
  is(static_cast<char*>(device.get()) + 500, 0, "device memory");
  is(s.engine.workspace(0, {}, 1000), 0, "device memory");
  is(reinterpret_cast<void*>(managed), 0, "managed memory");
  if (s.engine.devices() > 1) is(s.engine.workspace(1, {}, 1000), 1, "device memory");
  std::vector<double> took;
  for (int i = 0; i < 101; ++i) took.push_back(seconds([&] { s.engine.place(device.get()); }));
  s.expect(median(took) < 2e-6, "asking takes " + us(median(took)));
}

void check_overhead(Smoke& s) {
  const Current current(s.engine.driver(), 0);
  const CUstream a = s.stream();
  std::shared_ptr<void> x = s.engine.allocate(0, 4096);
  const gpu::Kernel& kernel = s.engine.kernel(0, adding_kernel());
  Params params{static_cast<const int*>(x.get()), static_cast<int*>(x.get()), 256, 1, 0};
  // The same code once more, loaded by hand.
  const KernelStore::Code code =
      s.engine.store().get(adding_kernel(), text_key(adding_kernel()), s.engine.caps(0).arch);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  s.call(s.api.module_load(&module, code.image->cubin.data(), 0, nullptr, nullptr), "cuModuleLoadDataEx");
  s.call(s.api.module_function(&function, module, "adding"), "cuModuleGetFunction");
  s.call(s.api.function_set(function, function_max_dynamic_smem, 100000), "cuFuncSetAttribute");
  void* arguments[] = {&params};
  std::vector<double> ours, own, workspace, upload;
  constexpr int batch = 50;  // few enough for the queue of a stream
  int word = 0;
  for (int round = 0; round < 101; ++round) {
    ours.push_back(seconds([&] {
                     for (int i = 0; i < batch; ++i) s.engine.launch(0, {a}, kernel, 1, &params, sizeof params);
                   }) /
                   batch);
    s.engine.synchronise(0, {a});
    own.push_back(seconds([&] {
                    for (int i = 0; i < batch; ++i)
                      s.api.launch(function, 1, 1, 1, 256, 1, 1, 100000, a, arguments, nullptr);
                  }) /
                  batch);
    s.engine.synchronise(0, {a});
    workspace.push_back(seconds([&] { s.engine.workspace(0, {a}, 4096); }));
    upload.push_back(seconds([&] { s.engine.upload(0, {a}, x.get(), &word, sizeof word); }));
    s.engine.synchronise(0, {a});
  }
  const double beside = median(ours) - median(own);
  s.expect(beside < 1e-6,
           "a launch takes " + us(median(own)) + " in the driver and " + us(beside) + " beside it (under 1)");
  s.expect(median(workspace) < 1e-6, "a workspace takes " + us(median(workspace)));
  s.expect(median(upload) < 10e-6, "an upload of 4 bytes takes " + us(median(upload)));
}

}  // namespace tessera::cuda::smoke
