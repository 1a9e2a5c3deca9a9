#include "sim/kept_files.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace tessera::sim {
namespace {

namespace fs = std::filesystem;

struct Group {
  std::vector<fs::path> files;
  fs::file_time_type used = fs::file_time_type::min();
  std::int64_t bytes = 0;
};

std::vector<Group> groups_of(const std::string& folder) {
  std::map<std::string, Group> by_name;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code gone;  // by another process
    if (!it->is_regular_file(gone)) continue;
    const fs::file_time_type used = it->last_write_time(gone);
    if (gone) continue;
    const std::uintmax_t bytes = it->file_size(gone);
    if (gone) continue;
    const std::string name = it->path().filename().string();
    Group& group = by_name[name.substr(0, name.find('.'))];
    group.files.push_back(it->path());
    group.used = std::max(group.used, used), group.bytes += static_cast<std::int64_t>(bytes);
  }
  std::vector<Group> all;
  for (auto& [name, group] : by_name) all.push_back(std::move(group));
  return all;
}

}  // namespace

int prune(const std::string& folder, const KeptFiles& limits) {
  std::vector<Group> groups = groups_of(folder);
  std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.used > b.used; });
  const fs::file_time_type now = fs::file_time_type::clock::now();
  std::int64_t bytes = 0;
  int removed = 0;
  for (const Group& group : groups) {
    const auto age = now - group.used;
    bytes += group.bytes;
    if (age < limits.spared || (age < limits.age && bytes <= limits.bytes)) continue;
    for (const fs::path& file : group.files) {
      std::error_code failed;
      removed += fs::remove(file, failed);
    }
  }
  return removed;
}

void prune_once(const std::string& folder) {
  static std::mutex mutex;
  static std::set<std::string> done;
  const std::lock_guard lock(mutex);
  if (done.insert(folder).second) prune(folder);
}

void note_use(const std::string& path) {
  std::error_code failed;
  fs::last_write_time(path, fs::file_time_type::clock::now(), failed);
}

}  // namespace tessera::sim
