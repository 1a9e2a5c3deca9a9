// The baseline's rows, compiled for avx512.
#include "cli/standard_loops.hpp"

namespace tessera::cli {

const StandardRows standard_rows_avx512{"avx512", softmax_row, scale_row, widen_row, narrow_row};

}  // namespace tessera::cli
