// The subcommands of `tessera bench`.
#pragma once
#include "cli/commands.hpp"

namespace tessera::cli {

void add_bench_forward(CLI::App& bench, Action& chosen);
void add_bench_overhead(CLI::App& bench, Action& chosen);
void add_bench_mods(CLI::App& bench, Action& chosen);
void add_bench_maps(CLI::App& bench, Action& chosen);

}  // namespace tessera::cli
