#ifndef _GNU_SOURCE
#define _GNU_SOURCE  // F_OFD_SETLK
#endif
#include "cuda/file_lock.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace tessera::cuda {

FileLock::FileLock(const std::string& path, std::uint64_t number, std::chrono::milliseconds patience)
    : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  if (file_ < 0) return;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(number >> 2);  // within 62 bits: an offset is signed
  lock.l_len = 1;
  const auto end = std::chrono::steady_clock::now() + patience;
  auto pause = std::chrono::milliseconds(1);
  // By polling: a wait in the system could be ended by signals alone.
  while (fcntl(file_, F_OFD_SETLK, &lock) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EACCES) return;
    waited_ = true;
    if (std::chrono::steady_clock::now() >= end) {
      ran_out_ = true;
      return;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
  held_ = true;
}

FileLock::~FileLock() {
  if (file_ >= 0) close(file_);  // and with it the lock
}

}  // namespace tessera::cuda
