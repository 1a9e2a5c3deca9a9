// `tessera bench forward`: the forward pass of each shape, the machine's ceilings and standard attention, all in one
// run and in turns.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/attended_pairs.hpp"
#include "cli/bench.hpp"
#include "cli/ceilings.hpp"
#include "cli/interleave.hpp"
#include "cli/report.hpp"
#include "cli/scene.hpp"
#include "cli/standard.hpp"
#include "tessera/attention.hpp"

namespace tessera::cli {
namespace {

struct ForwardFlags {
  ShapeFlags shape;
  RunFlags run;
  std::string json;
  double seconds = 1.5;
  bool no_standard = false;
};

// What is measured once for several rows.
struct Baseline {
  std::string why_not;  // empty: it runs
  std::size_t bytes = 0;
  Block o;
  std::optional<StandardAttention> standard;
  Contender contender{};
};
// A ceiling with its samples.
template <class Probe>
struct Measured {
  template <class... Args>
  explicit Measured(double (Probe::*measure)(), Args&&... args) : probe(args...) {
    contender.sample = [this, measure] { return (probe.*measure)(); };
  }
  Probe probe;
  Contender contender{};
  double best() const { return contender.samples.max(); }
};
using Ceiling = Measured<FmaProbe>;
using Dram = Measured<DramProbe>;

struct ForwardRow {
  std::shared_ptr<Scene> scene;
  std::shared_ptr<Baseline> baseline;  // nullptr: not asked for
  std::shared_ptr<Ceiling> ceiling;
  std::shared_ptr<Dram> dram;
  Plan plan;
  int threads = 1;
  Block workspace;
  double flops = 0;
  bool flops_exact = true;
  double difference = 0;  // from standard attention
  Contender contender{};

  void run() { plan.run(scene->inputs(), scene->outputs(), {{workspace.data(), workspace.bytes()}, nullptr, threads}); }
};

std::shared_ptr<Baseline> make_baseline(const Scene& scene, int threads) {
  auto made = std::make_shared<Baseline>();
  const Options options = options_of(scene.shape(), "");
  made->why_not = StandardAttention::why_not(scene.inputs(), options);
  made->bytes = StandardAttention::bytes(scene.inputs(), options);
  if (!made->why_not.empty()) return made;
  made->o = Block(scene.output_bytes());
  made->standard.emplace(scene.inputs(), scene.outputs_in(made->o), options, threads);
  StandardAttention* const standard = &*made->standard;
  made->contender.sample = [standard] { return seconds_of([&] { standard->run(); }); };
  made->contender.after = [standard] { standard->settle(); };
  return made;
}

struct Rows {
  std::vector<std::unique_ptr<ForwardRow>> rows;
  std::vector<Contender*> contenders;
  int errors = 0;
};

// Everything that is to be measured. A row that cannot be is told and left out; where that leaves none, it is an error.
Rows make_rows(const ForwardFlags& flags) {
  Rows made;
  std::map<std::pair<std::string, int>, std::shared_ptr<Ceiling>> ceilings;
  std::map<int, std::shared_ptr<Dram>> drams;
  const std::vector<Shape> all = shapes(flags.shape);
  const std::vector<std::string> names = backends_of(flags.run, DeviceType::cpu);  // of scenes on the cpu
  const bool alone = all.size() * names.size() * flags.run.threads.size() == 1;
  for (const Shape& shape : all) {
    if (shape.page_size > 0 && !flags.no_standard)
      throw Misuse("--page-size: standard attention has no pages, add --no-standard");
    std::shared_ptr<Scene> scene;
    Pairs pairs;
    for (const int asked : flags.run.threads) {
      const int threads = thread_count(asked);
      std::shared_ptr<Baseline> baseline;
      for (const std::string& name : names) try {
          Prefix prefix = prefix_of(shape);
          auto row = std::make_unique<ForwardRow>();
          row->plan = plan(describe(inputs_of(shape, anywhere(), prefix), options_of(shape, name)));
          if (!scene) scene = std::make_shared<Scene>(shape), pairs = attended_pairs(shape);
          if (!baseline && !flags.no_standard) baseline = make_baseline(*scene, threads);
          auto& ceiling = ceilings[{row->plan->isa, threads}];
          if (!ceiling) ceiling = std::make_shared<Ceiling>(&FmaProbe::gflops, row->plan->isa, threads);
          auto& dram = drams[threads];
          if (!dram) dram = std::make_shared<Dram>(&DramProbe::gbytes_per_s, threads);
          // The plan again, for where the tensors really lie.
          row->plan = plan(describe(scene->inputs(), scene->outputs(), options_of(shape, name)));
          row->scene = scene, row->baseline = baseline, row->ceiling = ceiling, row->dram = dram;
          row->threads = threads;
          row->workspace = Block(row->plan.workspace_bytes(threads));
          row->flops = 2 * pairs.count * static_cast<double>(shape.d + shape.dv), row->flops_exact = pairs.exact;
          row->contender.sample = [it = row.get()] { return seconds_of([&] { it->run(); }); };
          made.rows.push_back(std::move(row));
        } catch (const std::exception& error) {
          if (alone) throw;
          std::string line = error.what();
          std::replace(line.begin(), line.end(), '\n', ' ');
          fmt::print(stderr, "left out: {} {} {} {} {} t{}: {}\n", name.empty() ? "any backend" : name, text(shape),
                     tessera::name(shape.dtype), shape.mask_text, shape.score_text, threads, line);
          ++made.errors;
        }
    }
  }
  if (made.rows.empty()) throw Misuse("none of the rows can be measured");
  // Each baseline and ceiling once, beside the first row that needs it.
  const auto add = [&](Contender& c) {
    if (c.sample && std::find(made.contenders.begin(), made.contenders.end(), &c) == made.contenders.end())
      made.contenders.push_back(&c);
  };
  for (auto& row : made.rows) {
    add(row->contender);
    if (row->baseline) add(row->baseline->contender);
    add(row->ceiling->contender);
    add(row->dram->contender);
  }
  return made;
}

nlohmann::ordered_json json_of(const ForwardRow& row) {
  const Shape& s = row.scene->shape();
  const Samples& times = row.contender.samples;
  nlohmann::ordered_json shape{{"b", s.b},     {"sq", s.sq}, {"sk", s.sk}, {"hq", s.hq},
                               {"hkv", s.hkv}, {"d", s.d},   {"dv", s.dv}};
  if (s.page_size > 0) shape["page_size"] = s.page_size;
  if (!s.packed.empty()) {
    auto& packed = shape["packed"] = nlohmann::ordered_json::array();
    for (const SequenceLengths& l : s.packed) packed.push_back({l.q, l.k});
  }
  nlohmann::ordered_json bind = nlohmann::ordered_json::object();
  for (const BoundTensor& b : *s.bound) bind[b.name] = b.what;
  const double gflops = row.flops / times.min() * 1e-9, ceiling = row.ceiling->best();
  nlohmann::ordered_json json{
      {"backend", row.plan->backend},
      {"isa", row.plan->isa},
      {"dtype", tessera::name(s.dtype)},
      {"shape", shape},
      {"mask", s.mask_text},
      {"score", s.score_text},
      {"bind", bind},
      {"sinks", s.sinks ? nlohmann::ordered_json(s.sinks->front().what) : nlohmann::ordered_json()},
      {"q_offset", s.q_offset ? nlohmann::ordered_json(*s.q_offset) : nlohmann::ordered_json()},
      {"threads", row.threads},
      {"ms_min", times.min() * 1e3},
      {"ms_median", times.median() * 1e3},
      {"spread", times.spread()},
      {"repetitions", times.count()},
      {"flops", row.flops},
      {"flops_exact", row.flops_exact},
      {"gflops", gflops},
      {"ceiling_gflops", ceiling},
      {"share", gflops / ceiling},
      {"dram_gbytes_per_s", row.dram->best()},
      {"tensor_bytes", row.scene->bytes()},
      {"peak_bytes", row.workspace.bytes()},
  };
  const Baseline* const base = row.baseline.get();
  const auto or_null = [&](double value) {
    return base && base->standard ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  const double standard_s = base ? base->contender.samples.min() : 0;
  json["standard_ms"] = or_null(standard_s * 1e3);
  json["standard_ms_median"] = or_null(base ? base->contender.samples.median() * 1e3 : 0);
  json["ratio_to_standard"] = or_null(standard_s / times.min());
  json["standard_peak_bytes"] = base ? nlohmann::ordered_json(base->bytes) : nlohmann::ordered_json();
  json["difference_from_standard"] = or_null(row.difference);
  if (base && !base->standard) json["standard_left_out"] = base->why_not;
  return json;
}

int run_forward(const ForwardFlags& flags) {
  Answer answer(flags.json);
  Rows made = make_rows(flags);
  const bool waiting = isatty(STDERR_FILENO) == 1;
  if (waiting)
    fmt::print(stderr, "measuring {} rows, ceilings and baselines in turns, {:.0f} s or more ...",
               made.contenders.size(), flags.seconds * static_cast<double>(made.contenders.size()));
  interleave(made.contenders, flags.seconds);
  if (waiting) fmt::print(stderr, "\r\033[K");

  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  Table table({"backend", "dtype", "shape", "mask", "score", "threads", "min ms", "median", "spread", "GFLOP/s",
               "ceiling", "share", "standard ms", "ratio", "memory", "standard"});
  for (auto& row : made.rows) {
    if (row->baseline && row->baseline->standard) {
      // Rows of one scene share its output: what stands there must be this row's.
      row->run();
      row->difference = largest_difference(row->scene->outputs().o, row->scene->outputs_in(row->baseline->o).o);
    }
    const nlohmann::ordered_json json = json_of(*row);
    const auto number = [&](const char* key, int digits, double factor = 1) {
      return json[key].is_null() ? std::string("-") : fmt::format("{:.{}f}", json[key].get<double>() * factor, digits);
    };
    table.add({fmt::format("{}:{}", row->plan->backend, row->plan->isa), json["dtype"], text(row->scene->shape()),
               json["mask"], json["score"], fmt::format("{}", row->threads), number("ms_min", 3),
               number("ms_median", 3), number("spread", 1, 100) + " %", number("gflops", 1),
               number("ceiling_gflops", 1), number("share", 1, 100) + " %", number("standard_ms", 3),
               number("ratio_to_standard", 2), bytes_text(static_cast<double>(row->workspace.bytes())),
               row->baseline ? bytes_text(static_cast<double>(row->baseline->bytes)) : "-"});
    list.push_back(json);
  }
  answer.say(table.text());
  for (auto& row : made.rows)
    if (row->baseline && !row->baseline->standard)
      answer.say(fmt::format("standard attention was left out for {}: {}\n", text(row->scene->shape()),
                             row->baseline->why_not));
  for (auto& row : made.rows)
    if (!row->flops_exact)
      answer.say(fmt::format("work is estimated for {}, {}: too many pairs to count one by one\n",
                             text(row->scene->shape()), row->scene->shape().mask_text));
  for (auto& [threads, gbs] : [&] {
         std::map<int, double> all;
         for (auto& row : made.rows) all[row->threads] = row->dram->best();
         return all;
       }())
    answer.say(fmt::format("DRAM read, {} thread{}: {:.1f} GB/s\n", threads, threads == 1 ? "" : "s", gbs));
  answer.write(list);
  return made.errors == 0 ? exit_done : exit_failed;
}

constexpr const char* forward_footer = R"(
GFLOP/s count unmasked work only, 2 (d + dv) for each attended (query, key) pair, at the fastest repetition. The ceiling
is the fp32 FMA peak of the instruction set that ran, on as many threads, measured in the same run on random data. All
rows, ceilings and baselines take turns; each gets --seconds. Spread: between the quartiles, of the median.
Standard attention: for each head sgemm, a vectorised softmax, sgemm on OpenBLAS, on as many threads, 16-bit inputs
widened first; ratio: its fastest time over ours. Memory: bytes that each allocates beside Q, K, V and O (Tessera: its
workspace; standard: scores and widened copies, without OpenBLAS's own buffers).
Exit code 1: some of several rows could not be measured, each told in a line on stderr.)";

}  // namespace

void add_bench_forward(CLI::App& bench, Action& chosen) {
  CLI::App* command = bench.add_subcommand("forward", "the forward pass of each combination of the flags");
  auto flags = std::make_shared<ForwardFlags>();
  add_shape_flags(*command, flags->shape, Values::list);
  add_threads_flag(*command, flags->run, Values::list, 1);
  add_backend_flags(*command, flags->run, Values::list);
  command->add_option("--seconds", flags->seconds, "of repetitions for each row, ceiling and baseline (1.5)")
      ->type_name("")
      ->check(CLI::Range(0.001, 3600.0).description(""))
      ->group("Run");
  command->add_flag("--no-standard", flags->no_standard, "leave standard attention out")->group("Run");
  add_json_flag(*command, flags->json);
  command->footer(forward_footer + 1);
  command->callback([flags, &chosen] { chosen = [flags] { return run_forward(*flags); }; });
}

}  // namespace tessera::cli
