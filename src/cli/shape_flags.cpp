#include "cli/shape_flags.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <thread>

#include "cli/commands.hpp"
#include "tessera/attention.hpp"

namespace tessera::cli {
namespace {

// A list flag may be given as "1,2" or several times; text that holds commas itself (masks) is split at ';'.
template <class T>
CLI::Option* add_values(CLI::App& command, const char* name, std::vector<T>& into, const std::string& help,
                        Values values, char separator = ',') {
  CLI::Option* option = command.add_option(name, into, help);
  option->allow_extra_args(false);
  if (values == Values::list) option->delimiter(separator);
  else option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  return option->type_name(values == Values::list ? fmt::format("A{}B..", separator) : "");
}

// CLI11 alone would read a number that is too large as the largest one.
const CLI::Validator& whole_numbers() {
  static const CLI::Validator validator(
      [](std::string& text) {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc() && end == text.data() + text.size()) return std::string();
        return fmt::format("'{}' is not a whole number of 64 bits", text);
      },
      "", "whole number");
  return validator;
}

std::int64_t whole_number(std::string_view text, std::string_view all) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Misuse(fmt::format("--packed '{}': '{}' is not a length; write 512,1024 or queries:keys pairs 1:512,1:300",
                             all, text));
  return value;
}

std::vector<SequenceLengths> parse_packed(const std::string& list) {
  std::vector<SequenceLengths> lengths;
  for (std::size_t at = 0; !list.empty() && at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string_view item = std::string_view(list).substr(at, end - at);
    const std::size_t colon = item.find(':');
    const std::int64_t q = whole_number(item.substr(0, colon), list);
    lengths.push_back({q, colon == item.npos ? q : whole_number(item.substr(colon + 1), list)});
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
  command.add_option("--q-offset", flags.q_offset, "logical position of the first query (keys - queries)")
      ->type_name("")
      ->check(whole_numbers())
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
  std::vector<Shape> all;
  // One loop for each flag, the last one fastest.
  const auto each = [](const auto& values, auto&& body) {
    for (const auto& value : values) body(value);
  };
  Shape s;
  s.q_offset = flags.q_offset;
  s.packed = parse_packed(flags.packed);
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
                    s.dtype = dtype, s.mask_text = mask.first, s.mask = mask.second;
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
  return all;
}

std::string text(const Shape& s) {
  const auto pair = [](std::int64_t a, std::int64_t b) {
    return a == b ? fmt::format("{}", a) : fmt::format("{}/{}", a, b);
  };
  return fmt::format("{}{} s{} h{} d{}", s.packed.empty() ? "b" : "packed ", s.b, pair(s.sq, s.sk), pair(s.hq, s.hkv),
                     pair(s.d, s.dv));
}

void add_threads_flag(CLI::App& command, RunFlags& flags, Values values, int otherwise) {
  flags.threads = {otherwise};
  add_values(command, "--threads", flags.threads,
             fmt::format("threads, 0: as many as the library takes by itself ({})", otherwise), values)
      ->check(whole_numbers())
      ->check(CLI::Range(0, 1024).description(""))
      ->group("Run");
}

void add_backend_flags(CLI::App& command, RunFlags& flags, Values values, std::string_view otherwise) {
  add_values(command, "--backend", flags.backend, fmt::format("cpu, cpu:avx2 .., all ({})", otherwise), values)
      ->group("Run");
  add_values(command, "--isa", flags.isa, "instruction set of the cpu backend: avx512, avx2, scalar", values)
      ->group("Run");
}

std::vector<std::string> backends_of(const RunFlags& flags) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& backend : flags.backend.empty() ? std::vector<std::string>{""} : flags.backend) {
    if (flags.isa.empty()) {
      if (backend != "all") add(backend);
      else
        for (const BackendInfo& info : backends())
          if (info.available) add(info.name);
      continue;
    }
    if (!backend.empty() && backend != "cpu")
      throw Misuse(
          fmt::format("--isa names an instruction set of the cpu backend, --backend is {}: give one of them", backend));
    for (const std::string& isa : flags.isa) add("cpu:" + isa);
  }
  return names;
}

std::vector<DType> dtypes_of(const std::vector<std::string>& names) {
  std::vector<DType> dtypes;
  for (const std::string& name : names) dtypes.push_back(parse_dtype(name));
  return dtypes;
}

int thread_count(int threads) {
  if (threads > 0) return threads;
  // The workspace grows by the same amount for each thread, and 0 stands for the library's own choice.
  Shape small;
  small.sq = small.sk = 1;
  Prefix prefix;
  const Plan p = plan(describe(inputs_of(small, anywhere(), prefix), Options{}));
  const std::size_t one = p.workspace_bytes(1), each = p.workspace_bytes(2) - one;
  return each == 0 ? 1 : static_cast<int>((p.workspace_bytes(0) - one) / each) + 1;
}

void add_json_flag(CLI::App& command, std::string& path) {
  command.add_option("--json", path, "write JSON to FILE; '-': to stdout, in place of the table")->type_name("FILE");
}

Prefix prefix_of(const Shape& shape) {
  Prefix prefix;
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

Addresses anywhere() {
  alignas(64) static char there[64];
  return {there, there, there};
}

Options options_of(const Shape& shape, std::string_view backend) {
  Options options;
  options.mask = shape.mask, options.q_offset = shape.q_offset, options.backend = backend;
  return options;
}

double attended_pairs(const Shape& s) {
  const TileMap tiles(s.mask);
  const auto of = [&](std::int64_t queries, std::int64_t keys) {
    if (queries <= 0 || keys <= 0) return 0.0;
    const std::int64_t first = s.q_offset.value_or(keys - queries);
    return tiles.pairs(first, first + queries, keys);
  };
  double pairs = 0;
  for (const SequenceLengths& l : s.packed) pairs += of(l.q, l.k);
  if (s.packed.empty()) pairs = static_cast<double>(s.b) * of(s.sq, s.sk);
  return pairs * static_cast<double>(s.hq);
}

}  // namespace tessera::cli
