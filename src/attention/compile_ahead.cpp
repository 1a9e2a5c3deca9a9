// Kernels for GPUs that are not here: the plans of problems on devices of each architecture, their texts, compiled by
// several threads into one pack.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "cuda/ahead.hpp"
#include "cuda/engine.hpp"
#include "cuda/pack.hpp"
#include "gpu/gpu_backend.hpp"
#include "gpu/merge.hpp"
#include "plan/choose.hpp"
#include "problem/fail.hpp"
#include "tessera/kernels.hpp"

namespace tessera {
namespace {

using problem::fail;

constexpr int kernel_class = 80;  // the one that there is

// The texts that a problem needs on any of the devices, by their keys.
using Texts = std::map<cuda::Digest, gpu::KernelText>;

void add_texts(Texts& texts, const Problem& problem, const gpu::Engine& engine, const gpu::GpuBackend& backend,
               const std::string& arch) {
  if (problem.device.type != DeviceType::cuda)
    fail(Code::invalid_device, "kernels are made for tensors on a CUDA device, and these are on ", problem.device, ": ",
         problem);
  for (int device = 0; device < engine.devices(); ++device) {
    auto data = std::make_shared<PlanData>();
    data->problem = problem;
    data->problem.device.index = device;
    if (const std::vector<std::string> reasons = backend.supports(data->problem); !reasons.empty()) {
      std::string all;
      for (const std::string& reason : reasons) all += (all.empty() ? "" : "; ") + reason;
      fail(Code::unsupported, "no kernel for ", arch, " runs ", problem, ": ", all);
    }
    data->tiles = TileMap(problem.mask);
    data->runner = &backend;
    data->backend = backend.name(), data->isa = backend.variant();
    data->cost = plans::cost(problem, data->tiles);
    backend.decide(*data);
    for (gpu::KernelText& text : gpu::kernel_texts(Plan(data))) {
      const cuda::Digest key = cuda::text_key(text);
      texts.emplace(key, std::move(text));
    }
  }
  for (const emit::MergeSpec& spec : gpu::merge_specs(problem)) {
    gpu::KernelText text = emit::merge_text(spec);
    texts.emplace(cuda::text_key(text), std::move(text));
  }
}

}  // namespace

inline namespace TESSERA_API_NAMESPACE {

std::vector<CompiledKernel> compile_kernels(const std::string& path, const std::vector<std::string>& archs,
                                            const std::vector<Problem>& problems,
                                            const std::function<void(const CompiledKernel&)>& done) {
  struct Job {
    const gpu::KernelText* text;
    std::string arch;
  };
  std::vector<Texts> texts(archs.size());
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < archs.size(); ++i) {
    const cuda::AheadEngine engine(cuda::known_devices(archs[i]));
    const gpu::GpuBackend backend("cuda", engine, kernel_class);
    for (const Problem& problem : problems) add_texts(texts[i], problem, engine, backend, archs[i]);
    for (const auto& [key, text] : texts[i]) jobs.push_back({&text, archs[i]});
  }

  cuda::Compiler& compiler = cuda::engine().store().compiler();
  std::vector<cuda::KernelImage> images(jobs.size());
  std::vector<CompiledKernel> kernels(jobs.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < jobs.size();) {
      try {
        const auto begin = std::chrono::steady_clock::now();
        images[i] = compiler.compile(*jobs[i].text, jobs[i].arch);
        const cuda::KernelImage& image = images[i];
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        kernels[i] = {image.name,
                      image.spec,
                      image.arch,
                      image.registers,
                      image.stack_bytes,
                      image.spill_bytes,
                      jobs[i].text->threads,
                      image.smem_bytes + static_cast<std::int64_t>(jobs[i].text->smem_bytes),
                      image.cubin.size(),
                      took.count()};
        const std::scoped_lock lock(mutex);
        if (done) done(kernels[i]);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!failure) failure = std::current_exception();
        next.store(jobs.size());
      }
    }
  };
  std::vector<std::thread> others;
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  for (std::size_t i = 1; i < std::min(cores, jobs.size()); ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  if (failure) std::rethrow_exception(failure);
  cuda::write_pack(path, images);
  return kernels;
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
