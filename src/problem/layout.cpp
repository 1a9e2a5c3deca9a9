// Whether elements share memory. Must not know: attention, what an axis means.
#include "problem/layout.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace tessera::problem {
namespace {

__extension__ using Wide = __int128;  // sums of two reaches, and of a reach and a difference of addresses

Wide floor_div(Wide a, Wide b) { return a / b - (a % b != 0 && a < 0 ? 1 : 0); }  // b > 0
Wide ceil_div(Wide a, Wide b) { return -floor_div(-a, b); }

// The difference of the addresses of two elements is a constant plus a sum of terms n * stride, n in [lo, hi]; they
// share a byte when it comes out within [low, high].
struct Term {
  std::int64_t stride;
  std::int64_t lo, hi;
};

class Search {
 public:
  Search(const Tensor& a, const Tensor& b)
      : low_(1 - size_bytes(a.dtype)),
        high_(size_bytes(b.dtype) - 1),
        difference_(static_cast<Wide>(reinterpret_cast<std::uintptr_t>(a.data)) -
                    static_cast<Wide>(reinterpret_cast<std::uintptr_t>(b.data))) {
    for (int axis = 0; axis < a.rank; ++axis) add(a, axis, 0, a.shape[axis] - 1);
    for (int axis = 0; axis < b.rank; ++axis) add(b, axis, 1 - b.shape[axis], 0);
    std::sort(terms_.begin(), terms_.begin() + count_,
              [](const Term& x, const Term& y) { return x.stride > y.stride; });
    rest_min_[count_] = rest_max_[count_] = 0;
    for (int i = count_ - 1; i >= 0; --i) {
      rest_min_[i] = rest_min_[i + 1] + static_cast<Wide>(terms_[i].lo) * terms_[i].stride;
      rest_max_[i] = rest_max_[i + 1] + static_cast<Wide>(terms_[i].hi) * terms_[i].stride;
    }
  }

  Meeting run() {
    if (reaches(0, difference_)) return Meeting::shared;
    return steps_ > max_steps ? Meeting::undecided : Meeting::apart;
  }

 private:
  // Nested views take at most three values of n for each term, 3^5 in all.
  static constexpr int max_steps = 4096;

  // Axes of equal stride, of one view or of both, are one term: every n between the ends is a sum of theirs.
  void add(const Tensor& t, int axis, std::int64_t lo, std::int64_t hi) {
    if (t.shape[axis] <= 1 || t.stride[axis] == 0) return;
    const std::int64_t stride = t.stride[axis] * size_bytes(t.dtype);
    auto* same =
        std::find_if(terms_.begin(), terms_.begin() + count_, [&](const Term& x) { return x.stride == stride; });
    if (same == terms_.begin() + count_) *same = {stride, 0, 0}, ++count_;
    same->lo += lo, same->hi += hi;
  }

  bool reaches(int term, Wide value) {
    if (++steps_ > max_steps) return false;
    if (term == count_) return low_ <= value && value <= high_;
    const Term& t = terms_[term];
    const Wide first = std::max<Wide>(t.lo, ceil_div(low_ - rest_max_[term + 1] - value, t.stride));
    const Wide last = std::min<Wide>(t.hi, floor_div(high_ - rest_min_[term + 1] - value, t.stride));
    for (Wide n = first; n <= last && steps_ <= max_steps; ++n)
      if (reaches(term + 1, value + n * t.stride)) return true;
    return false;
  }

  Wide low_, high_, difference_;
  std::array<Term, 2 * max_rank> terms_{};
  int count_ = 0;
  std::array<Wide, 2 * max_rank + 1> rest_min_{}, rest_max_{};
  int steps_ = 0;
};

}  // namespace

namespace {

// Nearly every view has its strides in the order of its axes.
bool nests_in_order(const Tensor& t) {
  std::int64_t covered = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    if (t.shape[axis] <= 1) continue;
    if (t.stride[axis] < covered) return false;
    covered += (t.shape[axis] - 1) * t.stride[axis];
  }
  return true;
}

}  // namespace

std::optional<Collision> find_collision(const Tensor& t) {
  if (nests_in_order(t) || is_empty(t)) return std::nullopt;
  // By stride, a stride of 0 behind all others: what they cover is then what it would have to pass.
  auto before = [&](int a, int b) { return t.stride[a] != 0 && (t.stride[b] == 0 || t.stride[a] < t.stride[b]); };
  std::array<int, max_rank> order{};
  int count = 0;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    if (t.shape[axis] <= 1) continue;
    int at = count++;
    for (; at > 0 && before(axis, order[at - 1]); --at) order[at] = order[at - 1];
    order[at] = axis;
  }
  std::int64_t covered = 1;
  for (int i = 0; i < count; ++i) {
    const int axis = order[i];
    if (t.stride[axis] < covered) return Collision{axis, covered};
    covered += (t.shape[axis] - 1) * t.stride[axis];
  }
  return std::nullopt;
}

Meeting meet(const Tensor& a, const Tensor& b) {
  if (is_empty(a) || is_empty(b)) return Meeting::apart;
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data), begin_b = reinterpret_cast<std::uintptr_t>(b.data);
  if (begin_a >= begin_b + static_cast<std::uintptr_t>(*reach_bytes(b)) ||
      begin_b >= begin_a + static_cast<std::uintptr_t>(*reach_bytes(a)))
    return Meeting::apart;
  return Search(a, b).run();
}

}  // namespace tessera::problem
