// The baseline's rows, compiled for scalar.
#include "cli/standard_loops.hpp"

namespace tessera::cli {

const StandardRows standard_rows_scalar{"scalar", softmax_row, scale_row, widen_row, narrow_row};

}  // namespace tessera::cli
