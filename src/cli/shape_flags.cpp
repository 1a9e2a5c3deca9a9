#include "cli/shape_flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "cli/commands.hpp"
#include "cli/flag_values.hpp"

namespace tessera::cli {
namespace {

std::int64_t length(std::string_view text, std::string_view all) {
  if (const auto value = whole_number(text)) return *value;
  throw Misuse(
      fmt::format("--packed '{}': '{}' is not a length; write 512,1024 or queries:keys pairs 1:512,1:300", all, text));
}

std::vector<SequenceLengths> parse_packed(const std::string& list) {
  std::vector<SequenceLengths> lengths;
  for (std::size_t at = 0; !list.empty() && at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string_view item = std::string_view(list).substr(at, end - at);
    const std::size_t colon = item.find(':');
    const std::int64_t q = length(item.substr(0, colon), list);
    lengths.push_back({q, colon == item.npos ? q : length(item.substr(colon + 1), list)});
    if (lengths.back().q < 0 || lengths.back().k < 0)
      throw Misuse(fmt::format("--packed '{}': a length is at least 0, not {}", list,
                               std::min(lengths.back().q, lengths.back().k)));
    at = end + 1;
  }
  return lengths;
}

template <class T>
std::vector<std::optional<T>> or_follow(const std::vector<T>& values) {
  if (values.empty()) return {std::nullopt};
  return {values.begin(), values.end()};
}

}  // namespace

void add_shape_flags(CLI::App& command, ShapeFlags& flags, Values values) {
  const auto number = [&](const char* name, std::vector<std::int64_t>& into, const char* help) {
    return add_values(command, name, into, help, values)->check(whole_numbers())->group("Shape");
  };
  CLI::Option* b = number("--b", flags.b, "sequences (1)");
  CLI::Option* sq = number("--sq", flags.sq, "queries of each (2048)");
  CLI::Option* sk = number("--sk", flags.sk, "keys of each (as --sq)");
  number("--hq", flags.hq, "query heads (1)");
  number("--hkv", flags.hkv, "key heads (as --hq)");
  number("--d", flags.d, "head dim of Q and K (64)");
  number("--dv", flags.dv, "head dim of V (as --d)");
  add_values(command, "--dtype", flags.dtype, "f32, bf16 or f16 (f32)", values)->group("Shape");
  add_values(command, "--mask", flags.mask, "full, causal, 'causal & window(1023, 0)', 'k <= q' .. (full)", values, ';')
      ->group("Shape");
  add_values(command, "--score", flags.score, "what becomes of a score: softcap(30), 's + slope[h] * (k - q)' .. (s)",
             values, ';')
      ->group("Shape");
  command
      .add_option("--bind", flags.bind,
                  "what a name in --mask and --score stands for, once for each: a file (FILE.npy, FILE.safetensors, "
                  "FILE.safetensors:TENSOR), random:8,1024 (f32 of that shape), documents:TOKENS,COUNT (sorted ids), "
                  "offsets:TOKENS,COUNT (where documents begin), lengths:B,MAX")
      ->type_name("NAME=WHAT")
      ->allow_extra_args(false)
      ->group("Shape");
  command.add_option("--sinks", flags.sinks, "learned sink logits, one for each query head: a file, or random:HEADS")
      ->type_name("WHAT")
      ->group("Shape");
  command.add_option("--q-offset", flags.q_offset, "logical position of the first query (keys - queries)")
      ->type_name("")
      ->check(whole_numbers())
      ->group("Shape");
  command
      .add_option("--page-size", flags.page_size, "keys and values in pages of so many tokens, scattered; 0: none (0)")
      ->type_name("")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30).description(""))
      ->group("Shape");
  command.add_option("--packed", flags.packed, "packed sequences: 512,1024 or queries:keys pairs 1:512,1:300")
      ->type_name("")
      ->excludes(b)
      ->excludes(sq)
      ->excludes(sk)
      ->group("Shape");
}

std::vector<Shape> shapes(const ShapeFlags& flags) {
  const std::vector<DType> dtypes = dtypes_of(flags.dtype);
  std::vector<std::pair<std::string, Mask>> masks;
  for (const std::string& text : flags.mask) masks.emplace_back(text, parse_mask(text));
  std::vector<std::pair<std::string, ScoreMod>> scores;
  for (const std::string& text : flags.score) scores.emplace_back(text, parse_score(text));
  std::vector<Shape> all;
  // One loop for each flag, the last one fastest.
  const auto each = [](const auto& values, auto&& body) {
    for (const auto& value : values) body(value);
  };
  Shape s;
  s.q_offset = flags.q_offset, s.page_size = flags.page_size;
  s.packed = parse_packed(flags.packed);
  s.bound = bound_tensors(flags.bind);
  if (!flags.sinks.empty()) s.sinks = bound_tensors({"sinks=" + flags.sinks});
  each(flags.b, [&](std::int64_t b) {
    each(flags.sq, [&](std::int64_t sq) {
      each(or_follow(flags.sk), [&](std::optional<std::int64_t> sk) {
        s.b = b, s.sq = sq, s.sk = sk.value_or(sq);
        if (!s.packed.empty()) {
          s.b = static_cast<std::int64_t>(s.packed.size()), s.sq = 0, s.sk = 0;
          for (const SequenceLengths& l : s.packed)
            if (__builtin_add_overflow(s.sq, l.q, &s.sq) || __builtin_add_overflow(s.sk, l.k, &s.sk))
              throw Misuse("--packed: the sum of the lengths leaves 63 bits");
        }
        each(flags.hq, [&](std::int64_t hq) {
          each(or_follow(flags.hkv), [&](std::optional<std::int64_t> hkv) {
            each(flags.d, [&](std::int64_t d) {
              each(or_follow(flags.dv), [&](std::optional<std::int64_t> dv) {
                s.hq = hq, s.hkv = hkv.value_or(hq), s.d = d, s.dv = dv.value_or(d);
                each(dtypes, [&](DType dtype) {
                  each(masks, [&](const auto& mask) {
                    each(scores, [&](const auto& score) {
                      s.dtype = dtype, s.mask_text = mask.first, s.mask = mask.second;
                      s.score_text = score.first, s.score = score.second;
                      all.push_back(s);
                    });
                  });
                });
              });
            });
          });
        });
      });
    });
  });
  return all;
}

std::string text(const Shape& s) {
  const auto pair = [](std::int64_t a, std::int64_t b) {
    return a == b ? fmt::format("{}", a) : fmt::format("{}/{}", a, b);
  };
  return fmt::format("{}{} s{} h{} d{}{}", s.packed.empty() ? "b" : "packed ", s.b, pair(s.sq, s.sk), pair(s.hq, s.hkv),
                     pair(s.d, s.dv), s.page_size > 0 ? fmt::format(" pages of {}", s.page_size) : "");
}

namespace {

// Page numbers in an order that no prefetcher guesses: steps of a number that shares no factor with how many there are.
void add_pages(const Shape& s, Prefix& prefix) {
  constexpr std::int64_t most = std::int64_t{1} << 28;
  if (s.b > most || (s.sk / s.page_size + 1) > most / std::max<std::int64_t>(s.b, 1))
    throw Misuse(fmt::format("--page-size {}: the block table of {} sequences of {} tokens has over {} entries",
                             s.page_size, s.b, s.sk, most));
  if (s.packed.empty()) prefix.lengths.assign(static_cast<std::size_t>(std::max<std::int64_t>(s.b, 0)), s.sk);
  for (const SequenceLengths& l : s.packed) prefix.lengths.push_back(l.k);
  const auto used = [&](std::int64_t length) { return length / s.page_size + (length % s.page_size != 0); };
  std::int64_t width = 0, pages = 0;
  for (const std::int64_t length : prefix.lengths) width = std::max(width, used(length)), pages += used(length);
  if (pages > std::numeric_limits<std::int32_t>::max())
    throw Misuse(fmt::format("--page-size {}: that makes {} pages, page numbers are 32 bits", s.page_size, pages));
  std::int64_t step = pages / 2 + 1;
  while (pages > 1 && std::gcd(step, pages) != 1) ++step;
  for (std::int64_t b = 0, next = 0; b < std::ssize(prefix.lengths); ++b)
    for (std::int64_t i = 0; i < width; ++i) {
      const bool in_use = i < used(prefix.lengths[static_cast<std::size_t>(b)]);
      prefix.table.push_back(in_use ? static_cast<std::int32_t>(next) : 0);
      if (in_use) next = (next + step) % pages;
    }
}

}  // namespace

Prefix prefix_of(const Shape& shape) {
  Prefix prefix;
  if (shape.page_size > 0) add_pages(shape, prefix);
  if (shape.packed.empty()) return prefix;
  prefix.q.push_back(0), prefix.k.push_back(0);
  for (const SequenceLengths& l : shape.packed) {
    prefix.q.push_back(prefix.q.back() + l.q);
    prefix.k.push_back(prefix.k.back() + l.k);
  }
  return prefix;
}

Inputs inputs_of(const Shape& s, const Addresses& at, Prefix& prefix) {
  Inputs in;
  in.bind = bindings_of(s);
  if (s.sinks) in.sinks = s.sinks->front().tensor;
  if (s.page_size > 0) {
    std::int64_t pages = 0;
    for (const std::int64_t length : prefix.lengths) pages += length / s.page_size + (length % s.page_size != 0);
    const std::int64_t width = s.b > 0 ? std::ssize(prefix.table) / s.b : 0;
    in.k = tensor(at.k, s.dtype, {pages, s.page_size, s.hkv, s.d});
    in.v = tensor(at.v, s.dtype, {pages, s.page_size, s.hkv, s.dv});
    in.pages = {tensor(prefix.table.data(), {s.b, width}), tensor(prefix.lengths.data(), {s.b})};
    if (s.packed.empty()) in.q = tensor(at.q, s.dtype, {s.b, s.sq, s.hq, s.d});
    else in.q = tensor(at.q, s.dtype, {s.sq, s.hq, s.d}), in.packed.cu_q = tensor(prefix.q.data(), {s.b + 1});
    return in;
  }
  if (s.packed.empty()) {
    in.q = tensor(at.q, s.dtype, {s.b, s.sq, s.hq, s.d});
    in.k = tensor(at.k, s.dtype, {s.b, s.sk, s.hkv, s.d});
    in.v = tensor(at.v, s.dtype, {s.b, s.sk, s.hkv, s.dv});
    return in;
  }
  in.q = tensor(at.q, s.dtype, {s.sq, s.hq, s.d});
  in.k = tensor(at.k, s.dtype, {s.sk, s.hkv, s.d});
  in.v = tensor(at.v, s.dtype, {s.sk, s.hkv, s.dv});
  in.packed.cu_q = tensor(prefix.q.data(), {s.b + 1});
  in.packed.cu_k = tensor(prefix.k.data(), {s.b + 1});
  return in;
}

void set_device(Inputs& in, const Device& device, bool numbers) {
  for (Tensor* t : {&in.q, &in.k, &in.v, &in.sinks})
    if (t->defined()) t->device = device;
  if (!numbers) return;
  for (Tensor* t : {&in.packed.cu_q, &in.packed.cu_k, &in.pages.block_table, &in.pages.lengths, &in.q_offset})
    if (t->defined()) t->device = device;
  Bindings bind;
  for (Binding binding : in.bind) {
    binding.tensor.device = device;
    bind.add(binding);
  }
  in.bind = bind;
}

Bindings bindings_of(const Shape& shape) {
  Bindings bind;
  if (shape.bound)
    for (const BoundTensor& b : *shape.bound) bind.add({b.name, b.tensor});
  return bind;
}

Addresses anywhere() {
  alignas(64) static char there[64];
  return {there, there, there};
}

Options options_of(const Shape& shape, std::string_view backend) {
  Options options;
  options.mask = shape.mask, options.score = shape.score, options.q_offset = shape.q_offset, options.backend = backend;
  return options;
}

}  // namespace tessera::cli
