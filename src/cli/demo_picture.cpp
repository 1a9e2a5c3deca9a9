// One head's attention weights, and the head and window that show a pattern best.
#include <algorithm>
#include <limits>

#include "cli/demo.hpp"
#include "conformance/accuracy.hpp"

namespace tessera::cli::demo {
namespace {

// Weights of one head, [tokens, tokens]: attention over columns of the unit matrix, a few at a time because a head's
// dim has a limit. With `judged` every weight is held against fp64 as well.
std::vector<float> weights_of(const Data& data, const Layer& layer, int head, const Settings& settings,
                              Picture* judged = nullptr) {
  constexpr std::int64_t most_columns = 256;
  const std::int64_t n = data.count(), stride = data.heads * data.dim;
  std::vector<float> weights(static_cast<std::size_t>(n * n), std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t first = 0; first < n; first += most_columns) {
    const std::int64_t columns = std::min(most_columns, n - first);
    std::vector<float> unit(static_cast<std::size_t>(n * columns), 0.0f);
    for (std::int64_t i = 0; i < columns; ++i) unit[static_cast<std::size_t>((first + i) * columns + i)] = 1;
    const auto rows_of = [&](const std::vector<float>& x) {
      return tensor(x.data() + head * data.dim, {1, n, 1, data.dim}, {n * stride, stride, data.dim, 1});
    };
    const Inputs in{.q = rows_of(layer.q), .k = rows_of(layer.k), .v = tensor(unit.data(), {1, n, 1, columns})};
    const Outputs out{.o = tensor(weights.data() + first, {1, n, 1, columns}, {n * n, n, n, 1})};
    const Options options{.backend = settings.backend};
    attention(in, out, options, {.threads = settings.threads});
    if (!judged) continue;
    const conformance::Verdict verdict =
        conformance::judge(conformance::expect(in, options, f32, conformance::all_rows(in, options)), out);
    judged->allowance_used = std::max(judged->allowance_used, verdict.worst);
    if (!verdict && judged->failure.empty()) judged->failure = verdict.first;
  }
  return weights;
}

// Weight that query q gives to the key at a distance; 0 beyond the text.
double at_distance(const std::vector<float>& weights, std::int64_t n, std::int64_t q, std::int64_t distance) {
  const std::int64_t k = q + distance;
  return k < 0 || k >= n ? 0 : static_cast<double>(weights[static_cast<std::size_t>(q * n + k)]);
}

}  // namespace

Picture look(const Data& data, const Settings& settings) {
  constexpr std::int64_t window = 24, reach = 3;
  const std::int64_t n = data.count();
  Picture best;
  best.share = -1;
  std::vector<float> chosen;
  for (const Layer& layer : data.layers) {
    if (settings.layer >= 0 && layer.index != settings.layer) continue;
    for (int head = 0; head < data.heads; ++head) {
      if (settings.head >= 0 && head != settings.head) continue;
      const std::vector<float> weights = weights_of(data, layer, head, settings);
      for (std::int64_t distance = -reach; distance <= reach; ++distance) {
        double share = 0;
        for (std::int64_t q = 0; q < n; ++q) share += at_distance(weights, n, q, distance) / static_cast<double>(n);
        if (share > best.share) {
          best.layer = layer.index, best.head = head, best.distance = distance, best.share = share;
          chosen = weights;
        }
      }
    }
  }
  if (chosen.empty()) {
    std::string layers;
    for (const Layer& layer : data.layers) layers += (layers.empty() ? "" : ", ") + std::to_string(layer.index);
    throw Error(Code::invalid_option,
                "no such head: the data has layers " + layers + " with heads 0 to " + std::to_string(data.heads - 1));
  }

  best.tokens = n, best.count = std::min(window, n);
  best.first = std::clamp<std::int64_t>(settings.first_token, 0, n - best.count);
  best.weights.assign(chosen.begin() + best.first * n, chosen.begin() + (best.first + best.count) * n);
  for (const Layer& layer : data.layers)
    if (layer.index == best.layer) weights_of(data, layer, best.head, settings, &best);
  best.passed = best.failure.empty();
  return best;
}

}  // namespace tessera::cli::demo
