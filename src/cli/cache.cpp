// `tessera cache`: the compiled kernels that are kept on disk, or those of a pack.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/report.hpp"
#include "cli/run_flags.hpp"
#include "tessera/kernels.hpp"

namespace tessera::cli {
namespace {

struct CacheFlags {
  std::string what = "list", pack, json;
  bool damaged = false;
};

int run_cache(const CacheFlags& flags) {
  Answer answer(flags.json);
  const std::string folder = gpu_report().cache;
  if (flags.pack.empty() && folder.empty())
    throw Misuse("there is no cache: none of TESSERA_CACHE_DIR, XDG_CACHE_HOME and HOME names a folder");
  const std::string where = flags.pack.empty() ? folder : flags.pack;
  if (flags.what == "clear") {
    if (!flags.pack.empty()) throw Misuse("--pack: a pack is a file; remove it as any other");
    const std::size_t gone = clear_kernel_cache(flags.damaged);
    answer.say(fmt::format("{} file{} removed from {}\n", gone, gone == 1 ? "" : "s", folder));
    answer.write({{"folder", folder}, {"removed", gone}});
    return exit_done;
  }
  const std::vector<KernelFile> files = flags.pack.empty() ? kernel_cache() : read_kernel_pack(flags.pack);
  double bytes = 0;
  std::size_t damaged = 0;
  Table table({"kernel", "for", "by", "KiB", "made for, or what is wrong"});
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const KernelFile& file : files) {
    bytes += static_cast<double>(file.bytes);
    damaged += !file.damage.empty();
    const std::string what = file.damage.empty() ? file.spec : file.path + ": " + file.damage;
    table.add({file.damage.empty() ? file.name : "-", file.arch, file.compiler,
               fmt::format("{:.1f}", static_cast<double>(file.bytes) / 1024), what});
    all.push_back({{"path", file.path},
                   {"name", file.name},
                   {"spec", file.spec},
                   {"arch", file.arch},
                   {"compiler", file.compiler},
                   {"bytes", file.bytes},
                   {"damage", file.damage}});
  }
  if (flags.what == "list" && !files.empty()) answer.say(table.text() + "\n");
  if (flags.what == "verify")
    for (const KernelFile& file : files)
      if (!file.damage.empty()) answer.say(fmt::format("{}: {}\n", file.path, file.damage));
  answer.say(fmt::format("{} kernel{} in {}, {}, {} damaged\n", files.size(), files.size() == 1 ? "" : "s", where,
                         bytes_text(bytes), damaged));
  answer.write({{"folder", where}, {"kernels", all}, {"bytes", bytes}, {"damaged", damaged}});
  return flags.what == "verify" && damaged > 0 ? exit_failed : exit_done;
}

}  // namespace

void add_cache(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("cache", "the compiled kernels on disk: list, size, verify, clear");
  auto flags = std::make_shared<CacheFlags>();
  command->add_option("WHAT", flags->what, "list (default), size, verify (exit code 1 when one is damaged), clear")
      ->check(CLI::IsMember({"list", "size", "verify", "clear"}));
  command->add_option("--pack", flags->pack, "look at this pack instead of the cache")->type_name("FILE");
  command->add_flag("--damaged", flags->damaged, "clear: only what is damaged");
  add_json_flag(*command, flags->json);
  command->callback([flags, &chosen] { chosen = [flags] { return run_cache(*flags); }; });
}

}  // namespace tessera::cli
