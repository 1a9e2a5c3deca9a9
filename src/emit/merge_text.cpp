#include "emit/merge_text.hpp"

#include <bit>
#include <locale>
#include <ostream>
#include <sstream>

#include "kernels/merge_params.cuh"
#include "problem/fail.hpp"

namespace tessera::emit {
namespace {

const char* element(const MergeSpec& spec, DType dtype) {
  if (dtype == DType::bf16) return "ptx::bf16";
  if (dtype == DType::f16) return "ptx::f16";
  if (dtype != DType::f32) problem::fail(Code::internal, "no kernel can be made of this spec: ", spec);
  return "float";
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const MergeSpec& s) {
  return out << s.a << ", " << s.b << " -> " << s.out << ", width " << s.width;
}

KernelText merge_text(const MergeSpec& s) {
  if (s.width < 1 || s.width > 8 || !std::has_single_bit(static_cast<unsigned>(s.width)))
    problem::fail(Code::internal, "no kernel can be made of this spec: ", s, ": widths are 1, 2, 4 and 8");
  std::ostringstream printed, out;
  printed.imbue(std::locale::classic()), out.imbue(std::locale::classic());
  printed << "merge: " << s;
  KernelText text{"tessera_merge", printed.str(), "", tessera_kernels::merge_threads, 0};
  out << text_head(text) << kernel_source("merge.cuh") << "struct Spec {\n  using A = " << element(s, s.a)
      << ";\n  using B = " << element(s, s.b) << ";\n  using Output = " << element(s, s.out)
      << ";\n  static constexpr int width = " << s.width << ";\n};\nusing Params = tessera_kernels::MergeParams;\n"
      << "static_assert(sizeof(Params) == " << sizeof(tessera_kernels::MergeParams)
      << ", \"as the host packs it\");\nextern \"C\" __global__ void __launch_bounds__(" << text.threads << ")\n    "
      << text.name << "(const __grid_constant__ Params p) {\n  tessera_kernels::merge<Spec>(p);\n}\n";
  text.source = std::move(out).str();
  return text;
}

}  // namespace tessera::emit
