// The line form of a case, its generation and its shrinking. Running one: run_case.cpp; its data: data.cpp.
#include "cases.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "mods.hpp"

namespace tessera::conformance {
namespace {

struct LayoutName {
  Layout layout;
  const char* name;
};
constexpr LayoutName layout_names[] = {{Layout::bshd, "bshd"},
                                       {Layout::bhsd, "bhsd"},
                                       {Layout::sliced, "sliced"},
                                       {Layout::qkv, "qkv"},
                                       {Layout::shared, "shared"}};
struct FamilyName {
  Family family;
  const char* name;
};
constexpr FamilyName family_names[] = {{Family::normal, "normal"},
                                       {Family::outlier, "outlier"},
                                       {Family::growing, "growing"},
                                       {Family::falling, "falling"},
                                       {Family::huge, "huge"},
                                       {Family::tiny, "tiny"},
                                       {Family::constant, "constant"},
                                       {Family::zeros, "zeros"},
                                       {Family::denormal, "denormal"},
                                       {Family::nan_masked, "nan_masked"},
                                       {Family::nan_attended, "nan_attended"},
                                       {Family::neg_inf, "neg_inf"}};

const char* name_of(Layout layout) { return layout_names[static_cast<int>(layout)].name; }
const char* name_of(Family family) { return family_names[static_cast<int>(family)].name; }

[[noreturn]] void refuse(std::string_view text, const std::string& field, const std::string& allowed) {
  throw Error(Code::parse, "case '" + std::string(text) + "': field '" + field + "': " + allowed);
}

std::int64_t to_integer(std::string_view text, const std::string& field, std::string_view value) {
  std::int64_t result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc{} || end != value.data() + value.size()) refuse(text, field, "an integer is allowed");
  return result;
}

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find(by, at);
    parts.push_back(text.substr(at, end - at));
    if (end == std::string_view::npos) return parts;
    at = end + 1;
  }
}

Lengths to_lengths(std::string_view text, const std::string& field, std::string_view value) {
  const auto parts = split(value, '/');
  if (parts.size() != 2) refuse(text, field, "pairs 'queries/keys' are allowed");
  return {to_integer(text, field, parts[0]), to_integer(text, field, parts[1])};
}

void set_field(CaseSpec& c, std::string_view text, const std::string& field, std::string_view value) {
  const auto integer = [&] { return to_integer(text, field, value); };
  if (field == "b") c.batch = integer();
  else if (field == "sq") c.tokens_q = integer();
  else if (field == "sk") c.tokens_k = integer();
  else if (field == "hq") c.heads_q = integer();
  else if (field == "hkv") c.heads_kv = integer();
  else if (field == "d") c.dim = integer();
  else if (field == "dv") c.dim_v = integer();
  else if (field == "dtype") c.dtype = parse_dtype(value);
  else if (field == "out") c.out = parse_dtype(value);
  else if (field == "mask") c.mask = value;
  else if (field == "score") c.score = value;
  else if (field == "layout") {
    for (const LayoutName& l : layout_names)
      if (value == l.name) return void(c.layout = l.layout);
    refuse(text, field, "bshd, bhsd, sliced, qkv or shared is allowed");
  } else if (field == "packed") {
    c.packed.clear();
    for (std::string_view part : split(value, ',')) c.packed.push_back(to_lengths(text, field, part));
  } else if (field == "slack") c.slack = to_lengths(text, field, value);
  else if (field == "used") {
    c.used.clear();
    for (std::string_view part : split(value, ',')) c.used.push_back(to_integer(text, field, part));
  } else if (field == "room") c.room = integer();
  else if (field == "page") c.page = integer();
  else if (field == "prefix") c.prefix = integer();
  else if (field == "offset") c.offset = integer();
  else if (field == "offsets") {
    c.offsets.clear();
    for (std::string_view part : split(value, ',')) c.offsets.push_back(to_integer(text, field, part));
  } else if (field == "index") {
    if (value != "i32" && value != "i64") refuse(text, field, "i32 or i64 is allowed");
    c.wide_index = value == "i64";
  } else if (field == "scale") {
    const std::string copy(value);
    char* end = nullptr;
    c.scale = std::strtof(copy.c_str(), &end);
    if (copy.empty() || *end != 0) refuse(text, field, "a number is allowed");
  } else if (field == "sinks") c.sinks = integer() != 0;
  else if (field == "family") {
    for (const FamilyName& f : family_names)
      if (value == f.name) return void(c.family = f.family);
    std::string names;
    for (const FamilyName& f : family_names) names += (names.empty() ? "" : ", ") + std::string(f.name);
    refuse(text, field, "one of " + names + " is allowed");
  } else if (field == "lse") c.lse = integer() != 0;
  else if (field == "threads") c.threads = static_cast<int>(integer());
  else if (field == "workspace") {
    if (value != "arena" && value != "exact") refuse(text, field, "arena or exact is allowed");
    c.workspace = value == "exact" ? Scratch::exact : Scratch::arena;
  } else if (field == "shift") c.shift = integer();
  else if (field == "invariant") c.invariant = integer() != 0;
  else if (field == "rows") c.rows = integer();
  else if (field == "seed") {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), c.seed);
    if (error != std::errc{} || end != value.data() + value.size()) refuse(text, field, "a 64-bit number is allowed");
  } else
    refuse(text, field,
           "b, sq, sk, hq, hkv, d, dv, dtype, out, mask, score, layout, packed, slack, used, room, page, prefix, "
           "offset, offsets, index, scale, sinks, family, lse, threads, workspace, shift, invariant, rows and seed are "
           "allowed");
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const CaseSpec& c) {
  if (c.packed.empty()) {
    out << "b=" << c.batch << " sq=" << c.tokens_q << " sk=" << c.tokens_k;
  } else {
    out << "packed=";
    for (std::size_t i = 0; i < c.packed.size(); ++i) out << (i ? "," : "") << c.packed[i].q << '/' << c.packed[i].k;
    if (c.slack != Lengths{}) out << " slack=" << c.slack.q << '/' << c.slack.k;
    if (c.room) out << " room=" << c.room;
  }
  for (std::size_t i = 0; i < c.used.size(); ++i) out << (i ? "," : " used=") << c.used[i];
  if (c.page) out << " page=" << c.page;
  if (c.prefix) out << " prefix=" << c.prefix;
  out << " hq=" << c.heads_q << " hkv=" << c.heads_kv << " d=" << c.dim << " dv=" << c.dim_v
      << " dtype=" << name(c.dtype) << " out=" << name(c.out) << " mask=\"" << c.mask << '"';
  if (c.score != "s") out << " score=\"" << c.score << '"';
  out << " layout=" << name_of(c.layout);
  if (c.offset) out << " offset=" << *c.offset;
  for (std::size_t i = 0; i < c.offsets.size(); ++i) out << (i ? "," : " offsets=") << c.offsets[i];
  if (c.wide_index) out << " index=i64";
  if (c.scale) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.9g", static_cast<double>(*c.scale));
    out << " scale=" << digits;
  }
  if (c.sinks) out << " sinks=1";
  out << " family=" << name_of(c.family) << " lse=" << c.lse << " threads=" << c.threads
      << " workspace=" << (c.workspace == Scratch::exact ? "exact" : "arena");
  if (c.shift) out << " shift=" << c.shift;
  if (c.invariant) out << " invariant=1";
  if (c.rows) out << " rows=" << c.rows;
  return out << " seed=" << c.seed;
}

std::string line(const CaseSpec& spec) {
  std::ostringstream text;
  text << spec;
  return text.str();
}

CaseSpec parse_case(std::string_view text) {
  CaseSpec spec;
  bool out_given = false, dv_given = false;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == ' ') {
      ++at;
      continue;
    }
    const std::size_t equals = text.find('=', at);
    const std::size_t space = text.find(' ', at);
    if (equals == std::string_view::npos || space < equals)
      throw Error(Code::parse, "case '" + std::string(text) + "': '" + std::string(text.substr(at, space - at)) +
                                   "' is no 'field=value'");
    const std::string field(text.substr(at, equals - at));
    std::size_t begin = equals + 1, end;
    if (begin < text.size() && text[begin] == '"') {
      end = text.find('"', ++begin);
      if (end == std::string_view::npos) refuse(text, field, "the quote is not closed");
      at = end + 1;
    } else {
      at = end = std::min(text.find(' ', begin), text.size());
    }
    set_field(spec, text, field, text.substr(begin, end - begin));
    out_given |= field == "out", dv_given |= field == "dv";
  }
  if (!out_given) spec.out = spec.dtype;
  if (!dv_given) spec.dim_v = spec.dim;
  if (spec.dtype != f32 && spec.dtype != bf16 && spec.dtype != f16)
    refuse(text, "dtype", "f32, bf16 or f16 is allowed");
  if (spec.out != f32 && spec.out != spec.dtype) refuse(text, "out", "f32 or the input's type is allowed");
  const std::pair<const char*, std::int64_t> counts[] = {
      {"b", spec.batch},          {"sq", spec.tokens_q},     {"sk", spec.tokens_k},  {"slack", spec.slack.q},
      {"slack", spec.slack.k},    {"hq", spec.heads_q - 1},  {"d", spec.dim - 1},    {"dv", spec.dim_v - 1},
      {"hkv", spec.heads_kv - 1}, {"threads", spec.threads}, {"shift", spec.shift},  {"rows", spec.rows},
      {"room", spec.room},        {"page", spec.page},       {"prefix", spec.prefix}};
  for (const auto& [field, least] : counts)
    if (least < 0) refuse(text, field, "the value is too small");
  for (const Lengths& l : spec.packed)
    if (l.q < 0 || l.k < 0) refuse(text, "packed", "lengths of at least 0 are allowed");
  for (const std::int64_t length : spec.used)
    if (length < 0) refuse(text, "used", "lengths of at least 0 are allowed");
  if (spec.heads_q % spec.heads_kv != 0) refuse(text, "hq", "a multiple of hkv is allowed");
  if (work(spec) > 1e12) refuse(text, "rows", "the case is too large for the oracle: fewer rows are allowed");
  parse_mask(spec.mask), parse_score(spec.score);
  return normalised(std::move(spec));
}

CaseSpec normalised(CaseSpec c) {
  if (!c.packed.empty()) {
    c.batch = std::ssize(c.packed), c.tokens_q = 0, c.tokens_k = 0;
    for (const Lengths& l : c.packed) c.tokens_q += l.q, c.tokens_k += l.k;
    if (c.layout == Layout::shared) c.layout = Layout::bshd;
    c.used.clear();
    std::int64_t longest = 1;
    for (const Lengths& l : c.packed) longest = std::max(longest, l.k);
    if (c.room > 0 || c.page > 0) c.room = std::max(c.room, longest), c.slack.k = 0;
  } else {
    c.slack = {}, c.room = 0;
    if (c.page > 0 && c.used.empty()) c.used = {c.tokens_k};
    if (!c.used.empty()) c.used.resize(static_cast<std::size_t>(c.batch), c.used.back());
    for (std::int64_t& length : c.used) length = std::min(length, c.tokens_k);
  }
  if (c.page > 0 && c.layout == Layout::shared) c.layout = Layout::bshd;
  if (c.page == 0) c.prefix = 0;
  if (!c.offsets.empty()) c.offsets.resize(static_cast<std::size_t>(c.batch), c.offsets.back()), c.offset.reset();
  return c;
}

double work(const CaseSpec& c) {
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  double pairs = 0;
  if (c.packed.empty()) pairs = real(c.batch) * real(c.tokens_q) * real(c.tokens_k);
  for (const Lengths& l : c.packed) pairs += real(l.q) * real(l.k);
  pairs *= real(c.heads_q);
  const double loads = real(c.heads_kv) * real(c.tokens_k) * (c.packed.empty() ? real(c.batch) : 1);
  const double queries = real(c.tokens_q) * real(c.heads_q) * (c.packed.empty() ? real(c.batch) : 1);
  if (c.rows > 0 && real(c.rows) < queries) pairs *= real(c.rows) / queries;
  return (pairs + loads) * real(c.dim + c.dim_v + 32);
}

double padded_work(const CaseSpec& c) {
  const auto tiles = [](std::int64_t n, std::int64_t tile) {
    return static_cast<double>((n + tile - 1) / tile * tile);
  };
  double pairs = 0;
  if (c.packed.empty()) pairs = static_cast<double>(c.batch) * tiles(c.tokens_q, 16) * tiles(c.tokens_k, 64);
  for (const Lengths& l : c.packed) pairs += tiles(l.q, 16) * tiles(l.k, 64);
  return pairs * static_cast<double>(c.heads_q) * (tiles(c.dim, 16) + tiles(c.dim_v, 16));
}

std::string unfit(const Subject& subject, const CaseSpec& c) {
  if (std::max(c.dim, c.dim_v) > subject.max_dim) return "dims up to " + std::to_string(subject.max_dim) + " only";
  if (padded_work(c) > subject.most_work) return "too much work for it";
  return {};
}

// ------------------------------------------------------------------------------------------------------------
// generation
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

// Some cases keep their keys in a cache, most of those in pages: lengths at the edges of pages and of the room there
// is. From numbers of its own, so that what the other cases are does not hang on it.
void choose_cache(CaseSpec& c, Random& r) {
  if (!r.chance(0.35)) return;
  const bool paged = r.chance(0.75);
  if (paged) c.page = r.pick<std::int64_t>({1, 3, 7, 8, 16, 16, 24, 64, 64, 100, 256, 256});
  const std::int64_t step = std::max<std::int64_t>(c.page, 1);
  if (!c.packed.empty()) {
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
  c.family = r.chance(0.3) ? Family::normal : static_cast<Family>(r.below(std::ssize(family_names)));
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
  choose_cache(c, of_cache);
  return normalised(std::move(c));
}

// --------------------------------------------------------------------------------------------------------------
// shrinking
namespace {

std::vector<CaseSpec> simpler(const CaseSpec& c) {
  std::vector<CaseSpec> next;
  const auto propose = [&](auto change) {
    CaseSpec copy = c;
    change(copy);
    copy = normalised(std::move(copy));
    if (copy.heads_q % copy.heads_kv == 0 && !(copy == c)) next.push_back(std::move(copy));
  };
  const auto lower = [&](auto field, std::int64_t least) {
    const std::int64_t now = field(c);
    std::int64_t last = now;
    for (std::int64_t to : {least, now / 4, now / 2, now - now / 4, now - 1})
      if (to >= least && to < now && to != last)
        last = to, propose([&](CaseSpec& s) { const_cast<std::int64_t&>(field(s)) = to; });
  };
  if (!c.packed.empty()) {
    propose([](CaseSpec& s) { s.packed.clear(); });
    for (std::size_t i = 0; c.packed.size() > 1 && i < c.packed.size(); ++i)
      propose([&](CaseSpec& s) {
        s.packed.erase(s.packed.begin() + static_cast<std::ptrdiff_t>(i));
        if (i < s.offsets.size()) s.offsets.erase(s.offsets.begin() + static_cast<std::ptrdiff_t>(i));
      });
    for (std::size_t i = 0; i < c.packed.size(); ++i) {
      lower([i](const CaseSpec& s) -> const std::int64_t& { return s.packed[i].q; }, 0);
      lower([i](const CaseSpec& s) -> const std::int64_t& { return s.packed[i].k; }, 0);
    }
    propose([](CaseSpec& s) { s.slack = {}; });
  } else {
    lower([](const CaseSpec& s) -> const std::int64_t& { return s.batch; }, 1);
    lower([](const CaseSpec& s) -> const std::int64_t& { return s.tokens_q; }, 0);
    lower([](const CaseSpec& s) -> const std::int64_t& { return s.tokens_k; }, 0);
  }
  propose([](CaseSpec& s) { s.used.clear(), s.room = s.page = s.prefix = 0; });
  propose([](CaseSpec& s) { s.page = s.prefix = 0; });
  propose([](CaseSpec& s) { s.prefix = 0; });
  for (std::size_t i = 0; i < c.used.size(); ++i)
    lower([i](const CaseSpec& s) -> const std::int64_t& { return s.used[i]; }, 0);
  lower([](const CaseSpec& s) -> const std::int64_t& { return s.room; }, 0);
  lower([](const CaseSpec& s) -> const std::int64_t& { return s.page; }, c.page > 0 ? 1 : 0);
  propose([](CaseSpec& s) { s.heads_q = s.heads_kv = 1; });
  propose([](CaseSpec& s) { s.heads_q /= s.heads_kv, s.heads_kv = 1; });
  propose([](CaseSpec& s) { s.heads_q = s.heads_kv; });
  propose([](CaseSpec& s) { s.heads_q = s.heads_kv * std::max<std::int64_t>(1, s.heads_q / s.heads_kv / 2); });
  lower([](const CaseSpec& s) -> const std::int64_t& { return s.dim; }, 1);
  lower([](const CaseSpec& s) -> const std::int64_t& { return s.dim_v; }, 1);
  propose([](CaseSpec& s) { s.dtype = s.out = f32; });
  propose([](CaseSpec& s) { s.out = s.dtype; });
  propose([](CaseSpec& s) { s.score = "s"; });
  propose([](CaseSpec& s) { s.mask = "full"; });
  propose([](CaseSpec& s) {
    if (s.mask != "full") s.mask = "causal";
  });
  propose([](CaseSpec& s) { s.layout = Layout::bshd; });
  propose([](CaseSpec& s) { s.family = Family::normal; });
  propose([](CaseSpec& s) { s.offset.reset(); });
  propose([](CaseSpec& s) { s.offsets.clear(); });
  propose([](CaseSpec& s) {
    if (s.offset) *s.offset /= 2;
  });
  propose([](CaseSpec& s) { s.scale.reset(); });
  propose([](CaseSpec& s) { s.sinks = false; });
  propose([](CaseSpec& s) { s.shift = 0; });
  propose([](CaseSpec& s) { s.threads = 1; });
  propose([](CaseSpec& s) { s.workspace = Scratch::arena; });
  propose([](CaseSpec& s) { s.lse = false; });
  propose([](CaseSpec& s) { s.wide_index = false; });
  propose([](CaseSpec& s) { s.invariant = false; });
  return next;
}

}  // namespace

CaseSpec shrink(const CaseSpec& spec, const std::function<bool(const CaseSpec&)>& fails, int max_tries) {
  CaseSpec best = spec;
  for (bool progress = true; progress && max_tries > 0;) {
    progress = false;
    for (const CaseSpec& candidate : simpler(best)) {
      if (--max_tries < 0) break;
      if (!fails(candidate)) continue;
      best = candidate, progress = true;
      break;
    }
  }
  return best;
}

}  // namespace tessera::conformance
