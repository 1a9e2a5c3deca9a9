#include "gpu/deal.hpp"

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>

namespace tessera::gpu {
namespace {

constexpr double start_cost = 1;  // of an item, in key tiles

}  // namespace

DealList deal(const Work& work, int blocks, double cache_bytes) {
  using Free = std::pair<double, int>;  // when, and which block
  std::priority_queue<Free, std::vector<Free>, std::greater<>> free;
  for (int b = 0; b < blocks; ++b) free.push({0.0, b});
  std::vector<std::size_t> order(static_cast<std::size_t>(work.tiles));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return work.cost[a] > work.cost[b]; });
  const std::int64_t groups = work.heads / work.group;
  const auto at_once = static_cast<std::int64_t>(
      std::clamp(cache_bytes / std::max(1.0, work.bytes_of_keys), 1.0, static_cast<double>(groups)));
  std::vector<std::vector<unsigned>> lists(static_cast<std::size_t>(blocks));
  for (std::int64_t first = 0; first < groups; first += at_once) {
    const std::int64_t begin = first * work.group, end = std::min(groups, first + at_once) * work.group;
    for (const std::size_t tile : order)
      for (std::int64_t head = begin; head < end; ++head) {
        const auto [when, block] = free.top();
        free.pop();
        lists[static_cast<std::size_t>(block)].push_back(
            static_cast<unsigned>(head * work.tiles + static_cast<std::int64_t>(tile)));
        free.push({when + work.cost[tile] + start_cost, block});
      }
  }
  DealList dealt;
  dealt.begin.push_back(0);
  for (const std::vector<unsigned>& list : lists) {
    dealt.list.insert(dealt.list.end(), list.begin(), list.end());
    dealt.begin.push_back(static_cast<unsigned>(dealt.list.size()));
  }
  return dealt;
}

}  // namespace tessera::gpu
