// Which candidate runs: a table read top to bottom; the first match wins that does not leave it to a better one.
// Must not know: what a backend is beyond its name and its answers. Pure.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/plan.hpp"

namespace tessera::plans {

struct Candidate {
  std::string_view backend, variant;  // "cpu", "avx2"
  std::string missing;                // what this machine lacks; empty: it is here, or needs_missing() says no
  std::vector<std::string> reasons;   // why the problem cannot be run; empty: it can
  std::string better_elsewhere{};  // why a later candidate of the same backend is the better choice; empty: it is not
  std::string full_name() const { return std::string(backend) + ":" + std::string(variant); }
};

// Whether choose() needs to know what the machine lacks of a candidate with such reasons. Else it is not to be asked:
// finding out may open a driver, which a call on other tensors must not.
bool needs_missing(const Candidate& candidate, std::string_view pinned);

struct Choice {
  std::size_t index = 0;
  std::vector<PassedOver> passed_over;  // those before it in the list
};

// pinned: "" (the first that can, unless it names a better one that can, too), "cpu" (the first of that backend) or
// "cpu:avx2" (that one). Throws Error(unsupported) with every reason when none can, Error(invalid_option) listing the
// names for an unknown one.
Choice choose(const std::vector<Candidate>& candidates, std::string_view pinned);

// What the problem asks for and moves at least; exact where the tile map is.
Cost cost(const Problem& problem, const TileMap& tiles);

}  // namespace tessera::plans
