// Standard attention in the input type: what an ordinary implementation would get. Its error is the measure of ours.
// Must not know: tiles, plans, backends, tolerances.
#pragma once
#include "oracle.hpp"

namespace tessera::conformance {

struct Standard {
  std::vector<float> o;       // [rows, dim_v], rounded to the output type
  std::vector<float> lse_ln;  // [rows]
};
// S = scale * q.k in fp32, P = exp(S - max) rounded to the input type, PV and the sum of the unrounded P in fp32, then
// normalised and rounded to `out`. `order` (of `orders`) picks where the sums start and which way they run; odd ones
// scale q, in fp32, before the product, and every second pair multiplies and adds in one rounding. All are standard
// attention, and their errors differ.
Standard attend_standard(const Inputs& inputs, const Options& options, DType out, std::span<const Row> rows,
                         int order = 0, int orders = 1, Attended* attended = nullptr);

// `value` rounded to a storage type and back.
float round_to(DType dtype, float value);

}  // namespace tessera::conformance
