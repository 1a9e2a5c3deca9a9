// The emulated GPU as an engine: kernel text goes to the system's C++ compiler instead of NVRTC, launches to the
// machine instead of a driver. Device memory is host memory, streams are done when they are asked. For tests; never
// shipped. Must not know: attention.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/engine.hpp"
#include "sim/compile.hpp"
#include "sim/launch.hpp"
#include "sim/region.hpp"

namespace tessera::sim {

// A device of compute capability 8.0 with the numbers of an A100.
gpu::Caps emulated_sm80();
// One of 9.0 with those of an H200.
gpu::Caps emulated_sm90();

struct EngineOptions {
  bool checked = false;  // vector clocks, bounds of every access, uninitialised reads; see docs/sim.md
  std::string folder{};  // of compiled kernels; empty: "sim-cache" in the working folder
  std::string compiler = "g++";
  // Every launch in a schedule of its own, which what it throws names; else all in Engine::schedule.
  bool vary = false;
  gpu::Caps caps = emulated_sm80();
};

class Engine final : public gpu::Engine {
 public:
  explicit Engine(EngineOptions options = {});
  ~Engine() override;

  // The order in which threads run, for every launch from now on. Not to be changed while another thread launches.
  Schedule schedule{};

  std::string missing() const override;
  int devices() const override { return missing().empty() ? 1 : 0; }
  const gpu::Caps& caps(int device) const override;

  const gpu::Kernel& kernel(int device, const gpu::KernelText& text) const override;
  gpu::Found where(int device, const gpu::KernelText& text) const override;
  // Compiles what is not compiled yet, several at a time.
  void prefetch(const std::vector<gpu::KernelText>& texts, int jobs = 0) const;

  // Throws Error(internal) with everything that the machine reports.
  void launch(int device, Stream stream, const gpu::Kernel& kernel, std::int64_t blocks, const void* params,
              std::size_t params_bytes) const override;
  // The same, and says it instead of throwing.
  Result run(const gpu::Kernel& kernel, std::int64_t blocks, const void* params, std::size_t params_bytes) const {
    return run(kernel, blocks, params, params_bytes, schedule);
  }

  void upload(int device, Stream stream, void* to, const void* from, std::size_t bytes) const override;
  void download(int device, Stream stream, void* to, const void* from, std::size_t bytes) const override;
  void synchronise(int device, Stream stream) const override;
  // Exactly as long as asked for, and full of poison each time.
  void* workspace(int device, Stream stream, std::size_t bytes) const override;
  std::shared_ptr<void> allocate(int device, std::size_t bytes) const override;
  void tensor_map(const gpu::TensorMapSpec& spec, void* map) const override;
  Place place(const void*) const override { return {0, "memory of the emulated device"}; }

 private:
  Result run(const gpu::Kernel& kernel, std::int64_t blocks, const void* params, std::size_t params_bytes,
             const Schedule& in) const;
  struct State;
  EngineOptions options_;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::sim
