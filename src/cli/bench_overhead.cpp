// `tessera bench overhead`: what a call costs beyond its arithmetic, for a problem small enough to show it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/attended_pairs.hpp"
#include "cli/bench.hpp"
#include "cli/ceilings.hpp"
#include "cli/interleave.hpp"
#include "cli/report.hpp"
#include "cli/scene.hpp"
#include "tessera/attention.hpp"

namespace tessera::cli {
namespace {

struct OverheadFlags {
  ShapeFlags shape;
  RunFlags run;
  std::string json;
  double seconds = 1.5;
};

constexpr std::int64_t repeated = 9;   // copies in the larger problem
constexpr int calls_per_sample = 100;  // a clock reading costs some 30 ns

template <class Call>
Contender contender(Call call, int calls) {
  return {[=] {
    return seconds_of([&] {
             for (int i = 0; i < calls; ++i) call();
           }) /
           calls;
  }};
}

int run_overhead(const OverheadFlags& flags) {
  Answer answer(flags.json);
  const std::vector<Shape> all = shapes(flags.shape);
  const std::vector<std::string> names = backends_of(flags.run, DeviceType::cpu);  // of scenes on the cpu
  if (all.size() != 1 || names.size() != 1) throw Misuse("one shape and one backend at a time");
  if (!all[0].packed.empty()) throw Misuse("--packed: the copies that this command adds are sequences of one shape");
  if (all[0].page_size > 0) throw Misuse("--page-size: the copies that this command adds are sequences of one buffer");
  const int threads = thread_count(flags.run.threads[0]);
  const Shape& one = all[0];
  Shape many = one;
  many.b = one.b * repeated;

  // The copies read the same Q, K and V, so that the caches hold as much as for one.
  Scene scene(one), big(many);
  Inputs copies = scene.inputs();
  for (Tensor* t : {&copies.q, &copies.k, &copies.v}) {
    if (one.b != 1) throw Misuse(fmt::format("--b {}: this command takes one sequence", one.b));
    t->shape[0] = repeated, t->stride[0] = 0;
  }
  const Options options = options_of(one, names[0]);
  const Plan small_plan = plan(describe(scene.inputs(), scene.outputs(), options));
  const Plan big_plan = plan(describe(copies, big.outputs(), options));
  const Exec exec{{}, nullptr, threads};

  Contender call = contender([&] { attention(scene.inputs(), scene.outputs(), options, exec); }, calls_per_sample);
  Contender planned = contender([&] { small_plan.run(scene.inputs(), scene.outputs(), exec); }, calls_per_sample);
  Contender larger = contender([&] { big_plan.run(copies, big.outputs(), exec); }, calls_per_sample / repeated);
  FmaProbe probe(small_plan->isa, threads);
  Contender ceiling{[&] { return probe.gflops(); }};
  interleave(std::array{&call, &planned, &larger, &ceiling}, flags.seconds);

  const double us = 1e6, call_us = call.samples.min() * us, plan_us = planned.samples.min() * us;
  const double arithmetic_us = (larger.samples.min() * us - plan_us) / (repeated - 1);
  const double flops = 2 * attended_pairs(one).count * static_cast<double>(one.d + one.dv);
  const double floor_us = flops / ceiling.samples.max() * 1e-3;
  answer.say(fmt::format("{} {} {} {}, {}:{}, {} thread{}; fastest of {:.1f} s each, in turns\n", text(one),
                         name(one.dtype), one.mask_text, one.score_text, small_plan->backend, small_plan->isa, threads,
                         threads == 1 ? "" : "s", flags.seconds));
  Table table({"", "us", "median us"});
  const auto line = [&](const char* what, double least, double median) {
    table.add({what, fmt::format("{:.3f}", least), median > 0 ? fmt::format("{:.3f}", median) : ""});
  };
  line("attention()", call_us, call.samples.median() * us);
  line("plan.run()", plan_us, planned.samples.median() * us);
  line("arithmetic: each further copy", arithmetic_us, 0);
  line("arithmetic at the FMA ceiling", floor_us, 0);
  line("attention() over plan.run()", call_us - plan_us, 0);
  line("attention() over its arithmetic", call_us - arithmetic_us, 0);
  answer.say(table.text());
  answer.write({{"backend", small_plan->backend},
                {"isa", small_plan->isa},
                {"dtype", name(one.dtype)},
                {"mask", one.mask_text},
                {"score", one.score_text},
                {"threads", threads},
                {"attention_us", call_us},
                {"plan_run_us", plan_us},
                {"arithmetic_us", arithmetic_us},
                {"ceiling_us", floor_us},
                {"over_plan_run_us", call_us - plan_us},
                {"over_arithmetic_us", call_us - arithmetic_us}});
  return exit_done;
}

}  // namespace

void add_bench_overhead(CLI::App& bench, Action& chosen) {
  CLI::App* command =
      bench.add_subcommand("overhead", "what a small call costs beyond its arithmetic (one head, 128 x 64)");
  auto flags = std::make_shared<OverheadFlags>();
  flags->shape.sq = {128};
  add_shape_flags(*command, flags->shape, Values::one);
  add_threads_flag(*command, flags->run, Values::one, 1);
  add_backend_flags(*command, flags->run, Values::one);
  command->add_option("--seconds", flags->seconds, "of repetitions for each figure (1.5)")
      ->type_name("")
      ->check(CLI::Range(0.001, 3600.0).description(""))
      ->group("Run");
  add_json_flag(*command, flags->json);
  command->footer(
      "The arithmetic is what a further copy of the sequence adds to one call: the time of nine copies less that of "
      "one,\n"
      "over eight. All copies read the same Q, K and V.");
  command->callback([flags, &chosen] { chosen = [flags] { return run_overhead(*flags); }; });
}

}  // namespace tessera::cli
