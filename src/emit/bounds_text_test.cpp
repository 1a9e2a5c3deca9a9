// The text of bounds, compiled for the host: its runs are those of tiles::derive, its summaries those of
// mods::summarise, its decisions sound. And compiled with NVRTC where it is installed.
#include "emit/bounds_text.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "emit/testing/compiled_mods.hpp"
#include "tiles/runs.hpp"
#include "tiles/testing/random_masks.hpp"

namespace tessera {
namespace {

using mods::Box;
using mods::Table;
using mods::Truth;
using mods::intervals::SummaryEntry;
using mods::intervals::SummaryLayout;
using mods::intervals::SummaryView;
using tests::bind;
using tests::Bound;
using tests::Choices;
using tests::table;
using tiles::Grid;
using tiles::Run;
using tiles::Runs;

// A mask beside what it is tried on.
struct Trial {
  Graph graph;
  std::vector<Table> tables;
};

struct TileRuns {
  std::int64_t count;
  bool exact;
};
using Derive = TileRuns(const Grid*, std::int64_t tile, std::int64_t b, std::int64_t h, const std::uint64_t* args,
                        const SummaryView*, std::int64_t effort, std::uint64_t* out, std::int64_t limit);
using Decide = Truth(const Box*, std::int64_t b, std::int64_t h, const std::uint64_t* args, const SummaryView*);
using Layout = SummaryLayout(const std::uint64_t* args, int slot);
using Entry = SummaryEntry(const std::uint64_t* args, const SummaryView*, int slot, int pass, std::int64_t index);

// The text of these masks, each beside functions that can be found by name.
std::string text_of(std::span<const Trial> trials, std::size_t first, bool kernels) {
  std::string text(emit::mod_prelude());
  text += emit::bounds_prelude();
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const Graph& graph = trials[i].graph;
    const std::string n = std::to_string(first + i), mask = "mask_" + n,
                      arguments = "const " + mask + "_cell_arguments";
    text += emit::bounds_text(mask, graph, tests::dtypes(trials[i].tables)) + "namespace bounds_math {\n";
    if (kernels) {
      text += "extern \"C\" __global__ void run_" + n + "(TileRuns* counts, Grid grid, " + arguments;
      text += " args, const SummaryView* tables, Run* out) {\n  *counts = " + mask;
      text += "_runs(grid, 3, 1, 2, args, tables, most_integer(), out, 100);\n}\n}\n";
      continue;
    }
    text += "extern \"C\" TileRuns derive_" + n + "(const Grid* grid, int64 tile, int64 b, int64 h, " + arguments;
    text += "* args, const SummaryView* tables, int64 effort, Run* out, int64 limit) {\n  return " + mask;
    text += "_runs(*grid, tile, b, h, *args, tables, effort, out, limit);\n}\n";
    text += "extern \"C\" Truth decide_" + n + "(const Box* box, int64 b, int64 h, " + arguments;
    text += "* args, const SummaryView* tables) {\n  return " + mask + "(b, h, *args, tables).decide(*box);\n}\n";
    text += "extern \"C\" SummaryLayout layout_" + n + "(" + arguments + "* args, int slot) {\n";
    for (std::size_t slot = 0; slot < graph.captures.size(); ++slot)
      text += "  if (slot == " + std::to_string(slot) + ") return " + mask + "_layout_" + std::to_string(slot) +
              "(*args);\n";
    text += "  return {};\n}\nextern \"C\" SummaryEntry entry_" + n + "(" + arguments;
    text += "* args, const SummaryView* view, int slot, int pass, int64 index) {\n";
    for (std::size_t slot = 0; slot < graph.captures.size(); ++slot) {
      text += "  if (slot == " + std::to_string(slot) + ") return made_entry(view->layout, view->entries, " + mask;
      text += "_elements_" + std::to_string(slot) + "(*args, view->names), pass, index);\n";
    }
    text += "  return {};\n}\n}\n";
  }
  return text;
}

class Compiled {
 public:
  explicit Compiled(std::span<const Trial> trials) {
    constexpr std::size_t together = 60;  // masks a text
    for (std::size_t first = 0; first < trials.size(); first += together) {
      const auto some = trials.subspan(first, std::min(together, trials.size() - first));
      libraries_.push_back(std::make_unique<tests::HostText>(text_of(some, first, false), "-O0"));
      for (std::size_t i = first; i < first + some.size(); ++i) {
        const auto& library = *libraries_.back();
        const std::string n = std::to_string(i);
        masks_.push_back({library.find<Derive>("derive_" + n), library.find<Decide>("decide_" + n),
                          library.find<Layout>("layout_" + n), library.find<Entry>("entry_" + n)});
      }
    }
  }
  struct Mask {
    Derive* derive;
    Decide* decide;
    Layout* layout;
    Entry* entry;
  };
  const Mask& operator[](std::size_t i) const { return masks_[i]; }

 private:
  std::vector<std::unique_ptr<tests::HostText>> libraries_;
  std::vector<Mask> masks_;
};

// What a trial's functions are called with.
struct Bindings {
  mods::Vector<mods::Summary> summaries;
  std::vector<SummaryView> views;
  std::vector<std::uint64_t> words;
  explicit Bindings(const Trial& trial)
      : summaries(mods::summarise(trial.graph, trial.tables)), words(emit::argument_words(trial.graph)) {
    for (const mods::Summary& summary : summaries) views.push_back(summary.view());
    emit::pack_arguments(trial.graph, trial.tables, words.data(), {.reals = emit::Reals::f64});
  }
};

std::string shown(std::span<const Run> runs) {
  std::ostringstream out;
  for (const Run& run : runs) out << run << ", ";
  return out.str();
}

struct Count {
  std::size_t rows = 0, runs = 0, full = 0, boxes = 0, decided = 0, as_host = 0;
  std::size_t hasty = 0, summaries = 0, named = 0, squares = 0;
};
void expect_same_runs(const Compiled::Mask& mask, const Trial& trial, const Bindings& bound, const Grid& grid,
                      std::int64_t b, std::int64_t h, Count& count) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const Runs runs = tiles::derive(trial.graph, trial.tables, bound.summaries, b, h, grid);
  const auto of = [&](std::int64_t tile, std::int64_t effort, std::vector<std::uint64_t>& out) {
    return mask.derive(&grid, tile, b, h, bound.words.data(), bound.views.data(), effort, out.data(),
                       static_cast<std::int64_t>(out.size()));
  };
  for (std::size_t i = 0; i < runs.query_tiles(); ++i) {
    const auto tile = static_cast<std::int64_t>(i);
    std::vector<std::uint64_t> none;
    const TileRuns counted = of(tile, most, none);
    ASSERT_TRUE(counted.exact);
    std::vector<std::uint64_t> words(static_cast<std::size_t>(counted.count));
    const TileRuns written = of(tile, most, words);
    ASSERT_EQ(written.count, counted.count);
    std::vector<Run> got;
    for (const std::uint64_t word : words) got.push_back(std::bit_cast<Run>(word));
    ASSERT_EQ(shown(got), shown(runs[i])) << trial.graph << "\nquery tile " << i << " b " << b << " h " << h;
    ++count.rows, count.runs += got.size();
    for (const Run& run : got) count.full += run.full;
  }
}
void expect_sound(const Compiled::Mask& mask, const Trial& trial, const Bindings& bound, const Box& whole,
                  std::int64_t b, std::int64_t h, std::mt19937& random, Count& count) {
  mods::Bounds host(trial.graph, bound.summaries, b, h, whole);
  for (int n = 0; n < 12; ++n) {
    const auto inside = [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t from = begin + static_cast<std::int64_t>(random() % static_cast<unsigned>(end - begin));
      return std::pair{from, from + 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(end - from))};
    };
    const auto [q_begin, q_end] = inside(whole.q_begin, whole.q_end);
    const auto [k_begin, k_end] = inside(whole.k_begin, whole.k_end);
    const Box box{q_begin, q_end, k_begin, k_end};
    const Truth got = mask.decide(&box, b, h, bound.words.data(), bound.views.data());
    ++count.boxes, count.as_host += got == host(box);
    if (got == Truth::mixed) continue;
    ++count.decided;
    for (std::int64_t q = q_begin; q < q_end; ++q)
      for (std::int64_t k = k_begin; k < k_end; ++k)
        ASSERT_EQ(mods::evaluate_mask(trial.graph, {.b = b, .h = h, .q = q, .k = k}, trial.tables),
                  got == Truth::always)
            << trial.graph << "\nat b " << b << " h " << h << " q " << q << " k " << k;
  }
}

// With little effort: what is decided is right, what is not is partial.
void expect_partial_where_effort_ends(const Compiled::Mask& mask, const Trial& trial, const Bindings& bound,
                                      const Grid& grid, std::int64_t b, std::int64_t h, std::int64_t effort,
                                      Count& count) {
  const Runs runs = tiles::derive(trial.graph, trial.tables, bound.summaries, b, h, grid);
  const auto kinds = [&](std::span<const Run> of) {
    std::string tiles(static_cast<std::size_t>(grid.key_tiles()), '.');
    for (const Run& run : of) std::fill(tiles.begin() + run.begin, tiles.begin() + run.end, run.full ? '#' : 'o');
    return tiles;
  };
  for (std::size_t i = 0; i < runs.query_tiles(); ++i) {
    std::vector<Run> out(static_cast<std::size_t>(grid.key_tiles()) + 1, Run{7, 7, 0});
    const auto room = static_cast<std::int64_t>(out.size());
    const TileRuns got = mask.derive(&grid, static_cast<std::int64_t>(i), b, h, bound.words.data(), bound.views.data(),
                                     effort, reinterpret_cast<std::uint64_t*>(out.data()), room);
    ASSERT_LT(got.count, room);
    ASSERT_EQ(out[static_cast<std::size_t>(got.count)], (Run{7, 7, 0})) << "written behind the last run";
    out.resize(static_cast<std::size_t>(got.count));
    const std::string rough = kinds(out), exact = kinds(runs[i]);
    ASSERT_TRUE(!got.exact || rough == exact) << trial.graph;
    for (std::size_t j = 0; j < rough.size(); ++j) ASSERT_TRUE(rough[j] == exact[j] || rough[j] == 'o') << trial.graph;
    count.hasty += !got.exact;
  }
}

// The layout of each summary, and the summary itself as the text makes it; names are the host's.
void expect_same_summaries(const Compiled::Mask& mask, const Trial& trial, const Bindings& bound, Count& count) {
  for (std::size_t i = 0; i < bound.views.size(); ++i) {
    const SummaryView& view = bound.views[i];
    if (!view.entries) continue;
    const int slot = static_cast<int>(i);
    const SummaryLayout layout = mask.layout(bound.words.data(), slot);
    ASSERT_EQ(layout.entries, view.layout.entries) << trial.graph;
    ASSERT_EQ(layout.along_levels, view.layout.along_levels);
    ASSERT_EQ(layout.square_levels, view.layout.square_levels);
    std::vector<SummaryEntry> made(static_cast<std::size_t>(layout.entries) + 1);
    const SummaryView growing{layout, made.data(), view.names};
    for (int pass = 0; pass < mods::intervals::passes_of(layout); ++pass)
      for (std::int64_t n = 0; n < mods::intervals::entries_of(layout, pass); ++n)
        made[static_cast<std::size_t>(mods::intervals::first_entry(layout, pass) + n)] =
            mask.entry(bound.words.data(), &growing, slot, pass, n);
    for (std::size_t n = 0; n < made.size(); ++n) {
      ASSERT_EQ(made[n].lo, view.entries[n].lo) << trial.graph << "\nentry " << n;
      ASSERT_EQ(made[n].hi, view.entries[n].hi) << trial.graph << "\nentry " << n;
      ASSERT_EQ(made[n].signature, view.entries[n].signature) << trial.graph << "\nentry " << n;
    }
    ++count.summaries, count.named += view.names.first != nullptr, count.squares += layout.square_levels > 1;
  }
}

// Tensors of the names that the random masks and the shapes below use.
struct Tensors {
  std::vector<std::int32_t> ids, names, lengths{0, 300, 171}, parents;
  std::vector<std::int64_t> wide{40, 8, 0}, offsets{0, 11, 11, 60, 131, 170, 260},
      rows{0, 90, 171, 300, 0, 0, 120, 299, 40, 80, 160, 250};
  std::vector<float> bias;
  std::vector<std::uint8_t> layout, seen;
  std::vector<Bound> all;
  Tensors() : ids(300), names(900), parents(300), bias(300), layout(19 * 13), seen(300 * 300) {
    std::minstd_rand random(5);
    for (std::size_t i = 1; i < ids.size(); ++i) ids[i] = ids[i - 1] + (random() % 40 == 0);
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = ids[i / 3] * 7919 % 1000;
    for (std::size_t i = 1; i < parents.size(); ++i)
      parents[i] = static_cast<std::int32_t>(i - 1 - random() % std::min<std::size_t>(i, 5));
    for (float& b : bias) b = random() % 50 == 0 ? std::nanf("") : static_cast<float>(random() % 64) / 8 - 4;
    for (std::uint8_t& tile : layout) tile = random() % 10 < 3;
    for (std::size_t i = 0; i < seen.size(); ++i) seen[i] = i / 300 % 90 < i % 300 % 110;
    all = {{"ids", table(ids)},
           {"names", table(names)},
           {"names2", table(names, 3, 300)},
           {"len", table(lengths)},
           {"wide", table(wide)},
           {"cu", table(offsets)},
           {"rows", table(rows, 3, 4)},
           {"lines", {names.data(), i32, {8, 8}, {8, 1}}},
           {"parents", table(parents)},
           {"bias", table(bias)},
           {"layout", {layout.data(), b8, {19, 13}, {13, 1}}},
           {"layouts", {layout.data(), b8, {2, 3, 5, 8}, {3, 80, 8, 1}}},
           {"seen", {seen.data(), b8, {300, 300}, {300, 1}}}};
  }
  Trial trial(const std::string& mask) const {
    const Graph graph = parse_mask(mask).graph();
    return {graph, bind(graph, all)};
  }
};

const Grid grids[] = {{0, 300, 300, 16, 24}, {31, 250, 300, 32, 32}, {-7, 120, 290, 16, 16}, {5, 1, 300, 16, 64}};

TEST(BoundsText, KnownShapesAndTheirPairsHaveTheRunsOfTheHost) {
  const Tensors tensors;
  const std::vector<std::string> shapes = {"full",
                                           "causal",
                                           "window(40, 3)",
                                           "documents(ids)",
                                           "documents(names2, 2)",
                                           "documents_from_offsets(cu)",
                                           "documents_from_offsets(rows, 2)",
                                           "key_lengths(len)",
                                           "prefix_lm(len)",
                                           "chunked(50)",
                                           "(sinks(4) | window(33, 0))",
                                           "dilated(4)",
                                           "neighborhood_2d(15, 20, 5, 7)",
                                           "tree(parents, 5)",
                                           "block_sparse(layout, 16, 24)",
                                           "block_sparse(layouts, 16, 24, 4)",
                                           "mask_tensor(seen)",
                                           "(real(q - k) * 0.03 < 2.0)"};
  std::vector<Trial> trials;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    for (std::size_t j = 0; j <= i; ++j)
      trials.push_back(tensors.trial(i == j ? shapes[i] : shapes[i] + ((i + j) % 3 != 0 ? " & " : " | ") + shapes[j]));
  const Compiled compiled(trials);
  Count count;
  std::mt19937 random(3);
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const Bindings bound(trials[i]);
    const Grid& grid = grids[i % std::size(grids)];
    expect_same_runs(compiled[i], trials[i], bound, grid, i % 3, i % 2, count);
    expect_sound(compiled[i], trials[i], bound, {0, 300, 0, 300}, i % 3, i % 2, random, count);
    expect_same_summaries(compiled[i], trials[i], bound, count);
  }
  EXPECT_GT(count.runs, count.rows);
  EXPECT_GT(count.summaries, 50u);
  EXPECT_GT(count.named, 5u);
  EXPECT_GT(count.squares, 5u);
  EXPECT_EQ(count.as_host, count.boxes);  // no more and no less is known than on the host
}

TEST(BoundsText, RandomMasksHaveTheRunsOfTheHost) {
  const Tensors tensors;
  std::vector<Trial> trials;
  std::mt19937 random(17);
  const auto numbers = [&] {
    std::vector<std::uint32_t> some(300);
    for (std::uint32_t& n : some) n = static_cast<std::uint32_t>(random());
    return some;
  };
  while (trials.size() < 130) {
    const auto drawn = numbers();
    Choices choices(drawn);
    trials.push_back(tensors.trial(tests::boolean(choices, 3)));
  }
  while (trials.size() < 210) {  // and of programs, where integers saturate and reals are anything
    const auto drawn = numbers();
    Choices choices(drawn);
    tests::Program program = tests::random_program(choices, 30);
    for (tests::Step& step : program)
      if (step.op == Op::score) step.op = Op::param, step.r = 0.5;
    mods::Builder builder;
    const auto node = tests::build(builder, program);
    for (std::size_t i = program.size(); i-- > 0;)
      if (program[i].type == Type::boolean) {
        Graph graph = builder.finish(node[i]);
        if (graph.nodes.size() < 4) continue;
        trials.push_back({graph, tests::tables(graph)});
        break;
      }
  }
  const Compiled compiled(trials);
  Count count;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const Bindings bound(trials[i]);
    static constexpr std::int64_t offsets[] = {0, 7, -5, 64, 1000}, sides[] = {8, 5, 1, 16};
    const Grid grid{offsets[random() % 5], 1 + static_cast<std::int64_t>(random() % 70),
                    1 + static_cast<std::int64_t>(random() % 70), sides[random() % 4], sides[random() % 2]};
    const std::int64_t b = random() % 3, h = random() % 3;
    expect_same_runs(compiled[i], trials[i], bound, grid, b, h, count);
    expect_sound(compiled[i], trials[i], bound, {grid.q_offset, grid.q_offset + grid.queries, 0, grid.keys}, b, h,
                 random, count);
    expect_partial_where_effort_ends(compiled[i], trials[i], bound, grid, b, h, random() % 60, count);
    expect_same_summaries(compiled[i], trials[i], bound, count);
  }
  EXPECT_GT(count.hasty, 100u);
  EXPECT_GT(count.summaries, 100u);
  EXPECT_GT(count.rows, 1000u);
  EXPECT_GT(count.runs, 1000u);
  EXPECT_GT(count.full, 500u);
  EXPECT_GT(10 * count.as_host, 9 * count.boxes) << count.as_host << " of " << count.boxes;
}

TEST(BoundsText, IsWhatTheMaskIs) {
  const auto text = [](const char* mask) {
    const Graph graph = parse_mask(mask).graph();
    const std::vector<DType> types(graph.captures.size(), i32);
    return emit::bounds_text("f", graph, types);
  };
  EXPECT_EQ(text("window(7, 0)"), text("window(1023, 5)"));  // its sides are run-time values
  EXPECT_NE(text("q - k <= 7"), text("q - k <= 8"));
  EXPECT_EQ(text("q - k <= 7").find("by_intervals"), std::string::npos);  // nothing is assumed of nothing
  EXPECT_NE(text("window(7, 0)").find("by_intervals"), std::string::npos);
  const Graph graph = parse_mask("ids:int[q] == ids:int[k]").graph();
  EXPECT_THROW(emit::bounds_text("f", graph, {}), Error);
  const DType wrong[] = {f32};
  EXPECT_THROW(emit::bounds_text("f", graph, wrong), Error);
  EXPECT_THROW(emit::bounds_text("f(", graph, std::array{i32}), Error);
}

TEST(BoundsText, CompilesForTheDevice) {
  const tests::Nvrtc nvrtc;
  if (!nvrtc) GTEST_SKIP() << "libnvrtc is not here";
  const Tensors tensors;
  const std::vector<Trial> trials = {tensors.trial("causal & documents(names2, 2) | prefix_lm(len)"),
                                     tensors.trial("neighborhood_2d(15, 20, 5, 7) & mask_tensor(seen)"),
                                     tensors.trial("exp(bias[k]) > real(q - k) & tanh(bias[q]) < pow(0.5, bias[k])")};
  const std::string text = text_of(trials, 0, true);
  for (const char* architecture : {"compute_80", "compute_90a"})
    EXPECT_NE(nvrtc.compile(text, architecture).find("run_2"), std::string::npos) << architecture;
}

}  // namespace
}  // namespace tessera
