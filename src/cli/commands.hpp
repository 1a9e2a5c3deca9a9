// The subcommands: each adds itself and its flags to the app, and leaves what it does in `chosen`, which main() runs
// once every flag has been read.
#pragma once
#include <functional>
#include <stdexcept>
#include <string>

namespace CLI {
class App;
}

namespace tessera::cli {

// Exit codes: 0 done, 1 something was found wrong (a failed check, a row that could not be measured), 2 misuse.
inline constexpr int exit_done = 0, exit_failed = 1, exit_misused = 2;

// What a command does; returns the exit code. tessera::Error and Misuse end it with one line on stderr and code 2.
using Action = std::function<int()>;

// Flags or files that make no sense. The text is one line.
struct Misuse : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void add_demo(CLI::App& app, Action& chosen);
void add_info(CLI::App& app, Action& chosen);
void add_check(CLI::App& app, Action& chosen);
void add_bench(CLI::App& app, Action& chosen);
void add_explain(CLI::App& app, Action& chosen);
void add_cache(CLI::App& app, Action& chosen);
void add_compile(CLI::App& app, Action& chosen);

}  // namespace tessera::cli
