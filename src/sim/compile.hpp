// From the text of a kernel to code in memory, by the system's C++ compiler. Each text is compiled once: the result
// stays in memory and in a folder, under a name made of all that it depends on. Several threads, and several processes,
// may compile at a time. Must not know: launches, engines.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/launch.hpp"

namespace tessera::sim {

struct CompileOptions {
  std::string compiler = "g++";
  std::string folder{};  // where compiled kernels are kept; it is made when it is needed
  bool checked = false;
};

// `name` is that of the extern "C" __global__ function. Throws Error(unsupported) with what the compiler said.
const LoadedCode& compiled(const CompileOptions& options, const std::string& name, const std::string& text);

enum class Kept : std::uint8_t { memory, disk, nowhere };
Kept where_kept(const CompileOptions& options, const std::string& name, const std::string& text);

struct NamedText {
  std::string name, text;
};
// Compiles what is not there yet, `jobs` at a time (0: as many as there are processors).
void compile_ahead(const CompileOptions& options, const std::vector<NamedText>& texts, int jobs);

// For tests that plant bugs: every text that is compiled from now on goes through `edit` first, and what becomes of it
// into `folder`. Not to be called while others compile.
void plant(std::function<std::string(const std::string&)> edit, const std::string& folder);

// What stands before and behind the text of a kernel: device.hpp and builtins.hpp (made by cmake/EmbedShared.cmake's
// manner), and the entry by which it is called.
std::string complete_text(bool checked, const std::string& name, const std::string& text);
std::string_view device_text();
std::string_view builtins_text();

}  // namespace tessera::sim
