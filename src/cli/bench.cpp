#include "cli/bench.hpp"

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_bench(CLI::App& app, Action& chosen) {
  CLI::App* bench = app.add_subcommand("bench", "measure, beside the machine's ceilings and standard attention");
  bench->require_subcommand(1);
  add_bench_forward(*bench, chosen);
  add_bench_overhead(*bench, chosen);
  add_bench_mods(*bench, chosen);
  add_bench_maps(*bench, chosen);
}

}  // namespace tessera::cli
