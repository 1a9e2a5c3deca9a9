#include "sim/sources.hpp"

#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

namespace tessera::sim {
namespace {

const std::string root = TESSERA_SOURCE_DIR;

bool exists(const std::string& path) { return std::ifstream(path).good(); }

std::string inline_into(const std::string& text, const std::string& folder, std::set<std::string>& seen) {
  std::istringstream in(text);
  std::string line, out;
  int number = 0;
  while (std::getline(in, line)) {
    ++number;
    if (line.starts_with("#pragma once")) line.clear();
    if (!line.starts_with("#include \"")) {
      out += line + "\n";
      continue;
    }
    const std::string name = line.substr(10, line.rfind('"') - 10);
    std::string found;
    for (const std::string& place : {folder + "/" + name, root + "/src/" + name, root + "/tests/" + name})
      if (found.empty() && exists(place)) found = place;
    if (found.empty()) throw std::runtime_error("no file for " + line);
    const std::size_t slash = found.rfind('/');
    if (!seen.insert(found.substr(slash + 1)).second) {
      out += "\n";
      continue;
    }
    std::ifstream file(found);
    std::ostringstream content;
    content << file.rdbuf();
    out += "#line 1 \"" + found.substr(slash + 1) + "\"\n" + inline_into(content.str(), found.substr(0, slash), seen);
    out += "#line " + std::to_string(number + 1) + "\n";
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
  return inline_into(text, root + "/tests/sim", seen);
}

}  // namespace tessera::sim
