#include "plan/choose.hpp"

#include <algorithm>

namespace tessera::plans {
namespace {

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
  return text;
}

// Why not. Unless it was asked for by name, the problem's own reasons do: that tensors lie on the cpu tells more than
// what a machine without a GPU lacks.
std::string why_not(const Candidate& c, bool pinned) {
  if (c.missing.empty() || (!pinned && !c.reasons.empty())) return joined(c.reasons);
  return c.missing + (c.reasons.empty() ? "" : "; " + joined(c.reasons));
}

bool matches(const Candidate& c, std::string_view pinned) {
  return pinned.empty() || pinned == c.backend || pinned == c.full_name();
}

bool can(const Candidate& c) { return c.missing.empty() && c.reasons.empty(); }

// Whether a later candidate of the same backend can run it, which candidate i calls the better choice.
bool is_left(const std::vector<Candidate>& candidates, std::size_t i, std::string_view pinned) {
  const Candidate& c = candidates[i];
  if (c.better_elsewhere.empty() || pinned == c.full_name()) return false;
  return std::any_of(
      candidates.begin() + static_cast<std::ptrdiff_t>(i) + 1, candidates.end(),
      [&](const Candidate& other) { return other.backend == c.backend && matches(other, pinned) && can(other); });
}

}  // namespace

bool needs_missing(const Candidate& c, std::string_view pinned) {
  return matches(c, pinned) && (c.reasons.empty() || !pinned.empty());
}

Choice choose(const std::vector<Candidate>& candidates, std::string_view pinned) {
  Choice choice;
  bool known = false;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& c = candidates[i];
    if (!matches(c, pinned)) {
      choice.passed_over.push_back({c.full_name(), "the backend is pinned to " + std::string(pinned)});
      continue;
    }
    known = true;
    const bool left = can(c) && is_left(candidates, i, pinned);
    if (can(c) && !left) {
      choice.index = i;
      return choice;
    }
    choice.passed_over.push_back({c.full_name(), left ? c.better_elsewhere : why_not(c, !pinned.empty())});
  }
  std::string text;
  if (!known) {
    for (const Candidate& c : candidates) text += (text.empty() ? "" : ", ") + c.full_name();
    throw Error(Code::invalid_option, "there is no backend '" + std::string(pinned) + "': it is one of " + text +
                                          ", or the part before the colon");
  }
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (matches(candidates[i], pinned))
      text += "\n  " + choice.passed_over[i].candidate + ": " + choice.passed_over[i].reason;
  throw Error(Code::unsupported,
              (pinned.empty() ? std::string("no backend") : "the pinned backend '" + std::string(pinned) + "'") +
                  (pinned.empty() ? " can run this problem:" : " cannot run this problem:") + text);
}

Cost cost(const Problem& p, const TileMap& tiles) {
  Cost c;
  const auto count = [](std::int64_t a) { return static_cast<double>(a); };
  const double heads = count(p.heads_q);
  if (p.packed) {  // with lengths, tokens_kv is what one sequence has at most
    c.pairs = count(p.tokens_q) * count(p.tokens_kv) * heads, c.upper_bound = true;
  } else {
    constexpr std::int64_t farthest = std::int64_t{1} << 60;  // positions beyond must not overflow, nothing more
    const std::int64_t first = std::clamp(p.q_offset.value_or(p.tokens_kv - p.tokens_q), -farthest, farthest);
    // Fewer keys than there is room for: each query attends to fewer, as the offset moves with them, or stays.
    const bool decided = !p.offset_per_sequence && tiles.decided();
    c.pairs = count(p.batch) * heads *
              (decided ? tiles.pairs(first, first + p.tokens_q, p.tokens_kv) : count(p.tokens_q) * count(p.tokens_kv));
    c.upper_bound = !decided || p.lengths;
  }
  const double sequences = p.packed ? 1 : count(p.batch), caches = p.packed_keys() ? 1 : count(p.batch);
  const double in = count(size_bytes(p.dtype)), out = count(size_bytes(p.out_dtype));
  c.flops = 2 * c.pairs * count(p.dim + p.dim_v);
  c.bytes = sequences * count(p.tokens_q) * heads * (count(p.dim) * in + count(p.dim_v) * out + (p.wants_lse ? 4 : 0)) +
            caches * count(p.tokens_kv) * count(p.heads_kv) * count(p.dim + p.dim_v) * in + (p.sinks ? heads * 4 : 0);
  return c;
}

}  // namespace tessera::plans
