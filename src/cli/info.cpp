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

namespace tessera::cli {
namespace {

constexpr const char* variables[] = {"TESSERA_THREADS", "TESSERA_CPU_ISA"};

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
  for (const char* name : variables)
    answer.say(fmt::format("{:<16} {}\n", name,
                           environment[name].is_null() ? "not set" : environment[name].get<std::string>()));
  answer.write({{"version", version()},
                {"backends", all},
                {"processor", processor},
                {"cores", machine.cores},
                {"threads", threads},
                {"caches", caches},
                {"memory_bytes", machine.memory_bytes},
                {"baseline", StandardAttention::library()},
                {"environment", environment}});
  return exit_done;
}

}  // namespace

void add_info(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("info", "backends and instruction sets, what is missing, cores and caches");
  auto json = std::make_shared<std::string>();
  add_json_flag(*command, *json);
  command->callback([json, &chosen] { chosen = [json] { return run(*json); }; });
}

}  // namespace tessera::cli
