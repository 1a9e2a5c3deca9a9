// tessera demo: what the library does, on real input, on one page.
#include "cli/demo.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/commands.hpp"
#include "cli/demo_page.hpp"

namespace tessera::cli {
namespace {

struct Flags {
  demo::Settings settings;
  std::string json;  // a file, or - for stdout; empty: none
};

void write_json(const nlohmann::ordered_json& json, const std::string& path) {
  const std::string text = json.dump(2) + "\n";
  if (path == "-") {
    std::fputs(text.c_str(), stdout);
    return;
  }
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw Misuse("cannot write " + path);
}

int run(const Flags& flags) {
  const demo::Settings& settings = flags.settings;
  const auto begin = std::chrono::steady_clock::now();
  const demo::Page page(flags.json == "-");
  nlohmann::ordered_json json;
  int checks = 0, failed = 0;
  const auto count = [&](bool passed) { ++checks, failed += !passed; };

  const demo::Data data = demo::load(settings.data);
  const Tensor probe = tensor(data.layers[0].q.data(), {1, data.count(), data.heads, data.dim});
  const Plan plan = tessera::plan(describe({probe, probe, probe}, {.backend = settings.backend}));
  const std::string backend = plan->backend + ":" + plan->isa;
  json["version"] = version(), json["backend"] = backend, json["threads"] = settings.threads;
  page.opening(backend, settings.threads);

  page.layers_heading(data);
  json["layers"] = nlohmann::ordered_json::array();
  for (const demo::Layer& layer : data.layers)
    for (const DType dtype : {f32, bf16, f16}) {
      const demo::LayerResult result = demo::compare(data, layer, dtype, settings);
      page.layer(result);
      json["layers"].push_back(json_of(result));
      count(result.passed);
    }

  const demo::Picture picture = demo::look(data, settings);
  page.picture(data, picture);
  json["picture"] = json_of(data, picture);
  count(picture.passed);

  const demo::LongHead head = demo::stream(settings);
  page.long_head(head, settings.threads);
  json["long_head"] = json_of(head);
  count(head.passed);

  const demo::FourNumbers numbers = demo::four_numbers(settings);
  page.four_numbers(numbers);
  json["four_numbers"] = json_of(numbers);
  count(numbers.passed);

  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  page.closing(checks, failed, seconds);
  json["checks"] = checks, json["failed"] = failed, json["passed"] = failed == 0, json["seconds"] = seconds;
  if (!flags.json.empty()) write_json(json, flags.json);
  return failed == 0 ? exit_done : exit_failed;
}

}  // namespace

void add_demo(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<Flags>();
  flags->settings.data = TESSERA_DEMO_DATA;
  flags->settings.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 1024u));
  CLI::App* command = app.add_subcommand("demo", "Attention of a real model, checked against fp64, on one page");
  command->add_option("--data", flags->settings.data, "Folder with minilm.safetensors and minilm.tokens.txt")
      ->capture_default_str();
  command->add_option("--backend", flags->settings.backend, "cpu, cpu:avx2, ...; default: the best that can");
  command->add_option("--threads", flags->settings.threads, "Threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--layer", flags->settings.layer, "Layer of the picture; default: the clearest pattern")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--head", flags->settings.head, "Head of the picture; default: the clearest pattern")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--long", flags->settings.long_tokens, "Tokens of the long head")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--json", flags->json, "Write the results to a file, or - for stdout");
  command->callback([flags, &chosen] { chosen = [flags] { return run(*flags); }; });
}

}  // namespace tessera::cli
