// Literals and tables as text, and the words that kernels find them in.
#include "emit/mod_words.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "problem/fail.hpp"

namespace tessera::emit {

bool is_identifier(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && (name[0] < '0' || name[0] > '9') && std::all_of(name.begin(), name.end(), fits);
}

std::string type_name(Type type, Reals reals) {
  return type == Type::boolean   ? "bool"
         : type == Type::integer ? "long long"
         : reals == Reals::f32   ? "float"
                                 : "double";
}

namespace {
constexpr Element elements[] = {
    {f32, Type::real, "float", "", ""},
    {bf16, Type::real, "unsigned short", "mod_math::from_bf16(", ")"},
    {f16, Type::real, "unsigned short", "mod_math::from_f16(", ")"},
    {i32, Type::integer, "int", "", ""},
    {i64, Type::integer, "long long", "", ""},
    {u8, Type::integer, "unsigned char", "", ""},
    {b8, Type::boolean, "unsigned char", "", " != 0"},
};
}  // namespace

const Element& element_of(const Capture& capture, DType dtype) {
  const Element* found = std::find_if(std::begin(elements), std::end(elements),
                                      [&](const Element& e) { return e.dtype == dtype && e.type == capture.type; });
  if (found != std::end(elements)) return *found;
  std::string fitting;
  for (const Element& e : elements)
    if (e.type == capture.type) fitting += (fitting.empty() ? "" : ", ") + std::string(name(e.dtype));
  problem::fail(Code::invalid_dtype, "the captured tensor '", mods::name(capture), "' holds ", mods::name(capture.type),
                " an element and is bound to ", dtype, ": it can be ", fitting);
}

std::string integer_literal(std::int64_t value, bool narrow) {
  if (value == std::numeric_limits<std::int64_t>::min()) return "mod_math::least";
  if (narrow && value == std::numeric_limits<std::int32_t>::min()) return "(-2147483647 - 1)";
  const std::string digits = std::to_string(value) + (narrow ? "" : "LL");
  return value < 0 ? "(" + digits + ")" : digits;
}

namespace {
// The value, exactly: in hexadecimal, or as bits where C++ has no literal.
std::string double_literal(double value) {
  char digits[32];
  if (!std::isfinite(value)) {
    const std::uint64_t bits = std::isnan(value) ? 0x7ff8000000000000u : std::bit_cast<std::uint64_t>(value);
    const auto end = std::to_chars(digits, std::end(digits), bits, 16).ptr;
    return "real_of_bits(0x" + std::string(digits, end) + "LL)";
  }
  const auto end = std::to_chars(digits, std::end(digits), std::fabs(value), std::chars_format::hex).ptr;
  return (std::signbit(value) ? "(-0x" : "(0x") + std::string(digits, end) + ")";
}

}  // namespace

std::string real_literal(double value, Reals reals) {
  if (reals == Reals::f64) return double_literal(value);
  const float real = static_cast<float>(value);
  char digits[32];
  if (!std::isfinite(real)) {
    const std::uint32_t bits = std::isnan(real) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(real);
    const auto end = std::to_chars(digits, std::end(digits), bits, 16).ptr;
    return "mod_math::from_bits(0x" + std::string(digits, end) + "u)";
  }
  const auto end = std::to_chars(digits, std::end(digits), std::fabs(real), std::chars_format::hex).ptr;
  const std::string magnitude = "0x" + std::string(digits, end) + "f";
  return std::signbit(real) ? "(-" + magnitude + ")" : magnitude;
}

std::string arguments_text(std::string_view struct_name, const Graph& graph, std::span<const DType> dtypes,
                           Reals reals) {
  std::string text = "struct " + std::string(struct_name) + " {\n";
  for (std::size_t i = 0; i < graph.params.size(); ++i)
    text += "  alignas(8) " + type_name(graph.params[i].type, reals) + " p" + std::to_string(i) + ";\n";
  for (std::size_t i = 0; i < graph.captures.size(); ++i) {
    const Capture& capture = graph.captures[i];
    const std::string table = "t" + std::to_string(i), axes = "[" + std::to_string(capture.rank) + "]";
    text += "  const " + std::string(element_of(capture, dtypes[i]).stored) + "* " + table + ";  // ";
    text += mods::shown(capture) + "\n  long long " + table + "_last" + axes + ", " + table + "_stride" + axes + ";\n";
  }
  if (graph.params.empty() && graph.captures.empty()) text += "  long long none;\n";
  text += "};\nstatic_assert(sizeof(" + std::string(struct_name) + ") == ";
  return text + std::to_string(8 * argument_words(graph)) + ", \"as the host packs it\");\n";
}

bool is_searched(const Graph& graph, std::size_t slot) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [&](const Node& node) { return node.op == Op::upper_bound && node.slot == slot; });
}

std::string_view stored(DType dtype) {
  const Element* found =
      std::find_if(std::begin(elements), std::end(elements), [&](auto& e) { return e.dtype == dtype; });
  return found == std::end(elements) ? "void" : found->stored;
}

std::size_t argument_words(const Graph& graph) {
  std::size_t words = graph.params.size();
  for (const Capture& capture : graph.captures) words += 1 + 2 * std::size_t{capture.rank};
  return std::max<std::size_t>(words, 1);
}

void pack_arguments(const Graph& graph, std::span<const mods::Table> tables, std::uint64_t* words,
                    const ModOptions& options) {
  *words = 0;
  for (const Param& param : graph.params) {
    if (param.type == Type::integer) {
      const std::int64_t cut = std::clamp(param.value, -cut_parameters, cut_parameters);
      *words++ = static_cast<std::uint64_t>(options.narrow ? cut : param.value);
    } else if (options.reals == Reals::f64) {
      *words++ = static_cast<std::uint64_t>(param.value);
    } else {
      *words++ = std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(param.value)));
    }
  }
  for (std::size_t i = 0; i < graph.captures.size(); ++i) {
    const std::size_t rank = graph.captures[i].rank;
    const mods::Table& table = tables[i];
    const bool empty = table.data == nullptr ||
                       std::any_of(table.extent.begin(), table.extent.begin() + static_cast<std::ptrdiff_t>(rank),
                                   [](std::int64_t extent) { return extent <= 0; });
    *words++ = empty ? 0 : reinterpret_cast<std::uintptr_t>(table.data);
    // An index of 32 bits reaches no further; a search has none.
    const bool cut = options.narrow && !is_searched(graph, i);
    const std::int64_t farthest =
        cut ? std::int64_t{std::numeric_limits<std::int32_t>::max()} : std::numeric_limits<std::int64_t>::max();
    for (std::size_t axis = 0; axis < rank; ++axis)
      *words++ = empty ? 0 : static_cast<std::uint64_t>(std::min(table.extent[axis] - 1, farthest));
    const std::int64_t step = options.narrow ? size_bytes(table.dtype) : 1;
    for (std::size_t axis = 0; axis < rank; ++axis) *words++ = static_cast<std::uint64_t>(table.stride[axis] * step);
  }
}

}  // namespace tessera::emit
