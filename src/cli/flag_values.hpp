// What the definitions of flags are made of.
// Must not know: which flags there are.
#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/run_flags.hpp"

namespace tessera::cli {

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

inline std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// CLI11 alone would read a number that is too large as the largest one.
inline const CLI::Validator& whole_numbers() {
  static const CLI::Validator validator(
      [](std::string& text) {
        return whole_number(text) ? std::string() : fmt::format("'{}' is not a whole number of 64 bits", text);
      },
      "", "whole number");
  return validator;
}

}  // namespace tessera::cli
