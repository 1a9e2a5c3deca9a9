// Runs one of the small kernels of behaviours_sm90.cuh.
#pragma once
#include "sim/behaviours.hpp"

namespace tessera::sim {

struct Behaviour90 : Behaviour {       // `out` has 4096 words
  std::vector<std::uint16_t> sheet{};  // [48][72]: poison where nothing was stored
};
struct Setting90 {
  bool checked = true;
  Schedule schedule{};
  int threads = 256;
};
Behaviour90 behave90(const std::string& name, const Setting90& setting = {});

// What the tensor that the kernels load holds at plane z, row, column: 0 outside.
std::uint16_t cube_at(int z, int row, int column);

}  // namespace tessera::sim
