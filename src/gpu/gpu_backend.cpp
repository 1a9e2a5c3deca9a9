#include "gpu/gpu_backend.hpp"

#include <sstream>

#include "gpu/call.hpp"
#include "gpu/class_rule.hpp"
#include "gpu/state.hpp"

namespace tessera::gpu {
namespace {

const State& state_of(const PlanData& plan) {
  const auto* state = dynamic_cast<const State*>(plan.details.get());
  if (!state) throw Error(Code::internal, "the plan of " + plan.backend + ":" + plan.isa + " was not made for a GPU");
  return *state;
}

void check_workspace(const Workspace& given, std::size_t needed) {
  if (given.bytes < needed)
    throw Error(Code::workspace_too_small, "the workspace has " + std::to_string(given.bytes) +
                                               " bytes, the plan needs " + std::to_string(needed) +
                                               ": ask plan.workspace_bytes()");
  if (reinterpret_cast<std::uintptr_t>(given.data) % workspace_alignment != 0)
    throw Error(Code::workspace_too_small, "the workspace is not aligned to 64 bytes");
}

}  // namespace

GpuBackend::GpuBackend(std::string name, const Engine& engine, int arch, std::span<const Tile> table)
    : name_(std::move(name)), variant_("sm_" + std::to_string(arch)), engine_(engine), arch_(arch), table_(table) {}

GpuBackend::GpuBackend(std::string name, const Engine& engine, int arch)
    : GpuBackend(std::move(name), engine, arch, tiles_of(arch)) {}

std::string GpuBackend::missing() const { return engine_.missing(); }

std::string GpuBackend::about() const {
  std::string text = arch_ == 90 ? "tensor cores (wgmma) on " : "tensor cores (mma.sync) on ";
  for (int i = 0; i < engine_.devices(); ++i) text += (i ? ", " : "") + engine_.caps(i).name;
  return text;
}

std::vector<std::string> GpuBackend::supports(const Problem& p) const {
  if (p.device.type != DeviceType::cuda) return {"the tensors are on the cpu: they must be on a CUDA device"};
  if (!missing().empty()) return {};  // there is no device to ask
  if (p.device.index < 0 || p.device.index >= engine_.devices())
    return {"the tensors are on device " + std::to_string(p.device.index) + ": there are " +
            std::to_string(engine_.devices()) + ", numbered from 0"};
  return reasons(p, engine_.caps(p.device.index), arch_, table_);
}

std::string GpuBackend::better_elsewhere(const Problem& p) const { return arch_ == 90 ? left_to_sm80(p) : ""; }

void GpuBackend::decide(PlanData& plan) const {
  const auto state = std::make_shared<const State>(engine_, plan, arch_, table_);
  const Decision& d = state->decision();
  plan.tiling = {.q_tile = d.queries,
                 .heads_per_tile = d.spec.heads,
                 .panel = d.spec.q_tile,
                 .k_block = d.spec.k_tile,
                 .kv_split = d.kv_split,
                 .run_queries = d.runs ? d.queries : 0,
                 .run_keys = d.runs ? d.spec.k_tile : 0,
                 .splits = d.splits,
                 .items = d.items()};
  plan.partial_bytes = d.layout.bytes;
  const Caps& caps = engine_.caps(plan.problem.device.index);
  plan.ceiling = {caps.tensor_flops, caps.dram_bytes_s};
  plan.details = state;
}

void GpuBackend::run(const PlanData& plan, const Inputs& in, const Outputs& out, const Exec& exec) const {
  const State& state = state_of(plan);
  const Problem& p = plan.problem;
  const Decision& d = state.decision();
  const int device = p.device.index;
  if (exec.workspace.data) check_workspace(exec.workspace, d.layout.bytes);
  check_places(engine_, p, in, out, exec.workspace);
  if (p.tokens_q == 0 || p.batch == 0) return;
  const Kernel& forward = state.forward();
  const Kernel* const combine = d.spec.split ? &state.combine() : nullptr;
  const Kernel* const prepare = d.prepare ? &state.prepare() : nullptr;
  const LaunchParams params(engine_, p, plan.tiles, d, state.runs(exec.stream), state.dealt(exec.stream), in, out,
                            exec);
  const std::int64_t tiles = params.forward().tiles * d.units;
  if (tiles == 0) return;  // packed sequences without queries
  if (prepare) params.prepare(engine_, *prepare, device, exec.stream);
  const std::int64_t items = tiles * d.splits;
  const std::int64_t blocks = d.persistent() ? persistent_blocks(engine_.caps(device), items) : items;
  engine_.launch(device, exec.stream, forward, blocks, params.bytes().data(), params.bytes().size());
  // The kernel that combines knows no mods; what it takes stands first.
  if (combine) {
    static const std::size_t bytes = emit::forward_param_bytes({});
    engine_.launch(device, exec.stream, *combine, tiles, params.bytes().data(), bytes);
  }
}

std::string kernel_spec(const Plan& plan) {
  const Decision& d = state_of(*plan).decision();
  std::ostringstream text;
  text << d.spec;
  if (d.prepare) text << "; prepare " << *d.prepare;
  return text.str();
}

std::vector<KernelText> kernel_texts(const Plan& plan) { return state_of(*plan).texts(); }

}  // namespace tessera::gpu
