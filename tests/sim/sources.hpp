// Kernel texts for tests, from the files of the repository: #include lines are replaced by what they name, once each.
#pragma once
#include <string>

namespace tessera::sim {

// `text` with every `#include "..."` of files below src/ and tests/sim/ inlined.
std::string inlined(const std::string& text);
// A file of the repository: "tests/sim/small_forward.cuh".
std::string file_text(const std::string& path);

}  // namespace tessera::sim
