// `tessera bench mods`: what masks and score changes cost beside plain causal attention of the same shape.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/attended_pairs.hpp"
#include "cli/bench.hpp"
#include "cli/flag_values.hpp"
#include "cli/interleave.hpp"
#include "cli/report.hpp"
#include "cli/scene.hpp"
#include "tessera/attention.hpp"

namespace tessera::cli {
namespace {

struct ModsFlags {
  std::vector<std::int64_t> sq{4096}, d{64, 128};
  std::vector<std::string> dtype{"f32"};
  RunFlags run;
  std::string json;
  double seconds = 1.5;
};

struct Variant {
  const char *name, *mask, *score, *bind;  // bind: with {} for the number of tokens; empty: none
};
constexpr Variant variants[] = {
    {"causal", "causal", "s", ""},
    {"alibi", "causal", "alibi(slope)", "slope=random:1"},
    {"table", "causal", "s + table[h][k - q + 512]", "table=random:1,1024"},
    {"softcap", "causal", "softcap(30)", ""},
    {"bias_tensor", "causal", "bias_tensor(bias)", "bias=random:{0},{0}"},
    {"eight operations", "causal", "(s * 0.5 + table[h][k - q + 512]) / (abs(s) + 1.0) - max(s, 0.0) * 0.125",
     "table=random:1,1024"},
    {"window", "causal & window(1023, 0)", "s", ""},
    {"16 documents", "causal & documents(ids)", "s", "ids=documents:{0},16"},
};

struct ModsRow {
  const Variant* variant = nullptr;
  Shape shape;
  Inputs inputs;
  Plan plan;
  Block workspace;
  Pairs pairs;
  Contender contender{};

  double flops() const { return 2 * pairs.count * static_cast<double>(shape.d + shape.dv); }
  double gflops() const { return flops() / contender.samples.min() * 1e-9; }
};

std::unique_ptr<ModsRow> make_row(const Variant& variant, const Scene& scene, const std::string& backend, int threads) {
  auto row = std::make_unique<ModsRow>();
  row->variant = &variant;
  Shape& s = row->shape = scene.shape();
  s.mask_text = variant.mask, s.mask = parse_mask(s.mask_text);
  s.score_text = variant.score, s.score = parse_score(s.score_text);
  if (*variant.bind) s.bound = bound_tensors({fmt::format(fmt::runtime(variant.bind), s.sq)});
  row->inputs = scene.inputs(), row->inputs.bind = bindings_of(s);
  row->plan = plan(describe(row->inputs, scene.outputs(), options_of(s, backend)));
  row->workspace = Block(row->plan.workspace_bytes(threads));
  row->pairs = attended_pairs(s);
  row->contender.sample = [it = row.get(), out = scene.outputs(), threads] {
    return seconds_of([&] {
      it->plan.run(it->inputs, out, {{it->workspace.data(), it->workspace.bytes()}, nullptr, threads});
    });
  };
  return row;
}

std::vector<Shape> shapes_of(const ModsFlags& flags) {
  ShapeFlags asked;
  asked.sq = flags.sq, asked.d = flags.d, asked.dtype = flags.dtype, asked.mask = {"causal"};
  std::vector<Shape> all = shapes(asked);
  for (const Shape& s : all)
    if (s.sq < 16)
      throw Misuse(fmt::format("--sq {}: at least 16 are needed, a token for each of the 16 documents", s.sq));
  return all;
}

int run_mods(const ModsFlags& flags) {
  Answer answer(flags.json);
  const std::vector<Shape> all = shapes_of(flags);
  const std::vector<std::string> names = backends_of(flags.run, DeviceType::cpu);  // of scenes on the cpu
  const bool waiting = isatty(STDERR_FILENO) == 1;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  Table table({"backend", "dtype", "shape", "", "mask", "score", "threads", "min ms", "median", "spread", "GFLOP/s",
               "of causal"});
  for (const Shape& shape : all)
    for (const std::string& name : names)
      for (const int asked : flags.run.threads) {
        const int threads = thread_count(asked);
        const Scene scene(shape);
        std::vector<std::unique_ptr<ModsRow>> rows;
        std::vector<Contender*> contenders;
        for (const Variant& variant : variants) {
          rows.push_back(make_row(variant, scene, name, threads));
          contenders.push_back(&rows.back()->contender);
        }
        if (waiting)
          fmt::print(stderr, "measuring {} in turns, {:.0f} s or more ...", text(shape),
                     flags.seconds * static_cast<double>(contenders.size()));
        interleave(contenders, flags.seconds);
        if (waiting) fmt::print(stderr, "\r\033[K");
        for (const auto& row : rows) {
          const Samples& times = row->contender.samples;
          const double relative = row->gflops() / rows[0]->gflops();
          table.add({fmt::format("{}:{}", row->plan->backend, row->plan->isa), std::string(tessera::name(shape.dtype)),
                     text(shape), row->variant->name, row->variant->mask, row->variant->score,
                     fmt::format("{}", threads), fmt::format("{:.3f}", times.min() * 1e3),
                     fmt::format("{:.3f}", times.median() * 1e3), fmt::format("{:.1f} %", times.spread() * 100),
                     fmt::format("{:.1f}", row->gflops()), fmt::format("{:.1f} %", relative * 100)});
          list.push_back({{"name", row->variant->name},
                          {"backend", row->plan->backend},
                          {"isa", row->plan->isa},
                          {"dtype", tessera::name(shape.dtype)},
                          {"sq", shape.sq},
                          {"d", shape.d},
                          {"mask", row->variant->mask},
                          {"score", row->variant->score},
                          {"threads", threads},
                          {"ms_min", times.min() * 1e3},
                          {"ms_median", times.median() * 1e3},
                          {"spread", times.spread()},
                          {"repetitions", times.count()},
                          {"flops", row->flops()},
                          {"flops_exact", row->pairs.exact},
                          {"gflops", row->gflops()},
                          {"relative_to_causal", relative}});
        }
      }
  answer.say(table.text());
  answer.write(list);
  return exit_done;
}

constexpr const char* mods_footer = R"(
One head, as many keys as queries. GFLOP/s count unmasked work only, 2 (d + dv) for each attended (query, key) pair, at
the fastest repetition; of causal: that rate over the rate of plain causal attention in the same turns. What a mask
reads to find its tiles is part of its time. Tensors are made up, the same in every run.)";

}  // namespace

void add_bench_mods(CLI::App& bench, Action& chosen) {
  CLI::App* command =
      bench.add_subcommand("mods", "masks and score changes beside plain causal attention of the same shape");
  auto flags = std::make_shared<ModsFlags>();
  add_values(*command, "--sq", flags->sq, "queries and keys (4096)", Values::list)
      ->check(whole_numbers())
      ->group("Shape");
  add_values(*command, "--d", flags->d, "head dim of Q, K and V (64,128)", Values::list)
      ->check(whole_numbers())
      ->group("Shape");
  add_values(*command, "--dtype", flags->dtype, "f32, bf16 or f16 (f32)", Values::list)->group("Shape");
  add_threads_flag(*command, flags->run, Values::list, 1);
  add_backend_flags(*command, flags->run, Values::list);
  command->add_option("--seconds", flags->seconds, "of repetitions for each row (1.5)")
      ->type_name("")
      ->check(CLI::Range(0.001, 3600.0).description(""))
      ->group("Run");
  add_json_flag(*command, flags->json);
  command->footer(mods_footer + 1);
  command->callback([flags, &chosen] { chosen = [flags] { return run_mods(*flags); }; });
}

}  // namespace tessera::cli
