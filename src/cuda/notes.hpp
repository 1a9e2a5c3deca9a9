// What went wrong and was worked around: kept, once each, for whoever asks (`tessera info`, explain). Thread-safe.
// Must not know: what went wrong.
#pragma once
#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::cuda {

class Notes {
 public:
  void add(std::string text) {
    std::lock_guard lock(mutex_);
    if (notes_.size() < most && std::find(notes_.begin(), notes_.end(), text) == notes_.end())
      notes_.push_back(std::move(text));
  }
  std::vector<std::string> all() const {
    std::lock_guard lock(mutex_);
    return notes_;
  }

 private:
  static constexpr std::size_t most = 64;
  mutable std::mutex mutex_;
  std::vector<std::string> notes_;
};

}  // namespace tessera::cuda
