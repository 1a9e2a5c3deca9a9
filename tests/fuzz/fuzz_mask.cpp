// Any text as a mask: refused by Error(parse), or a mask whose text reads back as an equal one, which can be evaluated
// anywhere, and whose tile map never promises more than the mask holds.
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>

#include "mods/graph.hpp"
#include "require.hpp"
#include "tessera/mods.hpp"
#include "tessera/tile_map.hpp"

using namespace tessera;

namespace {

std::string text(const Mask& mask) {
  std::ostringstream out;
  out << mask;
  return out.str();
}

// The map knows no batch and no head: what it says holds for all of them.
void check_tiles(const Mask& mask, const TileMap& map, std::int64_t q0, std::int64_t k0) {
  constexpr std::int64_t rows = 5, keys = 7;
  const Cover cover = map.cover(q0, q0 + rows, k0, k0 + keys);
  double attended = 0;
  for (std::int64_t q = q0; q < q0 + rows; ++q)
    for (std::int64_t k = k0; k < k0 + keys; ++k) {
      const bool on = mods::evaluate_mask(mask.graph(), {.b = 1, .h = 2, .q = q, .k = k});
      attended += on;
      const bool inside = cover.coverage != Coverage::empty && cover.k_begin <= k && k < cover.k_end;
      if (on) REQUIRE(inside);
      if (!on && inside) REQUIRE(cover.coverage != Coverage::full);
    }
  if (cover.coverage == Coverage::full) REQUIRE(attended == static_cast<double>(rows * (cover.k_end - cover.k_begin)));
  if (k0 == 0 && map.decided()) REQUIRE(map.pairs(q0, q0 + rows, keys) == attended);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  Mask mask;
  try {
    mask = parse_mask(input);
  } catch (const Error& error) {
    REQUIRE(error.code() == Code::parse || error.code() == Code::invalid_mod || error.code() == Code::invalid_option);
    return 0;
  }
  const std::string printed = text(mask);
  const Mask again = parse_mask(printed);
  REQUIRE(again == mask);
  REQUIRE(hash(again.graph()) == hash(mask.graph()));
  REQUIRE(text(again) == printed);
  mods::verify(mask.graph());

  constexpr std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                         high = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t points[] = {0, 1, -1, 2, 63, 1000, std::int64_t{1} << 32, high, low};
  for (const std::int64_t q : points)
    for (const std::int64_t k : points) (void)mods::evaluate_mask(mask.graph(), {.b = k, .h = q, .q = q, .k = k});

  const TileMap map(mask);
  for (const std::int64_t q : {std::int64_t{0}, std::int64_t{6}, std::int64_t{-9}, std::int64_t{1} << 40})
    for (const std::int64_t k : {std::int64_t{0}, std::int64_t{5}, (std::int64_t{1} << 40) - 3})
      check_tiles(mask, map, q, k);
  return 0;
}
