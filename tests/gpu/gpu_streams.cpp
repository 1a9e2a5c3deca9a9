#include "gpu/gpu_streams.hpp"

#include <atomic>
#include <cstring>
#include <iostream>
#include <thread>
#include <vector>

#include "conformance/data.hpp"
#include "conformance/device_subject.hpp"
#include "cuda/engine.hpp"
#include "cuda/library.hpp"

namespace tessera::conformance {
namespace {

constexpr Device device{DeviceType::cuda, 0};

// The driver's functions that the library has no use for, by their published names.
struct Graphs {
  cuda::CUresult (*capture_begin)(cuda::CUstream, int mode) = nullptr;
  cuda::CUresult (*capture_end)(cuda::CUstream, cuda::CUgraph*) = nullptr;
  cuda::CUresult (*instantiate)(void** exec, cuda::CUgraph, unsigned long long flags) = nullptr;
  cuda::CUresult (*launch)(void* exec, cuda::CUstream) = nullptr;

  explicit Graphs(const cuda::Library& library) {
    find(library, capture_begin, "cuStreamBeginCapture_v2"), find(library, capture_end, "cuStreamEndCapture");
    find(library, instantiate, "cuGraphInstantiateWithFlags"), find(library, launch, "cuGraphLaunch");
  }

 private:
  template <class Function>
  static void find(const cuda::Library& library, Function& function, const char* name) {
    function = reinterpret_cast<Function>(library.find(name));
    if (!function) throw Error(Code::unsupported, std::string("the driver lacks ") + name);
  }
};

void check(cuda::CUresult code, const char* what) { cuda::engine().driver().check(code, what, 0); }

// A case on the device, for calls in one stream.
class Scene {
 public:
  explicit Scene(const std::string& text)
      : spec_(parse_case(text)),
        data_(make_data(spec_)),
        set_(data_.make_outputs(spec_)),
        memory_(copied_memory(cuda::engine(), device.index)()),
        current_(cuda::engine().driver(), device.index) {
    constexpr unsigned non_blocking = 1;
    check(cuda::engine().driver().api.stream_create(&stream_, non_blocking), "cuStreamCreate");
    call_.emplace(data_.inputs, set_.outputs, Exec{.stream = {stream_}}, device, true, memory_.get());
    options_ = data_.options, options_.backend = "cuda:sm_80";
    cuda::engine().synchronise(device.index, {});
  }
  cuda::CUstream stream() const { return stream_; }
  void run() { attention(call_->inputs, call_->outputs, options_, call_->exec); }
  // The outputs as bytes; before the next run they are poison again.
  std::vector<char> take() {
    std::vector<char> bytes;
    for (auto [on, host] : {std::pair{&call_->outputs.o, &set_.outputs.o}, {&call_->outputs.lse, &set_.outputs.lse}}) {
      const auto size = static_cast<std::size_t>(host->elements() * size_bytes(host->dtype));
      cuda::engine().download(device.index, {stream_}, host->data, on->data, size);
      bytes.insert(bytes.end(), host->as<char>(), host->as<char>() + size);
      const std::vector<char> poison(size, static_cast<char>(0xff));
      cuda::engine().upload(device.index, {stream_}, on->data, poison.data(), size);
    }
    return bytes;
  }
  Verdict verdict() const {
    return judge(expect(data_.inputs, data_.options, spec_.out, all_rows(data_.inputs, data_.options)), set_.outputs);
  }
  // Fewer keys of each sequence, on the host for the judge and on the device for the kernels.
  void shorten() {
    const Tensor& lengths = data_.inputs.pages.lengths;
    for (std::int64_t b = 0; b < lengths.shape[0]; ++b)
      set_element(lengths, b, static_cast<double>(static_cast<std::int64_t>(element(lengths, b)) * 5 / 8));
    cuda::engine().upload(device.index, {stream_}, call_->inputs.pages.lengths.data, lengths.data,
                          static_cast<std::size_t>(lengths.shape[0] * size_bytes(lengths.dtype)));
  }

 private:
  CaseSpec spec_;
  CaseData data_;
  OutputSet set_;
  std::unique_ptr<DeviceMemory> memory_;
  cuda::Current current_;
  cuda::CUstream stream_ = nullptr;
  std::optional<DeviceCall> call_;
  Options options_;
};

void check_replay(Findings& findings, const Graphs& graphs, const std::string& line) {
  Scene scene(line);
  scene.run();  // eager: what is compiled and kept is there
  scene.take();
  findings.tell(static_cast<bool>(scene.verdict()), "eager: " + line);
  constexpr int thread_local_mode = 1;
  check(graphs.capture_begin(scene.stream(), thread_local_mode), "cuStreamBeginCapture");
  scene.run();
  cuda::CUgraph graph = nullptr;
  void* exec = nullptr;
  check(graphs.capture_end(scene.stream(), &graph), "cuStreamEndCapture");
  check(graphs.instantiate(&exec, graph, 0), "cuGraphInstantiate");
  for (int round = 0; round < 4; ++round) {
    if (round > 0) scene.shorten();
    check(graphs.launch(exec, scene.stream()), "cuGraphLaunch");
    scene.take();
    const Verdict verdict = scene.verdict();
    findings.tell(static_cast<bool>(verdict), "replay " + std::to_string(round) + ", lengths cut " +
                                                  std::to_string(round) + " times" +
                                                  (verdict ? "" : ": " + verdict.first));
  }
}

// Each thread has a stream, a shape and so a workspace of its own.
void check_two_streams(Findings& findings) {
  const char* const lines[] = {"b=2 sq=1 sk=30000 hq=8 hkv=2 d=128 dtype=bf16",
                               "b=1 sq=7 sk=20000 hq=16 hkv=2 d=64 dtype=bf16 mask=causal"};
  std::vector<std::vector<char>> alone;
  for (const char* line : lines) {
    Scene scene(line);
    scene.run();
    alone.push_back(scene.take());
  }
  std::atomic<int> differ{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      Scene scene(lines[i]);
      for (int round = 0; round < 50; ++round) {
        for (int n = 0; n < 20; ++n) scene.run();
        differ += scene.take() != alone[i];
      }
    });
  for (std::thread& t : threads) t.join();
  findings.tell(differ == 0, "two streams at once, 1000 calls each: " + std::to_string(differ) + " results differ");
}

}  // namespace

void Findings::tell(bool good, const std::string& what) {
  std::cout << (good ? "ok    " : "FAIL  ") << what << std::endl;
  ++looked_at, failed += !good;
}

Findings check_streams_on_device() {
  const cuda::Library library(cuda::engine().driver().path());
  const Graphs graphs(library);
  Findings findings;
  for (const char* line :
       {"b=4 sq=1 sk=3000 hq=8 hkv=2 d=64 dtype=bf16 used=3000,100,1777,64",
        "b=4 sq=3 sk=2000 hq=8 hkv=2 d=128 dtype=bf16 used=2000,900,1777,64 mask=\"causal & window(300, 0)\" page=16",
        "packed=3/300,70/700,1/33 room=1024 page=64 hq=4 hkv=4 d=64 dtype=f16 mask=\"((k + q) % 3) < 2\""})
    check_replay(findings, graphs, line);
  check_two_streams(findings);
  return findings;
}

}  // namespace tessera::conformance
