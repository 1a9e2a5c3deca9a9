// One planted bug: does the emulated GPU, or the result, show it? What tools/gpu_mutants.py runs, once for each bug.
//   tessera_gpu_mutants text SUBJECT                      prints a text of the subject, to find places in
//   tessera_gpu_mutants run SUBJECT OLD NEW FOLDER        with the content of file OLD replaced by that of NEW; what is
//                                                         compiled goes to FOLDER
// The last line of `run` says "noticed: ..." (exit code 1) or "not noticed" (0); anything else is exit code 2.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "sim/mutant_subjects.hpp"

namespace {

std::string content(const char* path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(std::string("no file ") + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

int run(const tessera::sim::MutantSubject& subject, const std::string& from, const std::string& to,
        const char* folder) {
  bool applied = false;
  tessera::sim::plant(
      [&](const std::string& text) {
        std::string changed = text;
        if (from.empty()) return changed;  // the unharmed kernel
        const std::size_t at = changed.find(from);
        if (at == std::string::npos) return changed;  // a kernel that the bug is not in
        if (changed.find(from, at + 1) != std::string::npos) throw std::runtime_error("the place is not the only one");
        applied = true;
        return changed.replace(at, from.size(), to);
      },
      folder);
  std::string noticed = subject.notice();
  if (!applied && !from.empty()) throw std::runtime_error("the place is in no text of the subject");
  if (noticed.empty()) {
    std::printf("not noticed\n");
    return 0;
  }
  noticed = noticed.substr(0, 600);
  for (char& c : noticed)
    if (c == '\n') c = ' ';
  std::printf("noticed: %s\n", noticed.c_str());
  return 1;
}

}  // namespace

int main(int count, char** args) try {
  const std::string what = count > 1 ? args[1] : "";
  if (what == "text" && count == 3) {
    std::cout << tessera::sim::mutant_subject(args[2]).text();
    return 0;
  }
  if (what == "run" && count == 6)
    return run(tessera::sim::mutant_subject(args[2]), content(args[3]), content(args[4]), args[5]);
  std::fprintf(stderr, "usage: tessera_gpu_mutants text SUBJECT | run SUBJECT OLD NEW FOLDER\n");
  return 2;
} catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 2;
}
