// `tessera info`: what this build is, and what it can use here.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/machine.hpp"
#include "cli/report.hpp"
#include "cli/run_flags.hpp"
#include "cli/standard.hpp"
#include "tessera/attention.hpp"
#include "tessera/kernels.hpp"

namespace tessera::cli {
namespace {

constexpr const char* variables[] = {"TESSERA_THREADS", "TESSERA_CPU_ISA",   "TESSERA_CUDA_DRIVER", "TESSERA_NVRTC",
                                     "TESSERA_PACK",    "TESSERA_CACHE_DIR", "TESSERA_DUMP"};

// Lines for people; `json` gets the same.
std::string gpus_text(const GpuReport& gpu, nlohmann::ordered_json& json) {
  std::string text;
  nlohmann::ordered_json gpus = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < gpu.gpus.size(); ++i) {
    const GpuInfo& g = gpu.gpus[i];
    text +=
        fmt::format("cuda:{:<6} {}, sm_{}, {} multiprocessors, {} of shared memory for a block, L2 {}, {:.2f} TB/s\n",
                    i, g.name, g.arch, g.sms, bytes_text(static_cast<double>(g.smem_block_bytes)),
                    bytes_text(static_cast<double>(g.l2_bytes)), g.dram_bytes_s * 1e-12);
    gpus.push_back({{"name", g.name},
                    {"arch", g.arch},
                    {"sms", g.sms},
                    {"smem_block_bytes", g.smem_block_bytes},
                    {"l2_bytes", g.l2_bytes},
                    {"dram_bytes_per_s", g.dram_bytes_s},
                    {"tensor_flops", g.tensor_flops}});
  }
  const KernelCompiler& c = gpu.compiler;
  text += gpu.missing.empty() ? fmt::format("driver     CUDA {}, {}\n", gpu.driver_version, gpu.driver)
                              : fmt::format("GPU        none: {}\n", gpu.missing);
  std::string archs;
  for (const int arch : c.archs) archs += fmt::format("{}sm_{}", archs.empty() ? "" : ", ", arch);
  text += c.missing.empty() ? fmt::format("NVRTC      {}, {} ({}), for {}\n", c.version, c.path, c.found, archs)
                            : fmt::format("NVRTC      none: {}\n", c.missing);
  text += fmt::format("kernels    {}\n", gpu.cache.empty() ? "are kept in memory only" : "are kept in " + gpu.cache);
  for (const std::string& pack : gpu.packs) text += fmt::format("pack       {}\n", pack);
  for (const std::string& note : gpu.notes) text += fmt::format("note       {}\n", note);
  json = {{"gpus", gpus},
          {"missing", gpu.missing},
          {"driver", gpu.driver},
          {"driver_version", gpu.driver_version},
          {"nvrtc",
           {{"path", c.path}, {"found", c.found}, {"version", c.version}, {"archs", c.archs}, {"missing", c.missing}}},
          {"cache", gpu.cache},
          {"packs", gpu.packs},
          {"notes", gpu.notes}};
  return text;
}

std::string cache_text(const std::vector<Cache>& caches) {
  std::string text;
  for (const Cache& cache : caches) {
    const char kind = cache.type == "Data" ? 'd' : cache.type == "Instruction" ? 'i' : ' ';
    std::string name = fmt::format("L{}{}", cache.level, kind);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name.substr(0, name.find(' ')),
                        bytes_text(static_cast<double>(cache.bytes)));
  }
  return text.empty() ? "unknown" : text;
}

int run(const std::string& json_path) {
  Answer answer(json_path);
  const Machine machine = this_machine();
  const std::vector<BackendInfo> list = backends();
  const auto first = std::find_if(list.begin(), list.end(), [](const BackendInfo& b) { return b.available; });
  const int threads = thread_count(0);

  answer.say(fmt::format("tessera {}\n\n", version()));
  Table table({"backend", "", "what it is, or what is missing"});
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const BackendInfo& b : list) {
    table.add({b.name, b.available ? first->name == b.name ? "default" : "yes" : "no", b.detail});
    all.push_back({{"name", b.name}, {"available", b.available}, {"detail", b.detail}});
  }
  answer.say(table.text() + "\n");

  nlohmann::ordered_json environment = nlohmann::ordered_json::object(), caches = nlohmann::ordered_json::array();
  for (const char* name : variables) {
    const char* const value = std::getenv(name);
    environment[name] = value ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  }
  for (const Cache& cache : machine.caches)
    caches.push_back(
        {{"level", cache.level}, {"type", cache.type}, {"bytes", cache.bytes}, {"shared_by", cache.shared}});
  const std::string processor = machine.processor.empty() ? "unknown" : machine.processor;
  answer.say(
      fmt::format("processor  {}\ncores      {} that this process may use; {} threads by default\ncaches     {}\n"
                  "memory     {}\nbaseline   {}\n",
                  processor, machine.cores, threads, cache_text(machine.caches), bytes_text(machine.memory_bytes),
                  StandardAttention::library()));
  nlohmann::ordered_json gpu;
  answer.say(gpus_text(gpu_report(), gpu) + "\n");
  for (const char* name : variables)
    answer.say(fmt::format("{:<19} {}\n", name,
                           environment[name].is_null() ? "not set" : environment[name].get<std::string>()));
  answer.write({{"version", version()},
                {"backends", all},
                {"processor", processor},
                {"cores", machine.cores},
                {"threads", threads},
                {"caches", caches},
                {"memory_bytes", machine.memory_bytes},
                {"baseline", StandardAttention::library()},
                {"gpu", gpu},
                {"environment", environment}});
  return exit_done;
}

}  // namespace

void add_info(CLI::App& app, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("info", "backends, GPUs and instruction sets, what is missing, cores and caches");
  auto json = std::make_shared<std::string>();
  add_json_flag(*command, *json);
  command->callback([json, &chosen] { chosen = [json] { return run(*json); }; });
}

}  // namespace tessera::cli
