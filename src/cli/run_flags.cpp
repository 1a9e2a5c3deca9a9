#include "cli/run_flags.hpp"

#include <algorithm>

#include "cli/commands.hpp"
#include "cli/flag_values.hpp"
#include "tessera/attention.hpp"

namespace tessera::cli {

void add_threads_flag(CLI::App& command, RunFlags& flags, Values values, int otherwise) {
  flags.threads = {otherwise};
  add_values(command, "--threads", flags.threads,
             fmt::format("threads, 0: as many as the library takes by itself ({})", otherwise), values)
      ->check(whole_numbers())
      ->check(CLI::Range(0, 1024).description(""))
      ->group("Run");
}

void add_backend_flags(CLI::App& command, RunFlags& flags, Values values, std::string_view otherwise) {
  add_values(command, "--backend", flags.backend, fmt::format("cpu, cpu:avx2 .., all ({})", otherwise), values)
      ->group("Run");
  add_values(command, "--isa", flags.isa, "instruction set of the cpu backend: avx512, avx2, scalar", values)
      ->group("Run");
}

std::vector<std::string> backends_of(const RunFlags& flags, std::optional<DeviceType> device) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& backend : flags.backend.empty() ? std::vector<std::string>{""} : flags.backend) {
    if (flags.isa.empty()) {
      if (backend != "all") add(backend);
      else
        for (const BackendInfo& info : backends())
          if (info.available && info.device == device.value_or(info.device)) add(info.name);
      continue;
    }
    if (!backend.empty() && backend != "cpu")
      throw Misuse(
          fmt::format("--isa names an instruction set of the cpu backend, --backend is {}: give one of them", backend));
    for (const std::string& isa : flags.isa) add("cpu:" + isa);
  }
  return names;
}

std::vector<DType> dtypes_of(const std::vector<std::string>& names) {
  std::vector<DType> dtypes;
  for (const std::string& name : names) dtypes.push_back(parse_dtype(name));
  return dtypes;
}

int thread_count(int threads) {
  if (threads > 0) return threads;
  // The workspace grows by the same amount for each thread, and 0 stands for the library's own choice.
  alignas(64) static char there[64];
  const Tensor one = tensor(there, DType::f32, {1, 1, 1, 64});
  const Plan p = plan(describe(Inputs{one, one, one}, Options{}));
  const std::size_t single = p.workspace_bytes(1), each = p.workspace_bytes(2) - single;
  return each == 0 ? 1 : static_cast<int>((p.workspace_bytes(0) - single) / each) + 1;
}

void add_json_flag(CLI::App& command, std::string& path) {
  command.add_option("--json", path, "write JSON to FILE; '-': to stdout, in place of the table")->type_name("FILE");
}

}  // namespace tessera::cli
