#include "sim/sources.hpp"

#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

namespace tessera::sim {
namespace {

const std::string root = TESSERA_SOURCE_DIR;

// `place` is where the text is from, below the root.
std::string inline_into(const std::string& text, const std::string& place, std::set<std::string>& seen) {
  const std::string folder = place.substr(0, place.rfind('/') + 1);
  std::istringstream in(text);
  std::string line, out;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.starts_with("#pragma once")) line.clear();
    if (!line.starts_with("#include \"")) {
      out += line + "\n";
      continue;
    }
    const std::string name = line.substr(10, line.rfind('"') - 10);
    std::string found;
    for (const std::string& candidate : {folder + name, "src/" + name, "tests/" + name})
      if (found.empty() && std::ifstream(root + "/" + candidate).good()) found = candidate;
    if (found.empty()) throw std::runtime_error("no file for " + line);
    if (seen.insert(found).second) out += "#line 1 \"" + found + "\"\n" + inline_into(file_text(found), found, seen);
    out += "#line " + std::to_string(number + 1) + " \"" + place + "\"\n";
  }
  return out;
}

}  // namespace

std::string file_text(const std::string& path) {
  std::ifstream file(root + "/" + path);
  if (!file) throw std::runtime_error("no file " + path);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

std::string inlined(const std::string& text) {
  std::set<std::string> seen;
  return inline_into(text, "tests/sim/kernel.cu", seen);
}

}  // namespace tessera::sim
