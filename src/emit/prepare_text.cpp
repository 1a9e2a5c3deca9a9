// The text of the prepare kernel, and the arithmetic of its launches.
#include "emit/prepare_text.hpp"

#include <algorithm>
#include <locale>
#include <ostream>
#include <sstream>
#include <string>

#include "emit/bounds_text.hpp"
#include "emit/mod_text.hpp"
#include "kernels/prepare_params.cuh"
#include "mods/intervals.hpp"
#include "problem/fail.hpp"

namespace tessera::emit {
namespace {

using mods::intervals::SummaryEntry;
using mods::intervals::SummaryLayout;
using mods::intervals::SummaryView;
using namespace tessera_kernels;

constexpr std::int64_t entries_of_one_block = 4096;  // of a pass: beyond, it is worth a launch

bool is_empty(const Capture& capture, const mods::Table& table) {
  return table.data == nullptr || std::any_of(table.extent.begin(), table.extent.begin() + capture.rank,
                                              [](std::int64_t extent) { return extent <= 0; });
}
SummaryLayout layout_of(const Capture& capture, const mods::Table& table) {
  std::array<std::int64_t, 4> extent{1, 1, 1, 1};
  for (std::size_t i = 0; i < capture.rank; ++i) extent[4 - capture.rank + i] = table.extent[i];
  return mods::intervals::layout_of(extent[0], extent[1], extent[2], extent[3]);
}

// What prepare_runs.cuh asks of the mask, as members of the spec.
void write_mask(std::ostream& out, const PrepareSpec& spec) {
  const std::size_t captures = spec.mask.captures.size();
  const auto each = [&](const char* of, const std::string& what) {
    for (std::size_t i = 0; i < captures; ++i)
      out << "    if (slot == " << i << ") return " << of << i << what << ";\n";
  };
  out << "  static constexpr int captures = " << captures << ";\n"
      << "  using Mask = bounds_math::mask;\n  using Arguments = bounds_math::mask_cell_arguments;\n"
      << "  static __device__ bounds_math::SummaryLayout layout(const Arguments& args, int slot) {\n";
  each("bounds_math::mask_layout_", "(args)");
  out << "    return {};\n  }\n"
      << "  static __device__ bounds_math::SummaryEntry element(const Arguments& args, int slot, long long line,\n"
         "                                                      long long column) {\n";
  each("one_element(bounds_math::mask_elements_", "(args, {}), line, column)");
  out << "    return {};\n  }\n";
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const PrepareSpec& spec) {
  out << (spec.packed ? "packed " : "") << spec.queries;
  if (!spec.runs) return out;
  out << 'x' << spec.k_tile << " runs " << spec.mask;
  for (std::size_t i = 0; i < spec.mask_dtypes.size(); ++i)
    out << (i ? ", " : " ") << mods::name(spec.mask.captures[i]) << ' ' << spec.mask_dtypes[i];
  return out;
}

KernelText prepare_text(const PrepareSpec& spec) {
  if (spec.queries < 1 || spec.k_tile < 1)
    problem::fail(Code::internal, "tiles of ", spec.queries, " x ", spec.k_tile, ": both are 1 or more");
  const std::size_t captures = spec.mask.captures.size();
  if (captures > most_captures)
    problem::fail(Code::internal, "the mask reads ", captures, " captured tensors: at most ", most_captures);
  std::ostringstream printed, out;
  printed.imbue(std::locale::classic()), out.imbue(std::locale::classic());
  printed << "prepare: " << spec;
  KernelText text{"tessera_prepare", printed.str(), "", prepare_threads, sizeof(std::int64_t) * prepare_warps};
  out << "// " << text.spec << "\n" << (spec.runs ? mod_prelude() : "") << (spec.runs ? bounds_prelude() : "");
  out << kernel_source(spec.runs ? "prepare_runs.cuh" : "prepare.cuh");
  if (spec.runs) out << bounds_text("mask", spec.mask, spec.mask_dtypes);
  out << "struct Spec {\n  static constexpr bool packed = " << (spec.packed ? "true" : "false")
      << ";\n  static constexpr int q_tile = " << spec.queries << ", k_tile = " << spec.k_tile << ";\n";
  if (spec.runs) {
    write_mask(out, spec);
    text.smem_bytes +=
        std::max<std::size_t>(captures, 1) * sizeof(SummaryView) + prepare_threads * sizeof(SummaryEntry);
  }
  out << "};\nstruct Params {\n  tessera_kernels::PrepareParams p;\n"
      << (spec.runs ? "  bounds_math::mask_cell_arguments mask;\n" : "")
      << "};\nstatic_assert(sizeof(Params) == " << prepare_param_bytes(spec)
      << ", \"as the host packs it\");\nstatic_assert(sizeof(tessera_kernels::"
      << (spec.runs ? "PrepareShared<Spec::captures>" : "PrefixShared") << ") == " << text.smem_bytes
      << ", \"the shared memory that the launch gives\");\nextern \"C\" __global__ void __launch_bounds__("
      << prepare_threads << ")\n    " << text.name << "(const __grid_constant__ Params p) {\n  tessera_kernels::"
      << (spec.runs ? "prepare_all<Spec>(p.p, p.mask)" : "prepare_tiles<Spec>(p.p)") << ";\n}\n";
  text.source = std::move(out).str();
  return text;
}

std::size_t prepare_param_bytes(const PrepareSpec& spec) {
  return sizeof(PrepareParams) + (spec.runs ? 8 * argument_words(spec.mask) : 0);
}
void pack_prepare_arguments(const PrepareSpec& spec, std::span<const mods::Table> tables, std::uint64_t* words) {
  pack_arguments(spec.mask, tables, words, {.reals = Reals::f64});
}

std::size_t summary_bytes(const Capture& capture, const mods::Table& table) {
  if (is_empty(capture, table)) return 0;
  return (static_cast<std::size_t>(layout_of(capture, table).entries) + 1) * sizeof(SummaryEntry);
}

PrepareLaunches prepare_launches(const PrepareSpec& spec, std::span<const mods::Table> tables, std::int64_t items) {
  PrepareLaunches launches;
  const auto add = [&](int stage, int pass, std::int64_t blocks) {
    launches.all[launches.count++] = {stage, pass, blocks};
  };
  int pass = 0, passes = 0;
  for (; spec.runs; ++pass) {
    std::int64_t entries = 0;  // of this pass, of the tensor that has most
    for (std::size_t i = 0; i < spec.mask.captures.size(); ++i) {
      if (is_empty(spec.mask.captures[i], tables[i])) continue;
      const SummaryLayout layout = layout_of(spec.mask.captures[i], tables[i]);
      passes = std::max(passes, mods::intervals::passes_of(layout));
      if (pass < mods::intervals::passes_of(layout) - 1)
        entries = std::max(entries, mods::intervals::entries_of(layout, pass));
    }
    // The first pass has a warp an entry.
    if (entries <= (pass == 0 ? prepare_warps : entries_of_one_block)) break;
    const std::int64_t each = pass == 0 ? prepare_warps : prepare_threads, most = 4096;
    add(prepare_entries, pass, std::min((entries + each - 1) / each, most));
  }
  if (passes > 0 || spec.packed || !spec.runs) add(prepare_rest, pass, 1);
  if (spec.runs && items > 0) add(prepare_runs, 0, (items + prepare_warps - 1) / prepare_warps);
  return launches;
}

std::int64_t run_limit(std::int64_t key_tiles) { return std::clamp<std::int64_t>(key_tiles, 1, 96); }

}  // namespace tessera::emit
