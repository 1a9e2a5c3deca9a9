#include "sim/behaviours.hpp"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "sim/compile.hpp"
#include "sim/folder.hpp"
#include "sim/region.hpp"
#include "sim/sources.hpp"

namespace tessera::sim {
namespace {

struct Params {  // of behaviours.cuh
  std::uint32_t which;
  std::uint32_t* out;
  const std::uint32_t* in;
  std::uint32_t* fresh;
};
constexpr std::size_t words = 1024, shared_bytes = 4096;

}  // namespace

CaseText case_text(const std::string& file, const std::string& more, int threads, const std::string& locals,
                   const std::string& arguments) {
  CaseText made;
  const std::string kernels = file_text(file);
  const std::string mark = "\nBEHAVIOUR(";
  for (std::size_t at = kernels.find(mark); at != std::string::npos; at = kernels.find(mark, at + 1)) {
    const std::size_t begin = at + mark.size();
    made.names.push_back(kernels.substr(begin, kernels.find(')', begin) - begin));
  }
  std::ostringstream out;
  out << inlined("#include \"" + file.substr(file.find('/') + 1) + "\"\n");
  if (!more.empty()) out << "#line 1 \"src/kernels/ptx/emitted\"\n" << more;
  out << "#line 1 \"entry\"\nextern \"C\" __global__ void __launch_bounds__(" << threads
      << ") behaviours(const __grid_constant__ Params p) {\n"
         "  auto& s = ptx::shared_memory<Shared>();\n"
         "  const u32 t = threadIdx.x, lane = t % 32"
      << locals << ";\n  switch (p.which) {\n";
  for (std::size_t i = 0; i < made.names.size(); ++i)
    out << "    case " << i << ": return " << made.names[i] << "(p, s, t, lane" << arguments << ");\n";
  out << "  }\n}\n";
  made.text = out.str();
  return made;
}

int Behaviour::of(const std::string& kind) const {
  return int(
      std::count_if(result.reports.begin(), result.reports.end(), [&](const Report& r) { return r.kind == kind; }));
}

Behaviour behave(const std::string& name, const Setting& setting) {
  static const CaseText text = case_text("tests/sim/behaviours.cuh", "", 128, "", "");
  const auto found = std::find(text.names.begin(), text.names.end(), name);
  if (found == text.names.end()) throw std::runtime_error("behaviours.cuh has no " + name);
  const LoadedCode& code = compiled({"g++", cache_folder(), setting.checked}, "behaviours", text.text);
  const Memory out("out", words * 4), in("in", words * 4, Content::constant), fresh("fresh", 256, Content::nothing);
  std::iota(in.as<std::uint32_t>(), in.as<std::uint32_t>() + words, 0u);
  std::fill_n(out.as<std::uint32_t>(), setting.zeroed, 0u);
  const Params params{std::uint32_t(found - text.names.begin()), out.as<std::uint32_t>(), in.as<std::uint32_t>(),
                      fresh.as<std::uint32_t>()};
  Behaviour b{launch(code, setting.blocks, 128, shared_bytes, &params, setting.schedule), {}};
  b.out.assign(out.as<std::uint32_t>(), out.as<std::uint32_t>() + words);
  return b;
}

}  // namespace tessera::sim
