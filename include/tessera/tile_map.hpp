// Which tiles matter, derived from the mask's graph. The second stage of the flow.
// A mask that sees only the distance k - q is solved exactly: a few *bands*, each k - q in [lo, hi], with no metadata
// at all. Any other mask is left to the backend, which asks for its runs of tiles (src/tiles/runs.hpp).
#pragma once
#include <array>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <span>

#include "tessera/mods.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {

enum class Coverage : std::uint8_t { empty, partial, full };

// A maximal set of distances: lo <= k - q <= hi. The extreme int64 values mean no limit.
struct Band {
  std::int64_t lo = std::numeric_limits<std::int64_t>::min();
  std::int64_t hi = std::numeric_limits<std::int64_t>::max();
  bool operator==(const Band&) const = default;
};

// The answer for a box of queries and keys: the keys [begin, end) outside which nothing is attended to, and whether
// every pair of what remains is.
struct Cover {
  Coverage coverage = Coverage::empty;
  std::int64_t k_begin = 0, k_end = 0;
};

class TileMap {
 public:
  static constexpr std::size_t max_bands = 8;

  TileMap() = default;  // of the full mask
  explicit TileMap(const Mask& mask);

  bool decided() const { return decided_; }  // false: bands do not describe the mask
  // Sorted, disjoint, not adjacent. Undecided: none.
  std::span<const Band> bands() const { return {bands_.data(), count_}; }

  // For logical queries [q_begin, q_end) and keys [k_begin, k_end), both not empty; positions at most 2^48 off zero.
  Cover cover(std::int64_t q_begin, std::int64_t q_end, std::int64_t k_begin, std::int64_t k_end) const;
  // Number of attended pairs for queries [q_begin, q_end) and keys [0, keys): exact if decided, else all pairs.
  // In double: a count that may pass 2^63.
  double pairs(std::int64_t q_begin, std::int64_t q_end, std::int64_t keys) const;
  bool operator==(const TileMap&) const = default;

 private:
  bool decided_ = true;
  std::size_t count_ = 1;
  std::array<Band, max_bands> bands_{Band{}};
};
std::ostream& operator<<(std::ostream& out, const TileMap& map);

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
