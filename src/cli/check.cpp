// `tessera check`: the conformance suite in a user's hands.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/interleave.hpp"
#include "cli/report.hpp"
#include "cli/run_flags.hpp"
#include "conformance/runner.hpp"

namespace tessera::cli {
namespace {

struct Flags {
  RunFlags run;
  std::vector<std::string> dtype{"f32", "bf16", "f16"};
  std::int64_t cases = 200, variants = 1, max_failures = 10;
  bool no_named = false;
  std::uint64_t seed = 1;
  std::string case_line, json;
  double seconds = 0;
};

// One line that is drawn over itself, on a terminal only.
class Bar {
 public:
  Bar() : shown_(isatty(STDERR_FILENO) == 1) {}
  ~Bar() { clear(); }
  Bar(const Bar&) = delete;
  Bar& operator=(const Bar&) = delete;

  void draw(const conformance::Progress& p) {
    if (!shown_) return;
    const double now = now_s();
    if (now - last_s_ < 0.05 && p.done < p.total) return;
    last_s_ = now;
    constexpr std::int64_t width = 30;
    const std::int64_t filled = p.total > 0 ? std::clamp<std::int64_t>(width * p.done / p.total, 0, width) : 0;
    fmt::print(stderr, "\r\033[K{} [{:#<{}}{:.<{}}] {}/{} {}{}", p.subject, "", filled, "", width - filled, p.done,
               p.total, p.doing.substr(0, 40), p.failures > 0 ? fmt::format(", {} failed", p.failures) : "");
    std::fflush(stderr);
  }
  void clear() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  bool shown_;
  double last_s_ = 0;
};

// The suite's subjects are backends that can run: "all" is every one, a name is that one, nothing is every one as well,
// because a check should not pass over what a program may choose.
std::vector<conformance::Subject> subjects_of(const RunFlags& flags) {
  if (flags.backend.empty() && flags.isa.empty()) return conformance::subjects();
  std::vector<conformance::Subject> chosen;
  for (const std::string& name : backends_of(flags)) chosen.push_back(conformance::subject(name));
  return chosen;
}

std::string quoted(const std::string& text) {
  std::string quoted = "'";
  for (char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

int run(const Flags& flags) {
  Answer answer(flags.json);
  conformance::RunOptions options;
  options.cases = flags.cases, options.seed = flags.seed, options.case_line = flags.case_line;
  options.variants = flags.variants, options.named = !flags.no_named;
  options.dtypes = dtypes_of(flags.dtype), options.max_failures = flags.max_failures, options.seconds = flags.seconds;
  const std::vector<conformance::Subject> subjects = subjects_of(flags.run);

  conformance::Report report;
  {
    Bar bar;
    report = conformance::run(subjects, options, [&](const conformance::Progress& p) { bar.draw(p); });
  }

  Table table({"backend", "dtype", "cases", "failed", "worst error / allowed", "s"});
  nlohmann::ordered_json tallies = nlohmann::ordered_json::array(), failures = nlohmann::ordered_json::array();
  for (const conformance::Tally& t : report.tallies) {
    table.add({t.subject, std::string(name(t.dtype)), fmt::format("{}", t.cases), fmt::format("{}", t.failures),
               fmt::format("{:.3f}", t.worst), fmt::format("{:.1f}", t.seconds)});
    tallies.push_back({{"backend", t.subject},
                       {"dtype", name(t.dtype)},
                       {"cases", t.cases},
                       {"failures", t.failures},
                       {"worst", t.worst},
                       {"seconds", t.seconds}});
  }
  for (const conformance::Failure& f : report.failures) {
    const std::string replay = fmt::format("tessera check --backend {} --case {}", f.subject, quoted(f.line));
    failures.push_back({{"backend", f.subject},
                        {"name", f.name},
                        {"case", f.line},
                        {"original", f.original},
                        {"text", f.text},
                        {"replay", replay}});
    answer.say(fmt::format("FAILED {} {}: {}\n  replay: {}\n", f.subject, f.name, f.text, replay));
  }
  answer.say(table.text());
  answer.say(fmt::format("{} cases, {} failed, seed {}, {:.1f} s{}\n", report.cases, report.failures.size(), flags.seed,
                         report.seconds, report.out_of_time ? ": stopped by --seconds" : ""));
  if (report.cases == 0) answer.say("no case was run\n");
  answer.write({{"passed", report.passed()},
                {"cases", report.cases},
                {"seed", flags.seed},
                {"seconds", report.seconds},
                {"out_of_time", report.out_of_time},
                {"tallies", tallies},
                {"failures", failures}});
  return report.passed() ? exit_done : exit_failed;
}

}  // namespace

void add_check(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("check", "run the conformance suite: every result against fp64");
  auto flags = std::make_shared<Flags>();
  add_backend_flags(*command, flags->run, Values::list, "each that can run here");
  command->add_option("--dtype", flags->dtype, "f32, bf16, f16 (all of them)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("A,B..");
  command->add_option("--cases", flags->cases, "generated cases for each backend and type (200)")
      ->type_name("")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40).description(""));
  command->add_option("--variants", flags->variants, "of the generated cases so many in a row ask for one kernel (1)")
      ->type_name("")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description(""));
  command->add_flag("--no-named", flags->no_named, "the generated cases alone");
  command->add_option("--seed", flags->seed, "of the generated cases (1)")->type_name("");
  command
      ->add_option("--case", flags->case_line,
                   "one case alone: a line that a failure printed, or the name of a named case")
      ->type_name("LINE");
  command->add_option("--seconds", flags->seconds, "start no new case after that long; 0: no limit (0)")
      ->type_name("")
      ->check(CLI::Range(0.0, 1e9).description(""));
  command->add_option("--max-failures", flags->max_failures, "stop after that many (10)")
      ->type_name("")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description(""));
  add_json_flag(*command, flags->json);
  command->footer("Exit code 1 when a case fails or none was run.");
  command->callback([flags, &chosen] { chosen = [flags] { return run(*flags); }; });
}

}  // namespace tessera::cli
