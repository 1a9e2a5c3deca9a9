// Threads, and scratch memory for each: the only parts of the CPU backend with a state of their own.
// Must not know: attention.
#pragma once
#include <cstddef>

#include "tessera/plan.hpp"

namespace tessera::cpu {

// TESSERA_THREADS, else the cores this process may run on.
int default_threads();

// The library's own pool: default_threads() - 1 threads that sleep between jobs, and the caller. Any number of callers
// may run jobs at once: each works on its own job, so none waits for a thread. A forked child gets a new pool.
Executor& pool();

// Aligned memory of the calling thread that grows and stays, so that a repeated call allocates nothing. A second lease
// while one is held (an executor that runs other work meanwhile) gets memory of its own.
class ArenaLease {
 public:
  explicit ArenaLease(std::size_t bytes);  // throws Error(out_of_memory)
  ~ArenaLease();
  ArenaLease(const ArenaLease&) = delete;
  ArenaLease& operator=(const ArenaLease&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  bool own_ = false;  // not the thread's arena
};

inline constexpr std::size_t scratch_alignment = 64;

}  // namespace tessera::cpu
