// `tessera compile`: kernels for GPUs that need not be here, into a pack for machines that may not compile.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/report.hpp"
#include "cli/shape_flags.hpp"
#include "tessera/kernels.hpp"

namespace tessera::cli {
namespace {

// What a kernel depends on besides its shape.
struct CallFlags {
  bool lengths = false, on_device = false;
};
struct CompileFlags {
  ShapeFlags shape;
  CallFlags call;
  std::vector<std::string> archs;
  std::string output, list, nvrtc, json;
  bool lse = false;
};
struct Wanted {
  Shape shape;
  CallFlags call;
};

void add_call_flags(CLI::App& command, CallFlags& flags) {
  command
      .add_flag("--lengths", flags.lengths,
                "a cache: each sequence says how many keys it has (--page-size: it always does)")
      ->group("Run");
  command
      .add_flag("--on-device", flags.on_device,
                "prefix sums, lengths, block tables and what --mask and --score read lie on the device")
      ->group("Run");
}

// The same keys as a cache of dense rows: as many for each sequence as the longest has.
void lay_out_as_cache(const Shape& shape, Inputs& in, Prefix& prefix) {
  std::int64_t longest = shape.packed.empty() ? shape.sk : 0;
  for (const SequenceLengths& l : shape.packed) longest = std::max(longest, l.k);
  prefix.lengths.assign(static_cast<std::size_t>(std::max<std::int64_t>(shape.b, 0)), longest);
  in.k = tensor(in.k.data, shape.dtype, {shape.b, longest, shape.hkv, shape.d});
  in.v = tensor(in.v.data, shape.dtype, {shape.b, longest, shape.hkv, shape.dv});
  in.packed.cu_k = {}, in.pages.lengths = tensor(prefix.lengths.data(), {shape.b});
}

// The shape's problem for tensors on a CUDA device. Nothing is read at the addresses; they lie apart, as outputs must.
Problem cuda_problem(const Wanted& wanted, bool lse) {
  const Shape& shape = wanted.shape;
  Prefix prefix = prefix_of(shape);
  const auto place = [](int i) {
    return reinterpret_cast<void*>(std::uintptr_t{1} << 46 | static_cast<std::uintptr_t>(i) << 42);
  };
  const Device device{DeviceType::cuda, 0};
  Inputs in = inputs_of(shape, {place(1), place(2), place(3)}, prefix);
  if (wanted.call.lengths && shape.page_size == 0) lay_out_as_cache(shape, in, prefix);
  set_device(in, device, wanted.call.on_device);
  Outputs out;
  out.o = shape.packed.empty() ? tensor(place(4), shape.dtype, {shape.b, shape.sq, shape.hq, shape.dv}, {}, device)
                               : tensor(place(4), shape.dtype, {shape.sq, shape.hq, shape.dv}, {}, device);
  if (lse)
    out.lse = shape.packed.empty() ? tensor(place(5), f32, {shape.b, shape.hq, shape.sq}, {}, device)
                                   : tensor(place(5), f32, {shape.hq, shape.sq}, {}, device);
  return describe(in, out, options_of(shape, ""));
}

// The shapes of each line of a file; '#' begins a remark.
std::vector<Wanted> listed_shapes(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Misuse(fmt::format("--list {}: it cannot be opened", path));
  std::vector<Wanted> all;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos || line[line.find_first_not_of(" \t\r")] == '#') continue;
    CLI::App app;
    ShapeFlags flags;
    CallFlags call;
    flags.dtype = {"bf16"};
    add_shape_flags(app, flags, Values::list), add_call_flags(app, call);
    try {
      app.parse(line, false);
      for (Shape& shape : shapes(flags)) all.push_back({std::move(shape), call});
    } catch (const CLI::ParseError& error) {
      throw Misuse(fmt::format("--list {}, line {}: {}", path, number, error.what()));
    } catch (const Misuse& error) {
      throw Misuse(fmt::format("--list {}, line {}: {}", path, number, error.what()));
    }
  }
  return all;
}

int run_compile(const CompileFlags& flags) {
  Answer answer(flags.json);
  if (!flags.nvrtc.empty()) use_nvrtc(flags.nvrtc);
  std::vector<Wanted> all;
  if (!flags.list.empty()) all = listed_shapes(flags.list);
  else
    for (Shape& shape : shapes(flags.shape)) all.push_back({std::move(shape), flags.call});
  if (all.empty()) throw Misuse(fmt::format("--list {}: it has no shapes", flags.list));
  std::vector<Problem> problems;
  for (const Wanted& wanted : all) {
    problems.push_back(cuda_problem(wanted, false));
    if (flags.lse) problems.push_back(cuda_problem(wanted, true));
  }
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  double bytes = 0;
  const std::vector<CompiledKernel> made =
      compile_kernels(flags.output, flags.archs, problems, [&](const CompiledKernel& k) {
        answer.say(fmt::format("{:<8} {:3} registers, {:6} B shared{}, {:5.1f} KiB, {:5.2f} s  {}\n", k.arch,
                               k.registers, k.smem_bytes,
                               k.spill_bytes > 0 ? fmt::format(", {} B SPILLED", k.spill_bytes) : std::string(),
                               static_cast<double>(k.code_bytes) / 1024, k.seconds, k.spec));
      });
  for (const CompiledKernel& k : made) {
    bytes += static_cast<double>(k.code_bytes);
    kernels.push_back({{"name", k.name},
                       {"spec", k.spec},
                       {"arch", k.arch},
                       {"registers", k.registers},
                       {"stack_bytes", k.stack_bytes},
                       {"spill_bytes", k.spill_bytes},
                       {"threads", k.threads},
                       {"smem_bytes", k.smem_bytes},
                       {"code_bytes", k.code_bytes},
                       {"seconds", k.seconds}});
  }
  answer.say(fmt::format("{} kernel{} for {} shape{} in {}, {}\n", made.size(), made.size() == 1 ? "" : "s", all.size(),
                         all.size() == 1 ? "" : "s", flags.output, bytes_text(bytes)));
  const KernelCompiler compiler = gpu_report().compiler;
  answer.write({{"pack", flags.output},
                {"nvrtc", {{"path", compiler.path}, {"version", compiler.version}}},
                {"kernels", kernels},
                {"bytes", bytes}});
  return exit_done;
}

}  // namespace

void add_compile(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "compile",
      "kernels for GPUs that need not be here, into a pack (TESSERA_PACK); bf16 unless --dtype says otherwise");
  auto flags = std::make_shared<CompileFlags>();
  flags->shape.dtype = {"bf16"};
  add_shape_flags(*command, flags->shape, Values::list), add_call_flags(*command, flags->call);
  command->add_option("--arch", flags->archs, "which GPUs: sm_80,sm_90a ..")->delimiter(',')->required()->group("Run");
  command->add_option("-o,--output", flags->output, "the pack to write")->type_name("FILE")->required()->group("Run");
  command
      ->add_option("--list", flags->list,
                   "instead of one shape, the flags of a shape (with --lengths, --on-device) in each line of a file")
      ->type_name("FILE")
      ->group("Run");
  command->add_flag("--lse", flags->lse, "kernels that write LSE as well")->group("Run");
  command->add_option("--nvrtc", flags->nvrtc, "the compiler, a file or its folder: this one or none")
      ->type_name("PATH")
      ->group("Run");
  add_json_flag(*command, flags->json);
  command->callback([flags, &chosen] { chosen = [flags] { return run_compile(*flags); }; });
}

}  // namespace tessera::cli
