// tessera demo: what the library does, on real input, on one page.
#include "cli/demo.hpp"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/demo_page.hpp"
#include "cli/interleave.hpp"
#include "cli/report.hpp"
#include "cli/run_flags.hpp"

namespace tessera::cli {
namespace {

struct DemoFlags {
  std::string data = TESSERA_DEMO_DATA;
  RunFlags run;
  int layer = -1, head = -1;
  std::int64_t first_token = 0, long_tokens = 32768;
  std::string json;
};

demo::Settings settings_of(const DemoFlags& flags) {
  const std::vector<std::string> names = backends_of(flags.run);
  if (names.size() != 1) throw Misuse("the demo runs one backend: name it, or leave --backend out for the best");
  return {flags.data,        names[0],         thread_count(flags.run.threads[0]), flags.layer, flags.head,
          flags.first_token, flags.long_tokens};
}

int run_demo(const DemoFlags& flags) {
  const double begin_s = now_s();
  const demo::Settings settings = settings_of(flags);
  Answer answer(flags.json);
  const demo::Page page(answer);
  nlohmann::ordered_json json;
  int checks = 0, failed = 0;
  const auto count = [&](bool passed) { ++checks, failed += !passed; };

  const demo::Data data = demo::load(settings.data);
  const Tensor probe = tensor(data.layers[0].q.data(), {1, data.count(), data.heads, data.dim});
  const Plan plan = tessera::plan(describe({probe, probe, probe}, {.backend = settings.backend}));
  const std::string backend = plan->backend + ":" + plan->isa;
  json["version"] = version(), json["backend"] = backend, json["threads"] = settings.threads;
  // Before anything is said: it refuses a head that is not there.
  const demo::Picture picture = demo::look(data, settings);
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

  const double seconds = now_s() - begin_s;
  page.closing(checks, failed, seconds);
  json["checks"] = checks, json["failed"] = failed, json["passed"] = failed == 0, json["seconds"] = seconds;
  answer.write(json);
  return failed == 0 ? exit_done : exit_failed;
}

}  // namespace

void add_demo(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<DemoFlags>();
  CLI::App* command = app.add_subcommand("demo", "attention of a real model, checked against fp64, on one page");
  command->add_option("--data", flags->data, "folder with minilm.safetensors and minilm.tokens.txt")
      ->capture_default_str();
  command->add_option("--layer", flags->layer, "layer of the picture; otherwise that of the clearest pattern")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--head", flags->head, "head of the picture; otherwise that of the clearest pattern")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--from", flags->first_token, "first token of the picture")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--long", flags->long_tokens, "tokens of the long head")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->capture_default_str();
  add_threads_flag(*command, flags->run, Values::one, 0);
  add_backend_flags(*command, flags->run, Values::one);
  add_json_flag(*command, flags->json);
  command->callback([flags, &chosen] { chosen = [flags] { return run_demo(*flags); }; });
}

}  // namespace tessera::cli
