// Score changes: the ready-made ones and how they follow each other.
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "mods/graph.hpp"
#include "mods/ready_made.hpp"
#include "tessera/trace.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {

using mods::Builder;
using mods::require;

ScoreMod::ScoreMod(const Graph& graph) {
  mods::verify_score(graph);
  if (graph.nodes.empty()) return;
  Builder& builder = mods::scratch_builder();
  *this = builder.finish_score(builder.import(graph));
}

ScoreMod operator>>(const ScoreMod& first, const ScoreMod& second) {
  if (second.is_identity()) return first;
  if (first.is_identity()) return second;
  Builder& builder = mods::scratch_builder();
  return builder.finish_score(builder.import(second.graph(), builder.import(first.graph())));
}

ScoreMod softcap(double cap) {
  if (!(cap > 0) || std::isinf(cap))
    throw Error(Code::invalid_option, "softcap: the cap is " + std::to_string(cap) + ": it is a number above 0");
  return score_mod([&](Expr s, Expr, Expr, Expr, Expr) {
    const Expr limit = param(cap);
    return limit * tanh(s / limit);
  });
}

ScoreMod alibi(std::string_view slope) {
  return score_mod([&](Expr s, Expr, Expr h, Expr q, Expr k) { return s + capture(slope, f32, 1)[h] * (k - q); });
}

ScoreMod bias_tensor(std::string_view name, int rank) {
  return score_mod([&](Expr s, Expr b, Expr h, Expr q, Expr k) {
    return s + mods::last_axes(capture(name, f32, rank), rank, {b, h, q, k});
  });
}

// The bucket of a distance beyond the exact ones grows with its logarithm, and there is no way from a real to an
// integer in an expression; so it is counted how many distances at which a bucket begins it has reached. They are those
// that T5 finds in fp32.
ScoreMod relative_bias(std::string_view table, std::int64_t buckets, std::int64_t max_distance, bool both_directions) {
  const std::int64_t least = both_directions ? 4 : 2, side = both_directions ? buckets / 2 : buckets;
  if (buckets < least || buckets > 256 || buckets % least != 0)
    throw Error(Code::invalid_option, "relative_bias: there are " + std::to_string(buckets) +
                                          " buckets: it is a multiple of " + std::to_string(least) + " up to 256");
  const std::int64_t exact = side / 2;
  require("relative_bias", "max_distance", max_distance, exact + 1, std::int64_t{1} << 24);
  std::vector<std::int64_t> begins;  // of the buckets exact + 1, exact + 2, ...
  for (std::int64_t d = exact; d <= max_distance && exact + static_cast<std::int64_t>(begins.size()) + 1 < side; ++d) {
    const float ratio = std::log(static_cast<float>(d) / static_cast<float>(exact)) /
                        static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
    const auto bucket = static_cast<std::int64_t>(ratio * static_cast<float>(side - exact));
    while (static_cast<std::int64_t>(begins.size()) < std::min(bucket, side - exact - 1)) begins.push_back(d);
  }
  return score_mod([&](Expr s, Expr, Expr h, Expr q, Expr k) {
    const Expr ahead = k - q, distance = both_directions ? abs(ahead) : max(-ahead, 0);
    Expr bucket = min(distance, param(exact));
    for (const std::int64_t begin : begins) bucket += where(distance >= param(begin), 1, 0);
    if (both_directions) bucket += where(ahead > 0, param(side), 0);
    return s + capture(table, f32, 2)[h][bucket];
  });
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
