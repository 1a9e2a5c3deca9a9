// `tessera bench maps`: what finding the tiles of a mask takes, in time and memory, and what a new mask costs before
// its first call.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "cli/bench.hpp"
#include "cli/bound_tensors.hpp"
#include "cli/flag_values.hpp"
#include "cli/interleave.hpp"
#include "cli/report.hpp"
#include "mods/bounds.hpp"
#include "tessera/attention.hpp"
#include "tessera/trace.hpp"
#include "tiles/runs.hpp"

namespace tessera::cli {
namespace {

struct MapsFlags {
  std::string json;
  double seconds = 1;
};

struct MapsRow {
  std::string what, mask, result;  // result: said of what came out
  std::int64_t tokens = 0;
  std::size_t bytes = 0;  // of the map and of what is known of the tensors it reads
  Contender contender{};
};

constexpr std::int64_t tile = 128;

mods::Table table_of(const Tensor& t) {
  mods::Table table;
  table.data = t.data, table.dtype = t.dtype;
  std::copy_n(t.shape.begin(), t.rank, table.extent.begin());
  std::copy_n(t.stride.begin(), t.rank, table.stride.begin());
  return table;
}

// The runs of a mask that reads one tensor, with its summary made anew each time.
tiles::Runs runs_of(const Graph& mask, const mods::Table& table, std::int64_t tokens, std::size_t& bytes) {
  const auto summaries = mods::summarise(mask, {&table, 1});
  tiles::Runs runs = tiles::derive(mask, {&table, 1}, summaries, 0, 0, {0, tokens, tokens, tile, tile});
  bytes = runs.bytes();
  for (const mods::Summary& summary : summaries) bytes += summary.bytes();
  return runs;
}
MapsRow tensor_row(const std::string& what, const std::string& mask, std::int64_t tokens, const mods::Table& table,
                   const std::function<std::string(const tiles::Runs&)>& said) {
  MapsRow row{what, mask, {}, tokens};
  const Mask parsed = parse_mask(mask);
  row.result = said(runs_of(parsed.graph(), table, tokens, row.bytes));
  row.contender.sample = [=] {
    std::size_t bytes = 0;
    return seconds_of([&] { runs_of(parsed.graph(), table, tokens, bytes); });
  };
  return row;
}
MapsRow band_row(std::int64_t tokens) {
  constexpr int calls = 1000;  // a clock reading costs some 30 ns
  const std::string text = "causal & window(1023, 0)";
  const Mask mask = parse_mask(text);
  MapsRow row{"a band", text, fmt::format("{} band", TileMap(mask).bands().size()), tokens, sizeof(TileMap)};
  row.contender.sample = [=] {
    std::size_t bands = 0;
    const double s = seconds_of([&] {
      for (int i = 0; i < calls; ++i) bands += TileMap(mask).bands().size();
    });
    return bands == calls ? s / calls : 0;
  };
  return row;
}
MapsRow plan_row(std::int64_t tokens) {
  MapsRow row{"tracing and planning", "(k <= q) & ((q // 64 - k // 64 < n) | (k < 4))", "a plan", tokens};
  row.contender.sample = [tokens, n = std::int64_t{0}]() mutable {
    ++n;                                            // a mask that has not been seen before
    const auto anywhere = [&](std::uintptr_t at) {  // nothing is read
      return tensor(reinterpret_cast<float*>(at << 30), {1, tokens, 1, 64});
    };
    return seconds_of([&] {
      const Mask mask = mask_mod([&](Expr, Expr, Expr q, Expr k) {
        return (k <= q) & (((floor_div(q, 64) - floor_div(k, 64)) < n) | (k < 4));
      });
      plan(describe({anywhere(1), anywhere(2), anywhere(3)}, {anywhere(4)}, {.mask = mask}));
    });
  };
  return row;
}

int run_maps(const MapsFlags& flags) {
  Answer answer(flags.json);
  constexpr std::int64_t million = 1 << 20, blocks = 256;
  const auto bound = bound_tensors({fmt::format("ids=documents:{},1000", million)});
  std::vector<std::uint8_t> layout(blocks * blocks);
  std::mt19937_64 random(1);
  std::size_t wanted = 0;
  for (std::uint8_t& block : layout) block = random() % 10 >= 7, wanted += block;
  mods::Table blocks_of;
  blocks_of.data = layout.data(), blocks_of.dtype = DType::b8;
  blocks_of.extent[0] = blocks_of.extent[1] = blocks, blocks_of.stride[0] = blocks, blocks_of.stride[1] = 1;

  std::vector<MapsRow> rows;
  rows.push_back(tensor_row("1000 documents", "causal & documents(ids)", million, table_of(bound->at(0).tensor),
                            [](const tiles::Runs& runs) {
                              return fmt::format("{} full, {} partial tiles{}", runs.full_tiles(), runs.partial_tiles(),
                                                 runs.exact() ? "" : ", not exact");
                            }));
  rows.push_back(tensor_row("70 % empty", fmt::format("block_sparse(layout, {0}, {0})", tile), blocks * tile, blocks_of,
                            [&](const tiles::Runs& runs) {
                              return fmt::format("{} of {} tiles kept, {} have a pair",
                                                 runs.full_tiles() + runs.partial_tiles(), layout.size(), wanted);
                            }));
  rows.push_back(band_row(16 * million));
  rows.push_back(plan_row(4096));
  std::vector<Contender*> contenders;
  for (MapsRow& row : rows) contenders.push_back(&row.contender);
  interleave(contenders, flags.seconds);

  Table table({"", "mask", "tokens", "min ms", "median", "spread", "bytes", ""});
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const MapsRow& row : rows) {
    const Samples& times = row.contender.samples;
    table.add({row.what, row.mask, fmt::format("{}", row.tokens), fmt::format("{:.5f}", times.min() * 1e3),
               fmt::format("{:.5f}", times.median() * 1e3), fmt::format("{:.1f} %", times.spread() * 100),
               row.bytes > 0 ? fmt::format("{}", row.bytes) : "", row.result});
    list.push_back({{"name", row.what},
                    {"mask", row.mask},
                    {"tokens", row.tokens},
                    {"ms_min", times.min() * 1e3},
                    {"ms_median", times.median() * 1e3},
                    {"spread", times.spread()},
                    {"repetitions", times.count()},
                    {"bytes", row.bytes},
                    {"result", row.result}});
  }
  answer.say(table.text());
  answer.write(list);
  return exit_done;
}

constexpr const char* maps_footer = R"(
One thread, tiles of 128 x 128. Bytes: of the map, and of the summaries of the tensor that it reads. Tracing and planning:
of a lambda that reads no tensor, with its tiles where they are part of the plan.)";

}  // namespace

void add_bench_maps(CLI::App& bench, Action& chosen) {
  CLI::App* command = bench.add_subcommand("maps", "finding the tiles of masks, and planning a new one");
  auto flags = std::make_shared<MapsFlags>();
  command->add_option("--seconds", flags->seconds, "of repetitions for each row (1)")
      ->type_name("")
      ->check(CLI::Range(0.001, 3600.0).description(""))
      ->group("Run");
  add_json_flag(*command, flags->json);
  command->footer(maps_footer + 1);
  command->callback([flags, &chosen] { chosen = [flags] { return run_maps(*flags); }; });
}

}  // namespace tessera::cli
