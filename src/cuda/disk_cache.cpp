#include "cuda/disk_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace tessera::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".kernel", unfinished = ".tmp";
constexpr off_t most_bytes = off_t{1} << 28;

std::string word(int error) { return std::strerror(error); }

// "5f1a...9c.sm_90a.": all that a text and an architecture have here starts like this.
std::string stem(const Digest& text, const std::string& arch) { return hex(text).substr(0, 32) + "." + arch + "."; }
std::string file_name(const KernelImage& image) {
  return stem(image.text, image.arch) + hex(digest(image.compiler_id)).substr(0, 12) + std::string(suffix);
}

}  // namespace

std::optional<std::string> read_file(const std::string& path, std::string& why) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat about {};
  if (file < 0 || fstat(file, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size > most_bytes) {
    why = file < 0 ? word(errno) : "no regular file of less than 256 MB";
    if (file >= 0) close(file);
    return std::nullopt;
  }
  std::string bytes(static_cast<std::size_t>(about.st_size), '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(file, bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) why = word(errno);
    if (got <= 0) break;
    have += static_cast<std::size_t>(got);
  }
  close(file);
  if (have < bytes.size() && !why.empty()) return std::nullopt;
  bytes.resize(have);
  return bytes;
}

bool write_file(const std::string& path, std::string_view bytes, std::string& why, unsigned mode) {
  static std::atomic<unsigned> counter{0};
  const std::string other =
      path + "." + std::to_string(getpid()) + "-" + std::to_string(counter.fetch_add(1)) + std::string(unfinished);
  unlink(other.c_str());  // of a process that had this number before and was killed
  const int file = open(other.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0) {
    why = word(errno);
    return false;
  }
  bool good = true;
  while (good && !bytes.empty()) {
    const ssize_t put = ::write(file, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    good = put > 0;
    if (good) bytes.remove_prefix(static_cast<std::size_t>(put));
    else why = put < 0 ? word(errno) : "nothing could be written";
  }
  // A full disk or quota may be told at the end only.
  if (close(file) != 0 && good) good = false, why = word(errno);
  if (good && rename(other.c_str(), path.c_str()) != 0) good = false, why = word(errno);
  if (!good) unlink(other.c_str());
  return good;
}

DiskCache::DiskCache(std::string directory, std::string why_not, Notes& notes)
    : directory_(std::move(directory)), notes_(notes) {
  if (directory_.empty()) notes_.add("kernels are kept in memory only: " + why_not);
}

bool DiskCache::make_directory() const {
  std::error_code error;
  const fs::path path(directory_);
  if (fs::is_directory(path, error)) return true;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (mkdir(directory_.c_str(), 0700) == 0 || errno == EEXIST) return true;
  notes_.add("kernels are kept in memory only: the cache folder " + directory_ + " cannot be made (" + word(errno) +
             "); TESSERA_CACHE_DIR names another");
  return false;
}

std::optional<KernelImage> DiskCache::read(const std::string& path) const {
  std::string why;
  const std::optional<std::string> bytes = read_file(path, why);
  if (!bytes) {
    std::error_code error;
    if (fs::exists(path, error))
      notes_.add("the cached kernel " + path + " cannot be read (" + why + "); compiled again");
    return std::nullopt;
  }
  std::optional<KernelImage> image = decode(*bytes, why);
  if (!image) notes_.add("the cached kernel " + path + " is " + why + "; compiled again");
  return image;
}

std::optional<KernelImage> DiskCache::find(const Digest& text, const std::string& arch,
                                           const std::string& compiler_id) const {
  if (directory_.empty()) return std::nullopt;
  auto fits = [&](const std::optional<KernelImage>& image) {
    return image && image->text == text && image->arch == arch &&
           (compiler_id.empty() || image->compiler_id == compiler_id);
  };
  if (!compiler_id.empty()) {
    KernelImage wanted;
    wanted.text = text, wanted.arch = arch, wanted.compiler_id = compiler_id;
    std::optional<KernelImage> image = read(directory_ + "/" + file_name(wanted));
    if (fits(image)) return image;
    return std::nullopt;
  }
  std::error_code error;
  std::vector<std::string> paths;
  for (fs::directory_iterator at(directory_, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(stem(text, arch)) && name.ends_with(suffix)) paths.push_back(at->path().string());
  }
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths)
    if (std::optional<KernelImage> image = read(path); fits(image)) return image;
  return std::nullopt;
}

bool DiskCache::store(const KernelImage& image) const {
  if (directory_.empty() || !make_directory()) return false;
  std::string why;
  if (write_file(directory_ + "/" + file_name(image), encode(image), why)) return true;
  notes_.add("kernels are kept in memory only: the cache folder " + directory_ + " cannot be written (" + why +
             "); TESSERA_CACHE_DIR names another");
  return false;
}

std::string DiskCache::lock_path() { return directory_.empty() || !make_directory() ? "" : directory_ + "/lock"; }

std::vector<DiskCache::File> DiskCache::files() const {
  std::vector<File> all;
  std::error_code error;
  if (directory_.empty()) return all;
  for (fs::directory_iterator at(directory_, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool half = name.ends_with(unfinished) && name.find(suffix) != std::string::npos;
    if (!name.ends_with(suffix) && !half) continue;
    File file;
    file.path = at->path().string();
    std::error_code none;
    if (const auto bytes = at->file_size(none); !none) file.bytes = bytes;
    if (half) {
      file.damage = "half-written";
    } else if (const std::optional<std::string> bytes = read_file(file.path, file.damage)) {
      file.image = decode(*bytes, file.damage);
      if (file.image && file_name(*file.image) != name) file.image.reset(), file.damage = "of another name";
    }
    all.push_back(std::move(file));
  }
  std::sort(all.begin(), all.end(), [](const File& a, const File& b) { return a.path < b.path; });
  return all;
}

std::size_t DiskCache::remove(const std::vector<File>& which) const {
  std::size_t gone = 0;
  for (const File& file : which) gone += unlink(file.path.c_str()) == 0;
  return gone;
}

}  // namespace tessera::cuda
