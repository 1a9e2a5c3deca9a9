// The folder of compiled kernels does not grow for ever: what has not been used for long goes, and the oldest beyond a
// size. Must not know: what the files hold.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace tessera::sim {

struct KeptFiles {
  std::chrono::hours age{14 * 24};             // unused for so long: goes
  std::int64_t bytes = std::int64_t{2} << 30;  // of all: beyond, those go that were used longest ago
  std::chrono::hours spared{1};                // used since: stays, somebody may be at it
};
// Files that belong together differ in what follows the first dot of their names, and go together. What cannot be
// removed stays. Returns how many files are gone.
int prune(const std::string& folder, const KeptFiles& limits = {});
// The same with the limits of above, once for each folder of this process.
void prune_once(const std::string& folder);
// The file, and what belongs to it, has been used now.
void note_use(const std::string& path);

}  // namespace tessera::sim
