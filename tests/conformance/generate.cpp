// Cases from numbers: by suite and index, with a bias to edges.
// Must not know: subjects, data.
#include <algorithm>
#include <cmath>

#include "cases.hpp"
#include "mods.hpp"

namespace tessera::conformance {

namespace {

// Token counts: mostly small, often beside a power of two or a tile boundary, now and then 0.
std::int64_t token_count(Random& r, std::int64_t most) {
  std::int64_t n = 0;
  switch (r.below(8)) {
    case 0:
      n = r.pick<std::int64_t>({0, 1, 1, 2, 3});
      break;
    case 1:
      n = r.between(1, 40);
      break;
    case 2:
      n = (std::int64_t{1} << r.between(2, 12)) + r.between(-1, 1);
      break;
    case 3:
      n = 32 * r.between(1, 12) + r.between(-1, 1);
      break;
    case 4:
      n = 192 * r.between(1, 4) + r.between(-1, 1);
      break;
    case 5:
      n = 128 * r.between(1, 5) + r.between(-1, 1);
      break;
    default:
      n = r.between(1, std::min<std::int64_t>(most, 400));
      break;
  }
  return std::min(n, most);
}

std::int64_t head_dim(Random& r) {
  if (r.chance(0.45)) return r.pick<std::int64_t>({8, 16, 32, 64, 128});
  if (r.chance(0.5))
    return r.pick<std::int64_t>(
        {1, 2, 3, 5, 7, 15, 17, 31, 33, 40, 56, 59, 63, 65, 72, 80, 96, 111, 112, 127, 129, 192, 224, 256});
  return r.chance(0.1) ? r.pick<std::int64_t>({257, 320, 384, 511, 512}) : r.between(1, 96);
}

std::string random_mask(Random& r, std::int64_t keys, bool may_name_batch) {
  const auto side = [&] {
    return std::to_string(r.chance(0.3) ? r.below(4) : r.chance(0.5) ? r.below(keys + 2) : r.below(140));
  };
  const auto window = [&] { return "window(" + side() + ", " + side() + ")"; };
  switch (r.below(14)) {
    case 0:
    case 1:
    case 2:
      return "full";
    case 3:
    case 4:
    case 5:
      return "causal";
    case 6:
    case 7:
      return window();
    case 8:
      return "causal & window(" + side() + ", 0)";
    case 9:
      return "!causal";
    case 10:
      return "!" + window();
    case 11:
      return "(" + window() + " & causal) | !window(" + std::to_string(r.between(20, 200)) + ", 3)";
    case 12:
      return "(k + h) <= (q + " + side() + ")";
    default:
      return may_name_batch ? "((k + b) <= q) | (k < 3)" : "(k < " + side() + ") | causal";
  }
}

void fit_budget(CaseSpec& c, double budget) {
  for (int step = 0; work(c) > budget && step < 60; ++step) {
    switch (step % 4) {
      case 0:
        if (c.heads_q > c.heads_kv && c.heads_kv > 1) c.heads_q /= c.heads_kv, c.heads_kv = 1;
        else if (c.heads_q > c.heads_kv && work(c) > 4 * budget)
          c.heads_q = c.heads_kv * ((c.heads_q / c.heads_kv + 1) / 2);
        else if (c.heads_q == c.heads_kv) c.heads_q = c.heads_kv = std::max<std::int64_t>(1, c.heads_q / 2);
        break;
      case 1:
        if (c.packed.empty()) c.batch = std::max<std::int64_t>(1, c.batch / 2);
        else if (c.packed.size() > 2) c.packed.resize(c.packed.size() / 2 + 1);
        break;
      case 2:
        if (c.tokens_q > 256) c.tokens_q = c.tokens_q / 2 + 1;
        else if (c.dim > 32) c.dim = c.dim / 2 + c.dim % 2, c.dim_v = c.dim_v / 2 + 1;
        for (Lengths& l : c.packed)
          if (l.q > 64) l.q = l.q / 2 + 1;
        break;
      default:
        if (c.tokens_q * c.tokens_k > 20000 && c.packed.empty()) {
          if (c.tokens_q >= 32) c.tokens_q = c.tokens_q / 2 + 1;
          else c.tokens_k = c.tokens_k * 2 / 3;
        }
        for (Lengths& l : c.packed)
          if (l.k > 64) l.k = l.k / 2 + 1;
        break;
    }
    c = normalised(std::move(c));
  }
}

// Keys in a cache, maybe in pages: lengths at the edges of pages and of the room there
// is.
void give_cache(CaseSpec& c, bool paged, Random& r) {
  if (paged) c.page = r.pick<std::int64_t>({1, 3, 7, 8, 16, 16, 24, 64, 64, 100, 256, 256});
  const std::int64_t step = std::max<std::int64_t>(c.page, 1);
  if (!c.packed.empty()) {
    c.room = 1;
    for (const Lengths& l : c.packed) c.room = std::max(c.room, l.k);
    c.room += r.chance(0.3) ? 0 : r.between(1, 3 * step + 20);
  } else {
    for (std::int64_t b = 0; b < c.batch; ++b) {
      std::int64_t length = r.below(c.tokens_k + 1);
      if (r.chance(0.3)) length = length / step * step + r.between(-1, 1);
      if (r.chance(0.3)) length = r.pick<std::int64_t>({0, 1, step, c.tokens_k - 1, c.tokens_k, c.tokens_k});
      c.used.push_back(std::clamp<std::int64_t>(length, 0, c.tokens_k));
    }
  }
  if (paged && r.chance(0.3)) c.prefix = r.between(1, 4 * step);
}

}  // namespace

CaseSpec generate(std::uint64_t suite_seed, std::int64_t index, DType dtype) {
  Random r(suite_seed * 1000003 + static_cast<std::uint64_t>(index) * 2654435761u + static_cast<std::uint64_t>(dtype));
  CaseSpec c;
  c.seed = r.next() % 1000000000;
  c.dtype = dtype, c.out = r.chance(0.35) ? f32 : dtype;
  c.heads_kv = r.pick<std::int64_t>({1, 1, 2, 2, 3, 4});
  c.heads_q = c.heads_kv * r.pick<std::int64_t>({1, 1, 2, 3, 4, 5, 7, 8, 14, 16});
  c.dim = head_dim(r), c.dim_v = r.chance(0.6) ? c.dim : head_dim(r);
  c.batch = r.pick<std::int64_t>({1, 1, 1, 2, 2, 3, 5});
  const bool decode = r.chance(0.2);
  if (decode) {
    c.tokens_q = r.between(1, r.chance(0.5) ? 1 : 9);
    c.tokens_k = r.chance(0.5) ? r.between(2900, 6600) : token_count(r, 4500);
    c.dim = std::min<std::int64_t>(c.dim, 64), c.dim_v = std::min<std::int64_t>(c.dim_v, 64);
  } else {
    c.tokens_q = token_count(r, 700), c.tokens_k = r.chance(0.4) ? c.tokens_q : token_count(r, 1100);
  }
  if (r.chance(0.3)) {
    for (std::int64_t n = r.between(1, 6); n > 0; --n) {
      const std::int64_t keys = r.chance(0.15) ? 0 : r.chance(0.06) ? r.between(3000, 3600) : token_count(r, 500);
      c.packed.push_back({r.chance(0.15)  ? 0
                          : r.chance(0.4) ? std::min<std::int64_t>(keys, 300)
                                          : token_count(r, 300),
                          keys});
    }
    if (r.chance(0.4)) c.slack = {r.below(9), r.below(9)};
  }
  c = normalised(std::move(c));
  c.layout =
      r.pick({Layout::bshd, Layout::bshd, Layout::bshd, Layout::bhsd, Layout::sliced, Layout::qkv, Layout::shared});
  c.family = r.chance(0.3) ? Family::normal : static_cast<Family>(r.below(family_count));
  c.lse = r.chance(0.75);
  c.threads = static_cast<int>(r.between(1, 4));
  c.workspace = r.chance(0.5) ? Scratch::exact : Scratch::arena;
  c.shift = r.chance(0.25) ? r.between(1, 17) : 0;
  c.wide_index = r.chance(0.3);
  c.invariant = r.chance(0.25);
  const std::int64_t longest = std::max<std::int64_t>(c.tokens_k, 1);
  c.mask = r.chance(0.3) ? random_mod_mask(r, longest, !c.invariant) : random_mask(r, longest, !c.invariant);
  if (r.chance(0.3)) c.score = random_score(r);
  if (r.chance(0.25)) {
    c.offset = r.pick<std::int64_t>(
        {0, 0, 1, -1, r.between(-20, 40), r.below(longest), -longest - 3, longest + 5, std::int64_t{1} << 33});
  } else if (r.chance(0.15)) {
    for (std::int64_t b = 0; b < c.batch; ++b) c.offsets.push_back(r.chance(0.3) ? 0 : r.between(-5, longest));
  }
  // Scores that grow with a position must not outgrow what fp32 tells apart, or E is a matter of luck.
  if (c.score != "s" && c.offset.value_or(0) > 1 << 20) c.offset = 1 << 20;
  if (r.chance(0.2)) c.scale = r.pick({1.0f, 0.5f, 0.0625f, 0.11f, 0.0f, -0.25f});
  // Ill-conditioned scores need a population that makes E mean something.
  const bool tough = c.family == Family::outlier || c.family == Family::huge;
  if (tough && c.packed.empty() && c.tokens_q < 48) c.tokens_q += 48;
  if (tough) c.scale.reset();
  fit_budget(c, 4e4 * std::pow(60.0, r.uniform()));
  c.sinks = r.chance(0.15);
  Random of_cache(c.seed ^ 0xcac4e);
  if (of_cache.chance(0.35)) give_cache(c, of_cache.chance(0.75), of_cache);
  return normalised(std::move(c));
}

}  // namespace tessera::conformance
