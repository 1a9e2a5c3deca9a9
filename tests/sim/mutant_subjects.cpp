#include "sim/mutant_subjects.hpp"

#include <stdexcept>
#include <vector>

#include "conformance/cases.hpp"
#include "conformance/device_subject.hpp"
#include "emit/kernel_text.hpp"
#include "emit/merge_text.hpp"
#include "gpu/gpu_backend.hpp"
#include "gpu/sim_subjects.hpp"
#include "kernels/kernel_subject.hpp"
#include "kernels/merge_check.hpp"
#include "sim/folder.hpp"
#include "sim/small_case.hpp"
#include "sim/sources.hpp"
#include "tessera/error.hpp"

namespace tessera::sim {
namespace {

std::string small_sm90_text() {
  return small_forward_sm90_text(file_text("tests/sim/small_forward_sm90.cuh"), 64, true);
}
std::string small_text() { return small_forward_text(file_text("tests/sim/small_forward.cuh"), 64, true); }

// The first thing that is wrong with one run of it.
std::string notice_in_run(const SmallShape& shape, bool sm90, bool checked, std::uint64_t seed) {
  const std::string kernel = file_text(sm90 ? "tests/sim/small_forward_sm90.cuh" : "tests/sim/small_forward.cuh"),
                    text = (sm90 ? small_forward_sm90_text : small_forward_text)(kernel, shape.dim, shape.causal);
  const LoadedCode& code = compiled({"g++", cache_folder(), checked}, "small", text);
  const Timing timings[] = {Timing::late, Timing::random, Timing::late, Timing::eager};
  const SmallCase one(shape, unsigned(seed + 1));
  const Schedule schedule{.seed = seed, .timing = timings[seed]};
  const Result result = sm90 ? one.run_sm90(code, schedule) : one.run(code, schedule);
  if (!result.ok()) return (checked ? "checked: " : "plain: ") + text_of(result);
  const double error = one.error();
  return error <= 1 ? "" : "wrong result, " + std::to_string(error);
}

std::string notice_in_small(bool sm90) {
  // Keys that end within a tile, with it, and one behind it; queries without keys; one key.
  const SmallShape shapes[] = {{190, 300, 2, 64, true},
                               {200, 30, 1, 64, true},
                               {64, 1, 1, 64, true},
                               {128, 128, 1, 64, true},
                               {70, 65, 2, 64, false}};
  try {
    for (const bool checked : {true, false})
      for (const SmallShape& shape : shapes)
        for (std::uint64_t seed = 0; seed < (checked ? 2 : 4); ++seed)
          if (const std::string noticed = notice_in_run(shape, sm90, checked, seed); !noticed.empty()) return noticed;
  } catch (const Error& e) {
    if (e.code() == Code::unsupported) return std::string("compiler: ") + e.what();
    throw;
  }
  return "";
}

// The forward kernel: a few shapes, in which every loader, every kind of mask and every way out takes part.
struct ForwardRun {
  tests::KernelShape shape;
  const char* text;  // of the case
};

tests::KernelShape shape_of(int stages, bool q_registers = false) {
  return {.q_tile = 32, .k_tile = 32, .warps = 2, .stages = stages, .q_registers = q_registers, .checked = true};
}
tests::KernelShape with(tests::KernelShape shape, const auto& change) {
  change(shape);
  return shape;
}

std::vector<ForwardRun> forward_runs() {
  using Shape = tests::KernelShape;
  return {
      {shape_of(2), "sq=70 sk=150 hq=2 hkv=1 d=40 dv=24 dtype=bf16 mask=\"(k <= q)\" family=nan_masked seed=4"},
      {shape_of(2), "sq=40 sk=33 hq=1 hkv=1 d=40 dv=24 dtype=bf16 mask=\"(k <= q)\" offset=-9 seed=5"},
      {shape_of(1), "b=2 sq=40 sk=97 d=16 dtype=f16 scale=-0.4 layout=sliced seed=2"},
      {with(shape_of(3, true), [](Shape& s) { s.splits = 3; }),
       "b=2 sq=33 sk=200 hq=2 hkv=1 d=16 dv=17 dtype=bf16 mask=\"window(50, 0)\" sinks=1 family=nan_attended"},
      {with(shape_of(2), [](Shape& s) { s.page = 12, s.heads = 2; }),
       "packed=9/9,0/5,33/70,20/0,1/100,1/1,2/2,0/0,1/3,0/1,1/1,1/2,1/3,1/4,1/5,1/6,1/7,1/8,1/9,2/1,2/2,2/3,2/4,2/5,2/"
       "6,2/7,2/8,"
       "2/9,3/1,3/2,3/3,3/4,3/5,3/6,3/7,3/8,3/9,4/70 hq=4 hkv=2 d=16 dtype=bf16 mask=\"(k <= q)\" "
       "score=\"softcap(5)\""},
      {with(shape_of(2), [](Shape& s) { s.copy = 4; }),
       "b=2 sq=90 sk=90 hq=2 hkv=2 d=18 dv=15 dtype=bf16 mask=\"documents(ids) & causal\" family=outlier"},
      {shape_of(2), "sq=33 sk=270 d=16 dtype=bf16 mask=\"(k % 3 != 1) & (k <= q)\""},
      {with(shape_of(2), [](Shape& s) { s.warps = 4, s.q_tile = 64, s.warps_n = 2; }),
       "sq=70 sk=130 d=16 dv=72 dtype=bf16 mask=\"(k <= q)\" lse=1 family=nan_masked seed=3"},
      {with(shape_of(2), [](Shape& s) { s.warps = 4, s.q_tile = 64, s.warps_n = 2; }),
       "sq=70 sk=130 d=16 dv=72 dtype=bf16 lse=1 family=growing seed=3"},
      {shape_of(1, true), "sq=64 sk=65 d=64 dtype=bf16 out=f32 family=outlier"},
  };
}

std::string forward_text() {
  emit::ForwardSpec spec;
  spec.dim = spec.dim_v = 64;
  spec.keys = emit::Keys::bands;
  spec.bands = 1;
  spec.paged = spec.lengths = true;
  return emit::forward_text(spec).source;
}

std::string notice_in_forward() {
  for (const ForwardRun& run : forward_runs())
    for (const std::uint64_t schedule : {0, 1}) {
      tests::KernelShape shape = run.shape;
      shape.schedule = schedule;
      const auto outcome = conformance::run_case(tests::kernel_subject(shape), conformance::parse_case(run.text));
      if (outcome.passed()) continue;
      const bool refused = outcome.failure.find("refused a kernel") != std::string::npos;
      return (refused ? "compiler: " : std::string(run.text) + ": ") + outcome.failure;
    }
  return "";
}

// The kernel of sm_90, planned and launched as any: on three multiprocessors, so that a block has several items, with
// tiles of few keys, so that rings go round. Two machines: two places for queries and tiles in turns, one without.
constexpr gpu::Tile hopper_tiles[] = {{256, 128, 32, 8, 2, 1, 3, false, 3, 2, true},
                                      {256, 128, 32, 8, 3, 1, 3, false, 2, 1, false}};
constexpr const char* hopper_names[] = {"turns", "alone"};

struct HopperMachine {
  Engine engine;
  gpu::GpuBackend backend;
  explicit HopperMachine(int which)
      : engine({.checked = true, .folder = cache_folder(), .vary = true, .caps = few_multiprocessors()}),
        backend(hopper_names[which], engine, 90, {&hopper_tiles[which], 1}) {
    append_backend(backend);
    conformance::set_memory(backend.full_name(), conformance::registered_memory);
  }
  static gpu::Caps few_multiprocessors() {
    gpu::Caps caps = emulated_sm90();
    caps.sms = 3;
    return caps;
  }
};

// Masks, ends and rows that are missing; values that are not finite, and so large that sums of them are not; tiles that
// are done again; heads in one tile; pages; an order; splits; each way out.
struct HopperRun {
  int machine;
  const char* text;
};
constexpr HopperRun hopper_runs[] = {
    {0, "b=2 sq=200 sk=230 hq=2 hkv=1 d=40 dv=72 dtype=bf16 mask=\"causal\""},
    {1, "packed=100/100,0/50,70/210,5/0,131/90 hq=4 hkv=2 d=16 dtype=f16 mask=\"window(60, 9)\" family=nan_masked"},
    {0, "b=2 sq=30 sk=200 used=200,77 room=200 page=16 hq=8 hkv=2 d=24 dtype=bf16 mask=\"causal\" sinks=1"},
    {1, "b=3 sq=140 sk=390 hq=1 hkv=1 d=16 dtype=bf16 family=growing"},
    {0, "packed=300/200,20/50,130/100 hq=2 hkv=2 d=16 dtype=bf16 mask=\"documents(ids) & causal\" family=nan_attended"},
    {1, "sq=130 sk=700 hq=1 hkv=1 d=8 dtype=f16 out=f32 scale=-0.3"},
    {0, "b=2 sq=200 sk=300 hq=3 hkv=1 d=16 dtype=bf16 family=huge"},
    {0, "packed=90/190,0/50,70/120,131/90,5/8 hq=2 hkv=1 d=16 dtype=bf16 family=nan_masked mask=\"causal\" seed=3"},
    {1, "packed=90/190,0/50,70/120,131/90,5/8 hq=2 hkv=1 d=16 dtype=bf16 family=nan_masked mask=\"causal\" seed=4"},
    {1, "b=2 sq=40 sk=100 used=100,33 room=100 page=5 hq=1 hkv=1 d=24 dtype=bf16 family=nan_masked mask=\"causal\""},
};

std::string hopper_text() {
  emit::ForwardSpec spec;
  spec.arch = 90, spec.q_tile = 128, spec.warps = 8, spec.k_tile = 32;
  return emit::forward_text(spec).source;
}

std::string notice_in_hopper() {
  static HopperMachine* const machines[] = {new HopperMachine(0), new HopperMachine(1)};  // the list keeps them
  for (const HopperRun& run : hopper_runs) {
    const auto outcome = conformance::run_case(conformance::subject(machines[run.machine]->backend.full_name()),
                                               conformance::parse_case(run.text));
    if (outcome.passed()) continue;
    const bool refused = outcome.failure.find("refused a kernel") != std::string::npos;
    return (refused ? "compiler: " : std::string(run.text) + ": ") + outcome.failure;
  }
  return "";
}

std::string merge_text() { return emit::merge_text({bf16, bf16, bf16, 8}).source; }

// Each way to load and to store; rows that are a lane, lanes, a warp, more; a block that is not full.
std::string notice_in_merge() {
  struct Run {
    tests::MergeShape shape;
    tests::MergeTypes types;
  };
  const Run runs[] = {{{2, 3, 5, 64}, {bf16, bf16, bf16}},          {{1, 9, 3, 300, 4}, {f32, f32, f32}},
                      {{1, 70, 2, 1, 0, 0, true}, {f16, f16, f16}}, {{3, 2, 7, 60, 4, 4, true}, {f16, bf16, f16}},
                      {{2, 5, 3, 22, 2}, {bf16, bf16, bf16}},       {{1, 2, 3, 35}, {bf16, f32, bf16}}};
  Engine engine({.checked = true, .folder = cache_folder()});
  for (const Run& run : runs)
    for (std::uint64_t seed = 0; seed < 4; ++seed)
      if (const std::string fault = tests::merge_fault(engine, run.shape, run.types, seed, seed != 3); !fault.empty())
        return fault.find("refused a kernel") != std::string::npos ? "compiler: " + fault : fault;
  return "";
}

}  // namespace

const MutantSubject& mutant_subject(const std::string& name) {
  static const std::vector<MutantSubject> all = {{"small", small_text, [] { return notice_in_small(false); }},
                                                 {"small_sm90", small_sm90_text, [] { return notice_in_small(true); }},
                                                 {"forward", forward_text, notice_in_forward},
                                                 {"forward_sm90", hopper_text, notice_in_hopper},
                                                 {"merge", merge_text, notice_in_merge}};
  for (const MutantSubject& s : all)
    if (s.name == name) return s;
  std::string names;
  for (const MutantSubject& s : all) names += " " + s.name;
  throw std::runtime_error("no kernel '" + name + "' to plant bugs in; there are:" + names);
}

}  // namespace tessera::sim
