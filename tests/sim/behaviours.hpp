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
struct Setting {
  bool checked = true;
  Schedule schedule{};
  int blocks = 1;
  int zeroed = 0;  // words of the output that are 0 at first
};
Behaviour behave(const std::string& name, const Setting& setting = {});

}  // namespace tessera::sim
