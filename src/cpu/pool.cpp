#include "cpu/pool.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace tessera::cpu {
namespace {

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// One run() of one caller. It lives on the caller's stack for as long as anyone may look at it.
struct Job {
  void (*task)(void*, int);
  void* context;
  int count;
  std::atomic<int> next{0};
  int helpers = 0;  // pool threads inside it; guarded by the pool's mutex
  Job* below = nullptr;
  void work() {
    for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) task(context, i);
  }
};

class Pool final : public Executor {
 public:
  explicit Pool(int threads) : concurrency_(threads) {
    for (int i = 1; i < threads; ++i) std::thread([this] { serve(); }).detach();
  }
  int concurrency() const override { return concurrency_; }

  void run(int count, void (*task)(void*, int), void* context) override {
    Job job{task, context, count};
    if (count > 1 && concurrency_ > 1) {
      std::lock_guard lock(mutex_);
      job.below = jobs_, jobs_ = &job;
      if (count == 2) wake_.notify_one();
      else wake_.notify_all();
    }
    job.work();
    if (count > 1 && concurrency_ > 1) {
      std::unique_lock lock(mutex_);
      Job** link = &jobs_;
      while (*link != &job) link = &(*link)->below;
      *link = job.below;
      done_.wait(lock, [&] { return job.helpers == 0; });
    }
  }

 private:
  Job* open_job() {
    for (Job* job = jobs_; job; job = job->below)
      if (job->next.load(std::memory_order_relaxed) < job->count) return job;
    return nullptr;
  }
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      Job* job = nullptr;
      wake_.wait(lock, [&] { return (job = open_job()) != nullptr; });
      ++job->helpers;
      lock.unlock();
      job->work();
      lock.lock();
      if (--job->helpers == 0) done_.notify_all();
    }
  }

  const int concurrency_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Job* jobs_ = nullptr;
};

// Never destroyed: its threads may outlive every static object. After fork() the child has no threads and perhaps a
// locked mutex, so it forgets the pool and makes another when it needs one.
std::atomic<Pool*> current{nullptr};
std::mutex making;
Pool* made = nullptr;  // keeps abandoned pools reachable

struct Arena {
  void* data = nullptr;
  std::size_t bytes = 0;
  bool leased = false;
  ~Arena() { std::free(data); }
};
thread_local Arena arena;

void* allocate(std::size_t bytes) {
  bytes = (bytes + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
  void* data = std::aligned_alloc(scratch_alignment, std::max(bytes, scratch_alignment));
  if (!data) throw Error(Code::out_of_memory, "no memory for a workspace of " + std::to_string(bytes) + " bytes");
  return data;
}

}  // namespace

int default_threads() {
  static const int threads = [] {
    if (const char* text = std::getenv("TESSERA_THREADS")) {
      const int n = std::atoi(text);
      if (n >= 1) return std::min(n, 1024);
    }
    return available_cores();
  }();
  return threads;
}

Executor& pool() {
  if (Pool* p = current.load(std::memory_order_acquire)) return *p;
  static const int registered = pthread_atfork([] { making.lock(); }, [] { making.unlock(); },
                                               [] {
                                                 current.store(nullptr);
                                                 making.unlock();
                                               });
  (void)registered;
  std::lock_guard lock(making);
  if (Pool* p = current.load(std::memory_order_acquire)) return *p;
  made = new Pool(default_threads());
  current.store(made, std::memory_order_release);
  return *made;
}

ArenaLease::ArenaLease(std::size_t bytes) {
  if (arena.leased) {
    data_ = allocate(bytes), own_ = true;
    return;
  }
  if (arena.bytes < bytes) {
    void* grown = allocate(bytes);
    std::free(arena.data);
    arena.data = grown, arena.bytes = bytes;
  }
  arena.leased = true;
  data_ = arena.data;
}
ArenaLease::~ArenaLease() {
  if (own_) std::free(data_);
  else arena.leased = false;
}

}  // namespace tessera::cpu
