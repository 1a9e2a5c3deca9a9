// `tessera`: reads the command line, runs one command, and turns what goes wrong into one line and an exit code.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "tessera/attention.hpp"

namespace {

using namespace tessera::cli;

// The commands that were named, outermost first: the help of the last is the one to point at.
std::vector<const CLI::App*> named(const CLI::App& app) {
  std::vector<const CLI::App*> path{&app};
  while (!path.back()->get_subcommands().empty()) path.push_back(path.back()->get_subcommands().front());
  return path;
}

std::string command_path(const CLI::App& app) {
  std::string text;
  for (const CLI::App* command : named(app)) text += (text.empty() ? "" : " ") + command->get_name();
  return text;
}

// CLI11 misses a command before it looks at what stands in its place: name that.
std::string explained(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& at = *named(app).back();
  const std::vector<std::string> rest = at.remaining();
  if (error.get_name() != "RequiredError" || rest.empty()) return error.what();
  std::string names;
  for (const CLI::App* command : at.get_subcommands([](const CLI::App*) { return true; }))
    names += (names.empty() ? "" : ", ") + command->get_name();
  return fmt::format("there is no '{}' here; there are: {}", rest.front(), names);
}

int misused(const std::string& where, std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  fmt::print(stderr, "{}: {}\n", where, text);
  return exit_misused;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Exact attention: what it is on this machine, whether it is right, how fast it is, and why.", "tessera");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string(tessera::version()));
  app.footer(
      "Every command has --help. Exit codes: 0 done, 1 something is wrong, 2 flags or files that make no sense.");
  Action chosen;
  add_info(app, chosen);
  add_demo(app, chosen);
  add_check(app, chosen);
  add_bench(app, chosen);
  add_explain(app, chosen);
  add_compile(app, chosen);
  add_cache(app, chosen);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const std::string where = command_path(app);
    return misused(where, fmt::format("{} (see {} --help)", explained(app, error), where));
  }
  const std::string where = command_path(app);
  try {
    return chosen();
  } catch (const tessera::Error& error) {
    return misused(where, error.what());
  } catch (const Misuse& error) {
    return misused(where, error.what());
  } catch (const std::bad_alloc&) {
    return misused(where, "there is not enough memory for this shape");
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", where, error.what());
    return exit_failed;
  }
}
