// The flags that say on what a command runs, and where its answer goes; shared by every command that has them.
// Must not know: shapes, and what a command does.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensor.hpp"

namespace CLI {
class App;
}

namespace tessera::cli {

// Whether a flag takes one value or a list to sweep over ("--d 64,128").
enum class Values { one, list };

struct RunFlags {
  std::vector<int> threads;  // 0: all cores
  std::vector<std::string> backend, isa;
};
void add_threads_flag(CLI::App& command, RunFlags& flags, Values values, int otherwise);
void add_backend_flags(CLI::App& command, RunFlags& flags, Values values,
                       std::string_view otherwise = "the best that can");
// The backends named by --backend and --isa, as Options::backend takes them; {""}: the best that can. "all": each that
// can run on this machine, of those that compute on tensors of `device`, if that is given. Throws Misuse when the two
// contradict each other.
std::vector<std::string> backends_of(const RunFlags& flags, std::optional<DeviceType> device = {});
std::vector<DType> dtypes_of(const std::vector<std::string>& names);
int thread_count(int threads);  // 0 becomes the number that the library takes by itself

void add_json_flag(CLI::App& command, std::string& path);

}  // namespace tessera::cli
