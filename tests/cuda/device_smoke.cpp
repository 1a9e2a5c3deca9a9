// The CUDA runtime on a real device: what the fake driver only claims. Exit code 77 and one line without a GPU.
// A minute at most; every line says what was looked at, the last one how many failed.
#include "cuda/device_smoke.hpp"

#include <algorithm>
#include <exception>

namespace tessera::cuda::smoke {

MoreDriver::MoreDriver(const Library& library) {
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.find(name));
    if (!function) std::printf("FAIL  the driver lacks %s\n", name);
  };
  find(context_create, "cuCtxCreate_v2");
  find(context_destroy, "cuCtxDestroy_v2");
  find(stream_destroy, "cuStreamDestroy_v2");
  find(capture_begin, "cuStreamBeginCapture_v2");
  find(capture_end, "cuStreamEndCapture");
  find(graph_instantiate, "cuGraphInstantiateWithFlags");
  find(graph_launch, "cuGraphLaunch");
  find(graph_destroy, "cuGraphDestroy");
  find(exec_destroy, "cuGraphExecDestroy");
  find(managed_allocate, "cuMemAllocManaged");
}

gpu::KernelText adding_kernel(const std::string& more) {
  return {"adding", "adding of a test" + more,
          R"(
struct Params { const int* x; int* y; int n, add; long long spin; };
extern "C" __global__ void __launch_bounds__(256) adding(const __grid_constant__ Params p) {
  extern __shared__ int s[];
  const long long begin = clock64();
  while (clock64() - begin < p.spin) {}
  const int i = blockIdx.x * 256 + threadIdx.x;
  s[threadIdx.x] = i < p.n ? p.x[i] : 0;
  __syncthreads();
  if (i < p.n) p.y[i] = s[threadIdx.x] + p.add;
}
//)" + more + "\n",
          256, 100000};
}

void Smoke::part(const char* name, const std::function<void()>& body) {
  std::printf("%s\n", name);
  try {
    body();
  } catch (const std::exception& error) {
    expect(false, std::string(name) + ": " + error.what());
  }
}

void Smoke::call(CUresult code, const char* what) { engine.driver().check(code, what, 0); }

CUstream Smoke::stream() {
  CUstream made = nullptr;
  call(api.stream_create(&made, stream_non_blocking), "cuStreamCreate");
  return made;
}

void Smoke::add(CUstream s, const void* x, void* y, int n, int amount, long long spin) {
  const Params params{static_cast<const int*>(x), static_cast<int*>(y), n, amount, spin};
  engine.launch(0, {s}, engine.kernel(0, adding_kernel()), (n + 255) / 256, &params, sizeof params);
}

std::vector<int> Smoke::read(CUstream s, const void* from, int n) {
  std::vector<int> values(static_cast<std::size_t>(n));
  engine.download(0, {s}, values.data(), from, values.size() * sizeof(int));
  return values;
}

bool Smoke::all(CUstream s, const void* from, int n, int value) {
  const std::vector<int> values = read(s, from, n);
  return std::all_of(values.begin(), values.end(), [&](int v) { return v == value; });
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace tessera::cuda::smoke

int main() {
  using namespace tessera::cuda;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  CudaEngine& engine = tessera::cuda::engine();
  if (const std::string missing = engine.missing(); !missing.empty()) {
    std::printf("skipped: %s\n", missing.c_str());
    return 77;
  }
  const Library library(engine.driver().path());
  const smoke::MoreDriver more(library);
  smoke::Smoke s(engine, more);
  const Compiler::About& nvrtc = engine.store().compiler().about();
  std::printf("driver %s (%s), NVRTC %s (%s, %s)\n", version_text(engine.driver().version()).c_str(),
              engine.driver().path().c_str(), nvrtc.version.c_str(), nvrtc.path.c_str(), nvrtc.how.c_str());
  for (int i = 0; i < engine.devices(); ++i) {
    const tessera::gpu::Caps& c = engine.caps(i);
    std::printf(
        "device %d: %s, sm_%d, %d multiprocessors, shared memory %d a block, %d a multiprocessor, %d reserved, %d "
        "threads, %d registers, L2 %lld, %.3g B/s, %.4g FLOP/s\n",
        i, c.name.c_str(), c.arch, c.sms, c.smem_block_bytes, c.smem_sm_bytes, c.smem_reserved_bytes, c.threads_sm,
        c.registers_sm, static_cast<long long>(c.l2_bytes), c.dram_bytes_s, c.tensor_flops);
  }
  s.part("kernels", [&] { check_kernels(s); });
  s.part("contexts", [&] { check_contexts(s); });
  s.part("streams and workspaces", [&] { check_streams(s); });
  s.part("uploads", [&] { check_uploads(s); });
  s.part("graphs", [&] { check_graphs(s); });
  s.part("places", [&] { check_places(s); });
  s.part("overhead", [&] { check_overhead(s); });
  for (const std::string& note : engine.notes()) std::printf("note: %s\n", note.c_str());
  std::printf("%d passed, %d failed\n", s.passed, s.failed);
  return s.failed > 0;
}
