// What the ready-made masks and score changes share: the checks of their numbers, and their names in the text form.
// Must not know: tiles, tensors, backends.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/trace.hpp"

namespace tessera::mods {

// Throws Error(invalid_option) unless least <= value <= most.
void require(std::string_view mod, std::string_view what, std::int64_t value, std::int64_t least, std::int64_t most);
// captured[k], [q][k], [h][q][k] or [b][h][q][k]. Of another rank: captured, whose use is refused.
Expr last_axes(Captured captured, int rank, const std::array<Expr, 4>& axes);

// One that the parser knows by name. Its arguments, a letter each: t a tensor's name, i an integer, r a real, B true or
// false; from the first capital letter on they may be left out.
struct Arguments {
  std::string_view tensor;
  std::array<std::int64_t, 4> integer{};
  double real = 0;
  std::size_t integers = 0;  // how many were given
  std::int64_t integer_or(std::size_t i, std::int64_t otherwise) const { return i < integers ? integer[i] : otherwise; }
};
struct ReadyMade {
  std::string_view name, arguments;
  bool is_score;
  Graph (*make)(const Arguments& given);
};
std::span<const ReadyMade> ready_made();

}  // namespace tessera::mods
