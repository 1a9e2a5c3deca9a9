// One compilation of a kernel at a time, over all processes that share a cache folder, and never a wait without end.
//
// A byte of one lock file stands for each kernel, locked by an open file description (Linux): the system takes the lock
// back when its holder ends, however it ends, so no lock is ever stale, and nothing is left behind. It also holds
// between machines that mount the folder by NFS. Where such locks are not to be had, and when a holder takes too long,
// the caller goes on without: the worst that can happen then is that a kernel is compiled twice. Must not know: what is
// locked.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace tessera::cuda {

class FileLock {
 public:
  // Waits for the byte that stands for `number` in the file, at most `patience`.
  FileLock(const std::string& path, std::uint64_t number, std::chrono::milliseconds patience);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool held() const { return held_; }
  bool waited() const { return waited_; }    // for another holder: what it made may be there now
  bool ran_out() const { return ran_out_; }  // of patience

 private:
  int file_ = -1;
  bool held_ = false, waited_ = false, ran_out_ = false;
};

}  // namespace tessera::cuda
