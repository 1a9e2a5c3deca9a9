// A few threads that start together: for the ceilings and the baseline's softmax, which must not share a pool with the
// library that they are compared to.
#pragma once
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace tessera::cli {

class Crew {
 public:
  explicit Crew(int threads);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  // Runs task(i) for i in [0, threads), the last on the calling thread; all start once all are awake. Returns the
  // seconds from the common start until the last one was done.
  double run(const std::function<void(int)>& task);

 private:
  void work(int index);

  std::vector<std::thread> workers_;
  const std::function<void(int)>* task_ = nullptr;
  std::atomic<unsigned> round_{0};  // a new one starts a run
  std::atomic<int> arrived_{0}, done_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace tessera::cli
