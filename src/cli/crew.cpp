#include "cli/crew.hpp"

#include <algorithm>

#include "cli/interleave.hpp"

namespace tessera::cli {
namespace {

// Waits until `counter` reaches `count`: the others are about to, unless there are more threads than cores.
void meet(const std::atomic<int>& counter, int count) {
  while (counter.load(std::memory_order_acquire) < count) std::this_thread::yield();
}

}  // namespace

Crew::Crew(int threads) {
  for (int i = 0; i + 1 < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

Crew::~Crew() {
  stop_ = true;
  ++round_;
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Crew::work(int index) {
  for (unsigned seen = 0;;) {
    round_.wait(seen);
    seen = round_;
    if (stop_) return;
    ++arrived_;
    meet(arrived_, threads());
    (*task_)(index);
    ++done_;
  }
}

double Crew::run(const std::function<void(int)>& task) {
  const int others = static_cast<int>(workers_.size());
  task_ = &task;
  arrived_ = 0, done_ = 0;
  if (others > 0) {
    ++round_;
    round_.notify_all();
    ++arrived_;
    meet(arrived_, threads());
  }
  const double start = now_s();
  task(others);
  meet(done_, others);
  return now_s() - start;
}

}  // namespace tessera::cli
