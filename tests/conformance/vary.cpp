#include "vary.hpp"

#include <algorithm>

namespace tessera::conformance {
namespace {

constexpr Family families[] = {Family::normal,     Family::outlier,      Family::growing,  Family::falling,
                               Family::huge,       Family::tiny,         Family::constant, Family::zeros,
                               Family::nan_masked, Family::nan_attended, Family::neg_inf};

// A number of tokens near another one: beside a tile's end, a bit more or less, or anything up to twice as many.
std::int64_t near(Random& r, std::int64_t tokens) {
  if (tokens == 0) return r.chance(0.8) ? 0 : 1;
  switch (r.below(4)) {
    case 0:
      return tokens;
    case 1:
      return std::max<std::int64_t>(1, tokens / 64 * 64 + r.between(-1, 1));
    case 2:
      return std::max<std::int64_t>(1, tokens + r.between(-9, 9));
    default:
      return r.between(1, tokens + tokens / 4);
  }
}

// Other numbers between the parentheses of windows, which are run-time values.
std::string other_windows(Random& r, std::string mask) {
  for (std::size_t at = 0; (at = mask.find("window(", at)) != std::string::npos;) {
    at += 7;
    const std::size_t end = mask.find_first_not_of("0123456789", at);
    if (end == at || r.chance(0.5)) continue;
    const std::string digits = std::to_string(r.below(200));
    mask.replace(at, end - at, digits);
  }
  return mask;
}

}  // namespace

CaseSpec vary(const CaseSpec& base, std::int64_t index) {
  if (index == 0) return base;
  Random r(base.seed * 7919 + static_cast<std::uint64_t>(index));
  CaseSpec c = base;
  c.seed = r.next() % 1000000000;
  const bool few = c.tokens_q <= 9;  // their tiles are of another kind than those of many
  for (std::int64_t& length : c.used) length = r.chance(0.2) ? c.tokens_k : near(r, length);
  if (c.packed.empty()) {
    if (!few) c.tokens_q = near(r, c.tokens_q);
    c.tokens_k = near(r, c.tokens_k);
    if (r.chance(0.3)) c.batch = r.between(1, 3);
  } else {
    for (Lengths& l : c.packed) l = {near(r, l.q), near(r, l.k)};
    if (r.chance(0.3)) c.slack = {r.below(9), r.below(9)};
    std::reverse(c.packed.begin(), c.packed.end());
  }
  if (r.chance(0.3)) {
    const std::int64_t group = c.heads_q / c.heads_kv;
    c.heads_kv = r.between(1, 2), c.heads_q = group * c.heads_kv;
  }
  if (r.chance(0.7)) c.family = families[r.below(std::ssize(families))];
  c.mask = other_windows(r, c.mask);
  if (c.offset && *c.offset < 1 << 20 && r.chance(0.5)) c.offset = r.between(-20, c.tokens_k + 20);
  for (std::int64_t& offset : c.offsets) offset += r.between(-3, 3);
  if (c.scale && r.chance(0.5)) c.scale = r.pick({1.0f, 0.25f, 0.11f});
  c.invariant = base.invariant || r.chance(0.1);
  c.threads = 1;
  c.workspace = r.chance(0.5) ? Scratch::exact : Scratch::arena;
  // Ill-conditioned scores need a population that makes the allowance mean something (cases.cpp).
  const bool tough = c.family == Family::outlier || c.family == Family::huge;
  if (tough && (few || !c.packed.empty())) c.family = Family::normal;
  if (tough) c.scale.reset();
  return normalised(std::move(c));
}

}  // namespace tessera::conformance
