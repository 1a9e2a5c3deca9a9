// The backend that CUDA devices and the emulated GPU share: it decides by the capabilities of the problem's device and
// launches prepare, forward and combine on an Engine.
// Must not know: which engine that is.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "backend.hpp"
#include "gpu/engine.hpp"
#include "gpu/merge.hpp"
#include "gpu/tile_table.hpp"

namespace tessera::gpu {

class GpuBackend final : public Backend {
 public:
  // One class of kernels on one engine: name "cuda", arch 80 is `cuda:sm_80`. Engine and table outlive this; a table of
  // one row pins a tile (bench/gpu/sweep.cpp).
  GpuBackend(std::string name, const Engine& engine, int arch, std::span<const Tile> table);
  GpuBackend(std::string name, const Engine& engine, int arch);
  std::string_view name() const override { return name_; }
  std::string_view variant() const override { return variant_; }
  DeviceType device() const override { return DeviceType::cuda; }
  std::string about() const override;
  std::string missing() const override;
  std::vector<std::string> supports(const Problem& problem) const override;
  std::string better_elsewhere(const Problem& problem) const override;
  void decide(PlanData& plan) const override;
  void run(const PlanData& plan, const Inputs& inputs, const Outputs& outputs, const Exec& exec) const override;
  void merge(const Outputs& a, const Outputs& b, const Outputs& out, const Exec& exec) const override {
    merge_.run(a, b, out, exec);
  }

  const Engine& engine() const { return engine_; }

 private:
  const std::string name_, variant_;
  const Engine& engine_;
  const int arch_;
  const std::span<const Tile> table_;
  const Merge merge_{engine_};
};

// What a GPU plan's kernels are made for, in one line: plans of equal lines need the same kernels. And their texts, for
// whoever compiles them ahead. Throw Error(internal) for a plan of another backend.
std::string kernel_spec(const Plan& plan);
std::vector<KernelText> kernel_texts(const Plan& plan);

}  // namespace tessera::gpu
