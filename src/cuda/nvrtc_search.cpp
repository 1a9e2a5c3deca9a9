#include "cuda/nvrtc_search.hpp"

#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tessera::cuda {
namespace {

namespace fs = std::filesystem;

// Names that the system's loader may know, newest first.
constexpr const char* system_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

// libnvrtc.so, libnvrtc.so.13, libnvrtc-672ee683.so.11.2 (as some wheels rename it); not libnvrtc-builtins, not the
// variant for other hosts' code, libnvrtc.alt.
bool is_nvrtc(const std::string& name) {
  return name.starts_with("libnvrtc") && name.find(".so") != std::string::npos &&
         name.find("builtins") == std::string::npos && name.find(".alt") == std::string::npos &&
         name.find("_static") == std::string::npos;
}

int major_of(const fs::path& path) {
  std::error_code error;
  for (const fs::path& p : {path, fs::canonical(path, error)}) {
    const std::string name = p.filename().string();
    const std::size_t at = name.find(".so.");
    if (at != std::string::npos) return std::atoi(name.c_str() + at + 4);
  }
  return 0;
}

std::vector<std::string> sorted_entries(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Of the compilers in a folder the newest that the driver can follow, else the newest.
void add_folder(NvrtcSearch& search, const fs::path& folder, const std::string& how, int driver_major) {
  search.looked_at.push_back(how + ": " + folder.string());
  NvrtcCandidate best;
  const auto follows = [&](const NvrtcCandidate& c) { return driver_major == 0 || c.major <= driver_major; };
  for (const std::string& path : sorted_entries(folder)) {
    if (!is_nvrtc(fs::path(path).filename().string())) continue;
    NvrtcCandidate one{path, how, major_of(path)};
    const bool better = best.path.empty() || (follows(one) != follows(best) ? follows(one) : one.major > best.major);
    if (better) best = one;
  }
  if (!best.path.empty()) search.candidates.push_back(best);
}

void add_pinned(NvrtcSearch& search, const std::string& path, const std::string& how, int driver_major) {
  std::error_code error;
  if (fs::is_directory(path, error)) return add_folder(search, path, how, driver_major);
  search.looked_at.push_back(how + ": " + path);
  if (fs::exists(path, error)) search.candidates.push_back({path, how, major_of(path)});
}

const char* environment(const char* name) {
  const char* const value = std::getenv(name);
  return value && *value ? value : nullptr;
}

std::vector<std::string> loaded_objects() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        if (info->dlpi_name && *info->dlpi_name) static_cast<std::vector<std::string>*>(to)->push_back(info->dlpi_name);
        return 0;
      },
      &paths);
  return paths;
}

// The folders lib/python3.*/site-packages below a prefix.
void add_site_packages(std::vector<std::string>& to, const fs::path& prefix) {
  std::error_code error;
  for (const std::string& folder : sorted_entries(prefix / "lib"))
    if (fs::path(folder).filename().string().starts_with("python3") &&
        fs::is_directory(folder + "/site-packages", error))
      to.push_back(folder + "/site-packages");
}

// Modules that are loaded tell where the running Python keeps its packages, whatever environment it was started from;
// so does the name that it was started by; and a tool beside it is told by the shell's active environment.
std::vector<std::string> python_folders(const std::vector<std::string>& loaded) {
  std::vector<std::string> folders;
  for (const std::string& path : loaded)
    for (const char* name : {"/site-packages/", "/dist-packages/"})
      if (const std::size_t at = path.find(name); at != std::string::npos)
        folders.push_back(path.substr(0, at + std::string(name).size() - 1));
  std::ifstream file("/proc/self/cmdline");
  std::string program;
  std::getline(file, program, '\0');
  const fs::path started(program);
  if (started.has_parent_path() && started.filename().string().starts_with("python"))
    add_site_packages(folders, started.parent_path().parent_path());
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* prefix = environment(name)) add_site_packages(folders, prefix);
  std::vector<std::string> unique;
  for (const std::string& folder : folders)
    if (std::find(unique.begin(), unique.end(), folder) == unique.end()) unique.push_back(folder);
  return unique;
}

std::vector<std::string> toolkit_folders() {
  std::vector<std::string> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* folder = environment(name)) folders.push_back(folder);
  folders.push_back("/usr/local/cuda");
  std::vector<std::string> versions;
  for (const std::string& path : sorted_entries("/usr/local"))
    if (path.starts_with("/usr/local/cuda-")) versions.push_back(path);
  // 13.0 after 9.2: as numbers, newest first.
  std::sort(versions.begin(), versions.end(), [](const std::string& a, const std::string& b) {
    return std::atof(a.c_str() + 16) > std::atof(b.c_str() + 16);
  });
  folders.insert(folders.end(), versions.begin(), versions.end());
  return folders;
}

}  // namespace

NvrtcPlaces nvrtc_places(std::string option, std::string variable) {
  NvrtcPlaces places;
  places.option = std::move(option), places.variable = std::move(variable);
  places.loaded = loaded_objects();
  places.python = python_folders(places.loaded);
  places.toolkit = toolkit_folders();
  return places;
}

NvrtcSearch search_nvrtc(const NvrtcPlaces& places, int driver_major) {
  NvrtcSearch search;
  if (!places.option.empty()) {
    add_pinned(search, places.option, "the one asked for", driver_major);
    return search;
  }
  if (!places.variable.empty()) {
    add_pinned(search, places.variable, "TESSERA_NVRTC", driver_major);
    return search;
  }
  search.looked_at.push_back("what the process has loaded");
  for (const std::string& path : places.loaded)
    if (is_nvrtc(fs::path(path).filename().string()))
      search.candidates.push_back({path, "loaded already", major_of(path)});
  for (const std::string& root : places.python)
    for (const char* folder : {"/nvidia/cu13/lib", "/nvidia/cuda_nvrtc/lib"})
      add_folder(search, root + folder, "the package nvidia-cuda-nvrtc", driver_major);
  for (const std::string& root : places.toolkit)
    for (const char* folder : {"/lib64", "/lib", "/targets/x86_64-linux/lib"})
      add_folder(search, root + folder, "the toolkit", driver_major);
  if (places.system)
    for (const char* name : system_names) {
      search.looked_at.push_back(std::string("the system's loader: ") + name);
      search.candidates.push_back({name, "the system's loader", major_of(name)});
    }
  if (driver_major != 0)
    std::stable_partition(search.candidates.begin(), search.candidates.end(),
                          [&](const NvrtcCandidate& c) { return c.major <= driver_major; });
  return search;
}

}  // namespace tessera::cuda
