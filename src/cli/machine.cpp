#include "cli/machine.hpp"

#include <sched.h>

#include <cstdlib>
#include <fstream>
#include <thread>

namespace tessera::cli {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value of a line "key : value" of /proc/cpuinfo or /proc/meminfo.
std::string value_of(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.compare(0, key.size(), key) == 0) {
      const std::size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
      return value == line.npos ? "" : line.substr(value);
    }
  return "";
}

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.processor = value_of("/proc/cpuinfo", "model name");
  machine.cores = usable_cores();
  machine.memory_bytes = 1024 * std::strtod(value_of("/proc/meminfo", "MemTotal").c_str(), nullptr);
  for (int index = 0; index < 16; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string size = first_line(folder + "size");
    if (size.empty()) break;
    const std::size_t unit = size.back() == 'K' ? 1u << 10 : size.back() == 'M' ? 1u << 20 : 1;
    machine.caches.push_back({std::atoi(first_line(folder + "level").c_str()), first_line(folder + "type"),
                              std::strtoul(size.c_str(), nullptr, 10) * unit, first_line(folder + "shared_cpu_list")});
  }
  return machine;
}

}  // namespace tessera::cli
