// `tessera explain`: what would run and why, without running it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "cli/attended_pairs.hpp"
#include "cli/ceilings.hpp"
#include "cli/commands.hpp"
#include "cli/report.hpp"
#include "cli/shape_flags.hpp"
#include "cli/tile_picture.hpp"
#include "tessera/attention.hpp"

namespace tessera::cli {
namespace {

struct Flags {
  ShapeFlags shape;
  RunFlags run;
  std::string json;
  bool picture = false;
};

template <class T>
std::string printed(const T& value) {
  std::ostringstream out;
  out << value;
  std::string text = out.str();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string indented(const std::string& text) {
  std::string all = "  ";
  for (char c : text) all += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return all + "\n";
}

// The problem with tensors where the backend that is asked for has its own: on device 0 for one that is not the cpu's.
Problem described(const Shape& shape, std::string_view backend) {
  Prefix prefix = prefix_of(shape);
  Inputs in = inputs_of(shape, anywhere(), prefix);
  if (!backend.empty() && !backend.starts_with("cpu")) set_device(in, {DeviceType::cuda, 0}, true);
  return describe(in, options_of(shape, backend));
}

// Why a backend does not run this problem: the plan's own words for those before the chosen one; for the others, what
// happens when they are asked for by name.
struct Verdict {
  std::string backend, why;
};
std::vector<Verdict> verdicts(const Shape& shape, const Plan& chosen) {
  const std::string taken = fmt::format("{}:{}", chosen->backend, chosen->isa);
  std::vector<Verdict> all;
  for (const BackendInfo& info : backends()) {
    if (info.name == taken) {
      all.push_back({info.name, "taken: the first of the list that can"});
      continue;
    }
    const auto passed = std::find_if(chosen->passed_over.begin(), chosen->passed_over.end(),
                                     [&](const PassedOver& p) { return p.candidate == info.name; });
    if (passed != chosen->passed_over.end()) {
      all.push_back({info.name, passed->reason});
      continue;
    }
    try {
      plan(described(shape, info.name));
      all.push_back({info.name, "it can, and stands after the one taken: slower"});
    } catch (const Error& error) {
      std::string why = error.what();
      std::replace(why.begin(), why.end(), '\n', ' ');
      all.push_back({info.name, why});
    }
  }
  return all;
}

constexpr std::int64_t most_lines = 64, most_columns = 128;

std::string picture_text(const Shape& shape, const ShapeTiles& tiles, const TileCount& count) {
  const ShapeTiles::Picture picture = tiles.picture(most_lines, most_columns);
  const bool several = shape.b > 1 || shape.hq > 1;
  std::string text = fmt::format("picture{}\n", several ? ", of the first sequence and head" : "");
  for (const std::string& line : picture.lines) text += "  " + line + "\n";
  text +=
      fmt::format("  down: queries, across: keys; a character is {} x {} tiles\n", picture.q_tiles, picture.k_tiles);
  const auto share = [&](double of) { return count.all() > 0 ? 100 * of / count.all() : 0; };
  return text + fmt::format(
                    "  # full {:.2f} %, + partial {:.2f} %, . empty {:.2f} % of {:.0f} tiles{}\n"
                    "  {}: {} bytes, built in {:.4f} ms\n",
                    share(count.full), share(count.partial), share(count.empty), count.all(),
                    tiles.exact() ? "" : "; some that are called partial were not settled",
                    tiles.has_bands()  ? "bands"
                    : tiles.has_runs() ? "runs"
                                       : "no map",
                    tiles.bytes(), tiles.build_ms());
}

template <class Probe>
double best_of(Probe&& probe, int times) {
  double best = 0;
  for (int i = 0; i < times; ++i) best = std::max(best, probe());
  return best;
}

// What the machine can do at most: measured on a processor, a device's own figures on a device. 0: not known.
struct Limits {
  double gflops = 0, gbytes = 0;
  std::string where, of;
  // Milliseconds for so much; none where the rate is not known.
  std::optional<double> arithmetic_ms(double flops) const { return quotient(flops, gflops); }
  std::optional<double> memory_ms(double bytes) const { return quotient(bytes, gbytes); }

 private:
  static std::optional<double> quotient(double amount, double giga_per_s) {
    return giga_per_s > 0 ? std::optional(amount / giga_per_s * 1e-6) : std::nullopt;
  }
};
Limits limits_of(const Plan& p, int threads) {
  if (p->problem.device.type != DeviceType::cpu)
    return {p->ceiling.flops_s * 1e-9, p->ceiling.bytes_s * 1e-9, "by the device's figures",
            "the tensor-core ceiling of 16-bit types"};
  Limits limits{.where = fmt::format("on {} thread{} as measured now", threads, threads == 1 ? "" : "s"),
                .of = "the fp32 FMA ceiling of " + p->isa};
  FmaProbe fma(p->isa, threads);
  limits.gflops = best_of([&] { return fma.gflops(); }, 12);
  DramProbe dram(threads);
  limits.gbytes = best_of([&] { return dram.gbytes_per_s(); }, 5);
  return limits;
}

std::string floor_text(const Limits& limits, std::optional<double> arithmetic_ms, std::optional<double> memory_ms) {
  std::string text = fmt::format("floor, {}\n", limits.where);
  text += arithmetic_ms ? fmt::format("  {:.3f} ms of arithmetic at {:.1f} GFLOP/s, {}\n", *arithmetic_ms,
                                      limits.gflops, limits.of)
                        : fmt::format("  arithmetic: {} is not known\n", limits.of);
  text += memory_ms
              ? fmt::format("  {:.3f} ms of memory at {:.1f} GB/s, reading from DRAM\n", *memory_ms, limits.gbytes)
              : "  memory: its rate is not known\n";
  if (!arithmetic_ms && !memory_ms) return text;
  const bool by_arithmetic = arithmetic_ms.value_or(0) >= memory_ms.value_or(0);
  return text + fmt::format("  so at least {:.3f} ms, bound by {}{}\n",
                            std::max(arithmetic_ms.value_or(0), memory_ms.value_or(0)),
                            by_arithmetic ? "arithmetic" : "memory",
                            arithmetic_ms && memory_ms ? "" : ", as far as rates are known");
}
// null for what is not known.
nlohmann::ordered_json json_of(std::optional<double> value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

int run(const Flags& flags) {
  Answer answer(flags.json);
  const std::vector<Shape> all = shapes(flags.shape);
  const std::vector<std::string> names = backends_of(flags.run);
  if (names.size() != 1) throw Misuse("--backend all: explain says why each other one is not taken; pin one or none");
  const Shape& shape = all.at(0);
  const int threads = thread_count(flags.run.threads[0]);
  const Problem problem = described(shape, names[0]);
  const Plan p = plan(problem);

  const Pairs attended = attended_pairs(shape);
  const double pairs = attended.count, flops = 2 * pairs * static_cast<double>(shape.d + shape.dv);
  const Limits limits = limits_of(p, threads);
  const std::optional<double> arithmetic_ms = limits.arithmetic_ms(flops), memory_ms = limits.memory_ms(p->cost.bytes);
  const bool runs = p->tiling.run_queries > 0;
  const std::int64_t q_tile = runs ? p->tiling.run_queries : p->tiling.q_tile;
  const std::int64_t k_tile = runs ? p->tiling.run_keys : p->tiling.k_block;
  const ShapeTiles map(shape, q_tile, k_tile);
  const TileCount tiles = map.count();
  const std::vector<Verdict> why = verdicts(shape, p);

  answer.say("problem\n" + indented(printed(problem)) + "tiles\n" +
             indented(map.has_runs() ? "runs of key tiles for each query tile, from the mask and the tensors it reads"
                                     : printed(p->tiles)));
  answer.say(
      fmt::format("  {:.0f} tiles of {} queries x {} keys for each head: {:.0f} full, {:.0f} partial, {:.0f} empty\n",
                  tiles.all(), q_tile, k_tile, tiles.full, tiles.partial, tiles.empty));
  if (flags.picture) answer.say(picture_text(shape, map, tiles));
  answer.say("plan\n" + indented(printed(p)));
  answer.say(fmt::format("  workspace: {} on {} thread{}\n",
                         bytes_text(static_cast<double>(p.workspace_bytes(threads))), threads,
                         threads == 1 ? "" : "s"));
  answer.say("cost\n");
  const double whole = static_cast<double>(shape.hq) * [&] {
    double count = static_cast<double>(shape.b) * static_cast<double>(shape.sq) * static_cast<double>(shape.sk);
    if (!shape.packed.empty()) {
      count = 0;
      for (const SequenceLengths& l : shape.packed) count += static_cast<double>(l.q) * static_cast<double>(l.k);
    }
    return count;
  }();
  answer.say(
      fmt::format("  pairs: {:.6g} attended of {:.6g} ({:.1f} %){}\n  FLOPs: {:.4g} = 2 (d + dv) for each pair\n"
                  "  bytes: {} of q, k, v and o, once each\n",
                  pairs, whole, whole > 0 ? 100 * pairs / whole : 100, attended.exact ? "" : ", an estimate", flops,
                  bytes_text(p->cost.bytes)));
  answer.say(floor_text(limits, arithmetic_ms, memory_ms));
  answer.say("backends, best first\n");
  std::size_t width = 0;
  for (const Verdict& v : why) width = std::max(width, v.backend.size());
  for (const Verdict& v : why) answer.say(fmt::format("  {:<{}}  {}\n", v.backend, width, v.why));

  nlohmann::ordered_json candidates = nlohmann::ordered_json::array();
  for (const Verdict& v : why)
    candidates.push_back({{"backend", v.backend}, {"taken", v.backend == p->backend + ":" + p->isa}, {"why", v.why}});
  nlohmann::ordered_json json{{"problem", printed(problem)},
                              {"mask", shape.mask_text},
                              {"score", shape.score_text},
                              {"tile_map", printed(p->tiles)},
                              {"plan", printed(p)},
                              {"backend", p->backend},
                              {"isa", p->isa},
                              {"threads", threads},
                              {"tiles", {{"full", tiles.full}, {"partial", tiles.partial}, {"empty", tiles.empty}}},
                              {"tiling",
                               {{"q_tile", p->tiling.q_tile},
                                {"tiles_at_once", p->tiling.tiles_at_once},
                                {"heads_per_tile", p->tiling.heads_per_tile},
                                {"panel", p->tiling.panel},
                                {"k_block", p->tiling.k_block},
                                {"run_queries", p->tiling.run_queries},
                                {"run_keys", p->tiling.run_keys},
                                {"kv_split", p->tiling.kv_split},
                                {"splits", p->tiling.splits},
                                {"items", p->tiling.items}}},
                              {"pairs", pairs},
                              {"pairs_exact", attended.exact},
                              {"flops", flops},
                              {"bytes", p->cost.bytes},
                              {"workspace_bytes", p.workspace_bytes(threads)},
                              {"ceiling_gflops", json_of(arithmetic_ms ? std::optional(limits.gflops) : std::nullopt)},
                              {"dram_gbytes_per_s", json_of(memory_ms ? std::optional(limits.gbytes) : std::nullopt)},
                              {"arithmetic_ms", json_of(arithmetic_ms)},
                              {"memory_ms", json_of(memory_ms)},
                              {"floor_ms", json_of(std::max(arithmetic_ms, memory_ms))},
                              {"backends", candidates}};
  if (flags.picture) {
    const ShapeTiles::Picture picture = map.picture(most_lines, most_columns);
    json["picture"] = {
        {"lines", picture.lines},     {"q_tiles", picture.q_tiles},
        {"k_tiles", picture.k_tiles}, {"map", map.has_bands() ? "bands" : map.has_runs() ? "runs" : "none"},
        {"exact", map.exact()},       {"bytes", map.bytes()},
        {"build_ms", map.build_ms()}};
  }
  answer.write(json);
  return exit_done;
}

}  // namespace

void add_explain(CLI::App& app, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("explain", "the problem, its tiles, the plan, the floor, and why, without running it");
  auto flags = std::make_shared<Flags>();
  add_shape_flags(*command, flags->shape, Values::one);
  add_threads_flag(*command, flags->run, Values::one, 0);
  add_backend_flags(*command, flags->run, Values::one);
  command->add_flag("--picture", flags->picture, "draw the tiles, at most 64 lines of 128")->group("Run");
  add_json_flag(*command, flags->json);
  command->callback([flags, &chosen] { chosen = [flags] { return run(*flags); }; });
}

}  // namespace tessera::cli
