#include "emit/kernel_spec.hpp"

#include <ostream>

#include "mods/graph.hpp"

namespace tessera::emit {
namespace {

void print_dtypes(std::ostream& out, const std::vector<DType>& dtypes) {
  for (std::size_t i = 0; i < dtypes.size(); ++i) out << (i == 0 ? " of " : ", ") << dtypes[i];
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const ForwardSpec& s) {
  out << "forward sm_" << s.arch << ' ' << s.dtype << " -> " << s.out_dtype << ", dim " << s.dim << '/' << s.dim_v
      << ", tile " << s.q_tile << 'x' << s.k_tile << ", warps " << s.warps << " x " << s.blocks << ", stages "
      << s.stages;
  if (s.fixed) out << ", fixed reference";
  if (s.q_registers) out << ", q in registers";
  if (s.warps_n > 1) out << ", " << s.warps_n << " warps on the same rows";
  if (s.early != 3) out << ", early " << s.early;
  if (s.arch == 90)
    out << '/' << s.v_stages << '/' << s.q_buffers << (s.ping_pong ? ", in turns" : "") << (s.turned ? ", turned" : "");
  out << ", copies " << s.q_copy << '/' << s.k_copy << '/' << s.v_copy << '/' << s.o_copy;
  if (s.heads > 1) out << ", heads " << s.heads;
  if (s.packed) out << ", packed";
  if (s.paged) out << ", paged";
  if (s.page_box > 0) out << " by " << s.page_box;
  if (s.lengths) out << ", lengths";
  switch (s.keys) {
    case Keys::all:
      out << ", all keys";
      break;
    case Keys::bands:
      out << ", bands " << s.bands << (s.left_open ? " open to the left" : "");
      break;
    case Keys::runs:
      out << ", runs";
      break;
  }
  if (s.split) out << ", split";
  if (s.lse) out << ", lse";
  if (s.sinks) out << ", sinks";
  if (s.narrow) out << ", narrow";
  if (s.absolute_tanh) out << ", absolute tanh";
  if (!s.score.nodes.empty()) {
    out << ", score " << s.score;
    print_dtypes(out, s.score_dtypes);
  }
  if (!s.mask.nodes.empty()) {
    out << ", mask " << s.mask;
    print_dtypes(out, s.mask_dtypes);
  }
  return out;
}

}  // namespace tessera::emit
