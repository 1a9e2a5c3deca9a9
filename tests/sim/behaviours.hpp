// Runs one of the small kernels of behaviours.cuh.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sim/launch.hpp"

namespace tessera::sim {

struct Behaviour {
  Result result;
  std::vector<std::uint32_t> out;  // [1024], poison where nothing was written; 0 at first where `zeroed`
  // How many reports are of this kind.
  int of(const std::string& kind) const;
};
// All small kernels of a file as one text, `behaviours`, with a switch over Params::which in their order.
struct CaseText {
  std::vector<std::string> names;
  std::string text;
};
// `more`: text between the file and the entry, in namespace ptx. `locals`, `arguments`: what its functions take
// besides.
CaseText case_text(const std::string& file, const std::string& more, int threads, const std::string& locals,
                   const std::string& arguments);

struct Setting {
  bool checked = true;
  Schedule schedule{};
  int blocks = 1;
  int zeroed = 0;  // words of the output that are 0 at first
};
Behaviour behave(const std::string& name, const Setting& setting = {});

}  // namespace tessera::sim
