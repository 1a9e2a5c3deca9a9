// The line form of a case, and its shrinking. Generation: generate.cpp; running one: run_case.cpp; its data: data.cpp.
#include "cases.hpp"

#include <algorithm>
#include <charconv>
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

static_assert(std::size(family_names) == family_count);

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
