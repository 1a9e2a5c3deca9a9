// Texts of kernels: embedded sources, mods, the spec as constants, the entry.
#include "emit/kernel_text.hpp"

#include <algorithm>
#include <sstream>
#include <vector>

#include "emit/bounds_text.hpp"
#include "emit/kernel_sources.hpp"
#include "emit/mod_text.hpp"
#include "emit/wgmma_text.hpp"
#include "kernels/layout.cuh"
#include "kernels/layout_sm90.cuh"
#include "kernels/params.cuh"
#include "kernels/params_sm90.cuh"
#include "mods/graph.hpp"
#include "problem/fail.hpp"

namespace tessera::emit {
namespace {

constexpr int warp_threads = 32, max_dim = 256;

// ------------------------------------------------------------------------------------------------ sources
std::string_view embedded(std::string_view name) {
  for (const KernelSource& source : kernel_sources())
    if (source.name == name) return source.text;
  problem::fail(Code::internal, "there is no kernel source '", name, "'");
}

// The name that a line includes; empty: it includes nothing.
std::string_view included(std::string_view line) {
  constexpr std::string_view word = "#include \"";
  if (line.substr(0, word.size()) != word) return {};
  line.remove_prefix(word.size());
  return line.substr(0, line.find('"'));
}

class Inliner {
 public:
  void add(std::string_view name) {
    if (std::find(done_.begin(), done_.end(), name) != done_.end()) return;
    done_.emplace_back(name);
    const std::size_t slash = name.rfind('/');
    const std::string folder(slash == std::string_view::npos ? "" : name.substr(0, slash + 1));
    std::string_view rest = embedded(name);
    text_ += "// ---- " + std::string(name) + "\n";
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      if (const std::string_view other = included(line); !other.empty()) add(folder + std::string(other));
      else if (line != "#pragma once") (text_ += line) += '\n';
    }
  }
  std::string take() { return std::move(text_); }

 private:
  std::vector<std::string> done_;
  std::string text_;
};

// ------------------------------------------------------------------------------------------------ specs
bool one_of(int value, std::initializer_list<int> allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

void require(bool holds, const ForwardSpec& spec, const char* what) {
  if (!holds) problem::fail(Code::internal, "no kernel can be made of this spec: ", what, ": ", spec);
}

void check(const ForwardSpec& s) {
  require(s.arch == 80 || s.arch == 90, s, "there are kernels of class 80 and 90 alone");
  require(one_of(static_cast<int>(s.dtype), {static_cast<int>(DType::bf16), static_cast<int>(DType::f16)}), s,
          "tensor cores take bf16 and f16");
  require(s.out_dtype == s.dtype || s.out_dtype == DType::f32, s, "o is of the type of q, or f32");
  require(s.dim >= 1 && s.dim <= max_dim && s.dim_v >= 1 && s.dim_v <= max_dim, s, "dims are 1 to 256");
  require(s.warps >= 1 && s.warps <= 16 && s.blocks >= 1, s, "1 to 16 warps");
  require(s.warps_n == 1 || (s.warps_n == 2 && s.warps % 2 == 0 && s.arch == 80), s,
          "one or two warps have the same rows");
  require(s.warps_n == 1 || s.out_dtype != DType::f32, s, "what rounding leaves of probabilities is not handed over");
  const int rows = s.warps / s.warps_n * 16;
  require(s.q_tile == rows || s.q_tile == 2 * rows, s, "a warp has 16 or 32 rows");
  require(s.k_tile % (16 * s.warps_n) == 0, s, "each warp has keys of its own in steps of 16");
  require(s.k_tile >= 16 && s.k_tile <= 256 && s.k_tile % 16 == 0, s, "keys come in steps of 16, at most 256");
  require(s.stages >= 1 && s.stages <= 4, s, "1 to 4 stages");
  require(s.early >= 1, s, "at least one step is exponentiated early");
  require(!s.fixed || (s.arch == 80 && s.dtype == DType::bf16 && s.out_dtype == s.dtype && !(s.split && s.lse)), s,
          "a fixed reference is for bf16 with results of bf16, and not for partial ones beside LSE");
  require(s.heads >= 1 && s.heads <= s.q_tile, s, "a tile has at least one query");
  for (const int bytes : {s.q_copy, s.k_copy, s.v_copy, s.o_copy})
    require(one_of(bytes, {16, 8, 4, 2}), s, "copies are of 16, 8, 4 or 2 bytes");
  require(s.bands >= 0 && s.bands <= tessera_kernels::max_bands, s, "at most 8 bands");
  require(s.keys != Keys::bands || s.mask.nodes.empty(), s, "a mask that bands describe is not evaluated");
  if (s.arch != 90) return;
  const int most = tessera_kernels::most_stages, warpgroups = s.warps / 4;
  require(
      s.warps % 4 == 0 && warpgroups >= 2 && warpgroups <= tessera_kernels::most_consumers && s.q_tile == 16 * s.warps,
      s, "two to four warpgroups consume, 64 rows each");
  require(s.stages <= most && s.v_stages >= 1 && s.v_stages <= most, s, "1 to 4 stages");
  require(s.q_buffers == 1 || s.q_buffers == 2, s, "one or two places for queries");
  require(s.q_copy == 16 && s.k_copy == 16 && s.v_copy == 16, s, "tensor copies take rows of 16-byte pieces");
  require(tessera_kernels::warpgroup_rows % s.heads == 0, s, "heads that share a tile divide the rows of a warpgroup");
  require(s.paged ? s.page_box == 1 || (s.page_box > 0 && s.page_box % 8 == 0 && s.k_tile % s.page_box == 0)
                  : s.page_box == 0,
          s, "copies of pages are of one key, or of 8 or a multiple of it, a tile's part");
}

const char* element(DType dtype) {
  return dtype == DType::bf16 ? "ptx::bf16" : dtype == DType::f16 ? "ptx::f16" : "float";
}
const char* word(bool value) { return value ? "true" : "false"; }
const char* word(Keys keys) { return keys == Keys::all ? "all" : keys == Keys::bands ? "bands" : "runs"; }

bool compares_reals(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    const bool compares = node.op >= Op::lt && node.op <= Op::ne;
    return compares && graph.nodes[node.arg[0]].type == Type::real;
  });
}

ModOptions score_options(const ForwardSpec& spec) {
  ModOptions options = mod_options(spec);
  options.absolute_tanh = spec.absolute_tanh, options.real_key = spec.narrow;
  return options;
}

// The mods as members of the spec, so that the kernels' sources name no emitted function.
void write_mods(std::ostream& out, const ForwardSpec& s) {
  const std::string mask = mod_function("mask", s.mask, Type::boolean, s.mask_dtypes, mask_options(s));
  out << mod_prelude() << mod_device_prelude()
      << mod_function("score", s.score, Type::real, s.score_dtypes, score_options(s));
  if (compares_reals(s.mask))
    out << bounds_prelude() << "namespace bounds_math {\n"
        << mask << "}  // namespace bounds_math\n"
        << "using bounds_math::mask;\nusing bounds_math::mask_arguments;\n";
  else out << mask;
  out << "struct Params {\n  tessera_kernels::ForwardParams f;\n  score_arguments score;\n  mask_arguments mask;\n";
  if (s.arch == 90) out << "  tessera_kernels::Deal deal;\n  ptx::TensorMap q_map, k_map, v_map, o_map;\n";
  out << "};\nstatic_assert(sizeof(Params) == " << forward_param_bytes(s) << ", \"as the host packs it\");\n";
}

void write_spec(std::ostream& out, const ForwardSpec& s) {
  const auto number = [&](const char* name, int value) {
    out << "  static constexpr int " << name << " = " << value << ";\n";
  };
  const auto flag = [&](const char* name, bool value) {
    out << "  static constexpr bool " << name << " = " << word(value) << ";\n";
  };
  out << "struct Spec {\n  using Params = ::Params;\n  using Element = " << element(s.dtype)
      << ";\n  using Output = " << element(s.out_dtype) << ";\n";
  number("dim", s.dim), number("dim_v", s.dim_v), number("q_tile", s.q_tile), number("k_tile", s.k_tile);
  number("warps", s.warps), number("stages", s.stages), number("heads", s.heads), number("bands", s.bands);
  number("early", s.early), number("warps_n", s.warps_n);
  if (s.arch == 90) {
    number("v_stages", s.v_stages), number("q_buffers", s.q_buffers), flag("ping_pong", s.ping_pong);
    flag("turned", s.turned), number("page_box", s.page_box);
    // What two, three or four warpgroups of consumers can have beside one of producers; with two, as much as S, P and O
    // make necessary.
    const int two = s.dim_v <= 192 ? 224 : s.k_tile <= 64 ? 232 : 240;
    number("consumer_registers", s.warps == 8 ? two : s.warps == 12 ? 160 : 112);
    number("producer_registers", s.warps == 8 ? 504 - 2 * two : 32);
  }
  number("q_copy", s.q_copy), number("k_copy", s.k_copy), number("v_copy", s.v_copy), number("o_copy", s.o_copy);
  flag("q_registers", s.q_registers), flag("packed", s.packed), flag("paged", s.paged), flag("lengths", s.lengths);
  flag("split", s.split), flag("lse", s.lse), flag("sinks", s.sinks);
  flag("left_open", s.left_open || s.keys != Keys::bands);
  flag("scored", !s.score.nodes.empty()), flag("masked", !s.mask.nodes.empty());
  flag("fixed", s.fixed);
  out << "  static constexpr tessera_kernels::Keys keys = tessera_kernels::Keys::" << word(s.keys) << ";\n"
      << "  using Position = " << position_type(s.narrow) << ";\n"
      << "  PTX float score(float s, Position b, Position h, Position q, Position k, float real_k, const Params& p) {\n"
         "    return ::score(s, b, h, q, k, "
      << (s.narrow ? "real_k, " : "") << "p.score);\n  }\n"
      << "  PTX bool mask(Position b, Position h, Position q, Position k, const Params& p) {\n"
         "    return ::mask(0.0f, b, h, q, k, p.mask);\n  }\n};\n";
}

std::string printed(const ForwardSpec& spec) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << spec;
  return std::move(out).str();
}

std::string kernel_name(const char* kind, const ForwardSpec& s) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << "tessera_" << kind << "_sm" << s.arch << '_' << name(s.dtype) << "_d" << s.dim;
  if (s.dim_v != s.dim) out << '_' << s.dim_v;
  out << '_' << s.q_tile << 'x' << s.k_tile;
  return std::move(out).str();
}

// `body` is the kernel's function over Spec; `claims` holds of the spec, or the text does not compile.
KernelText text_of(const char* kind, const char* source, const char* body, const ForwardSpec& s, int threads,
                   int blocks, std::size_t smem_bytes, const std::string& claims) {
  KernelText text{kernel_name(kind, s), kind + (": " + printed(s)), "", threads, smem_bytes};
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << text_head(text) << kernel_source(source);
  if (s.arch == 90) {
    const WgmmaForm forms[] = {{s.dtype, s.k_tile, false, false, false},
                               {s.dtype, tessera_kernels::padded_dim(s.dim_v), true, false, true}};
    out << wgmma_text(forms);
  }
  write_mods(out, s);
  write_spec(out, s);
  out << claims << "extern \"C\" __global__ void __launch_bounds__(" << threads << ", " << blocks << ")\n    "
      << text.name << "(const __grid_constant__ Params p) {\n  tessera_kernels::" << body << "<Spec>(p);\n}\n";
  text.source = std::move(out).str();
  return text;
}

}  // namespace

std::string text_head(const KernelText& text) {
  return "// " + text.spec +
         "\n#ifdef __CUDACC__\n#pragma nv_diag_suppress 177  // of what a text holds, not all is used\n#endif\n";
}

std::string kernel_source(std::string_view name) {
  Inliner inliner;
  inliner.add(name);
  return inliner.take();
}

ModOptions mask_options(const ForwardSpec& spec) {
  return compares_reals(spec.mask) ? ModOptions{.reals = Reals::f64} : mod_options(spec);
}
ModOptions mod_options(const ForwardSpec& spec) { return {Reals::f32, Functions::device, spec.narrow}; }

std::size_t deal_param_at(const ForwardSpec& spec) {
  return sizeof(tessera_kernels::ForwardParams) + 8 * (argument_words(spec.score) + argument_words(spec.mask));
}
std::size_t map_params_at(const ForwardSpec& spec) {
  const std::size_t before = deal_param_at(spec) + sizeof(tessera_kernels::Deal);
  return (before + 63) / 64 * 64;
}
std::size_t forward_param_bytes(const ForwardSpec& spec) {
  return spec.arch == 90 ? map_params_at(spec) + 4 * map_bytes : deal_param_at(spec);
}

namespace {

KernelText forward_text_sm90(const ForwardSpec& s) {
  const int warpgroups = s.warps / 4;
  const auto bytes = static_cast<std::size_t>(
      tessera_kernels::shared_bytes_sm90(warpgroups, s.k_tile, s.stages, s.v_stages, s.q_buffers, s.dim, s.dim_v));
  return text_of("forward", "forward_sm90.cuh", "forward_sm90", s, 4 * warp_threads * (warpgroups + 1), 1, bytes,
                 "static_assert(sizeof(tessera_kernels::SharedSm90<Spec>) == " + std::to_string(bytes) +
                     ", \"the shared memory that the launch gives\");\n");
}

}  // namespace

KernelText forward_text(const ForwardSpec& s) {
  check(s);
  if (s.arch == 90) return forward_text_sm90(s);
  const auto bytes = static_cast<std::size_t>(tessera_kernels::forward_shared_bytes(
      s.q_tile, s.k_tile, s.stages, s.dim, s.dim_v, s.paged, s.warps_n, s.keys == Keys::runs));
  return text_of("forward", "forward_sm80.cuh", "forward_sm80", s, warp_threads * s.warps, s.blocks, bytes,
                 "static_assert(sizeof(tessera_kernels::Shared<Spec>) == " + std::to_string(bytes) +
                     ", \"the shared memory that the launch gives\");\n");
}

KernelText combine_text(const ForwardSpec& given) {
  check(given);
  require(given.split, given, "there are no partial results to combine");
  ForwardSpec s = given;  // what the text does not depend on is left out: one kernel for many
  s.dim = s.dim_v, s.k_tile = 64, s.warps = s.q_tile / 16, s.stages = 1, s.blocks = 1, s.q_registers = false;
  s.early = 1, s.warps_n = 1, s.q_copy = s.k_copy = s.v_copy = 16;
  s.page_box = 0, s.paged = s.lengths = s.narrow = false, s.keys = Keys::all, s.bands = 0, s.left_open = false;
  s.absolute_tanh = false, s.score = {}, s.mask = {}, s.score_dtypes.clear(), s.mask_dtypes.clear();
  s.arch = 80;
  return text_of("combine", "combine.cuh", "combine", s, tessera_kernels::combine_threads, 1, 0, "");
}

}  // namespace tessera::emit
