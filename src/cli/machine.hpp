// The machine, as the operating system describes it.
#pragma once
#include <string>
#include <vector>

namespace tessera::cli {

struct Cache {
  int level = 0;
  std::string type;  // "Data", "Instruction", "Unified"
  std::size_t bytes = 0;
  std::string shared;  // the cores that share it, as Linux writes lists: "0-7"
};

struct Machine {
  std::string processor;  // empty where unknown, like everything here
  int cores = 0;          // that this process may use
  double memory_bytes = 0;
  std::vector<Cache> caches;  // of the first core
};
Machine this_machine();

}  // namespace tessera::cli
