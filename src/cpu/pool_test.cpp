// The pool: every task once, callers that do not wait for each other, a forked child, a host's own executor.
#include "cpu/pool.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tessera/attention.hpp"

namespace tessera {
namespace {

struct Tally {
  std::vector<std::atomic<int>> seen;
  explicit Tally(int count) : seen(static_cast<std::size_t>(count)) {}
  static void task(void* context, int index) { ++static_cast<Tally*>(context)->seen[static_cast<std::size_t>(index)]; }
  bool each_once() const {
    for (const auto& n : seen)
      if (n != 1) return false;
    return true;
  }
};

TEST(Pool, RunsEveryTaskOnce) {
  for (int count : {1, 2, 3, 64, 1000}) {
    Tally tally(count);
    cpu::pool().run(count, &Tally::task, &tally);
    EXPECT_TRUE(tally.each_once()) << count;
  }
}

TEST(Pool, ServesManyCallersAtOnce) {
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 8; ++i)
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        Tally tally(7);
        cpu::pool().run(7, &Tally::task, &tally);
        if (!tally.each_once()) ++wrong;
      }
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Pool, TasksMayRunJobsOfTheirOwn) {
  std::atomic<int> inner{0};
  cpu::pool().run(
      4,
      [](void* outer, int) {
        cpu::pool().run(
            3, [](void* count, int) { ++*static_cast<std::atomic<int>*>(count); }, outer);
      },
      &inner);
  EXPECT_EQ(inner, 12);
}

TEST(Arena, IsKeptAndASecondLeaseIsApart) {
  void* first;
  {
    const cpu::ArenaLease lease(1000);
    first = lease.data();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % cpu::scratch_alignment, 0u);
    const cpu::ArenaLease other(1000);
    EXPECT_NE(other.data(), first);
    std::memset(first, 1, 1000), std::memset(other.data(), 2, 1000);
    EXPECT_EQ(static_cast<char*>(first)[999], 1);
  }
  const cpu::ArenaLease again(1000);
  EXPECT_EQ(again.data(), first);
}

// One call large enough for several threads; the answer depends on no thread.
std::vector<float> attend(const Exec& exec) {
  const std::int64_t n = 600, d = 64;
  std::vector<float> q(static_cast<std::size_t>(n * d)), o(q.size());
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>((i * 2654435761u) % 1000) / 500 - 1;
  const Tensor x = tensor(static_cast<const float*>(q.data()), {1, n, 1, d});
  attention({x, x, x}, {tensor(o.data(), {1, n, 1, d})}, {.mask = causal()}, exec);
  return o;
}

TEST(Pool, AttentionInAForkedChildHasTheSameBits) {
  const std::vector<float> expected = attend({.threads = 4});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);  // a child that hangs is a failure, not a hang of the test
    _exit(attend({.threads = 4}) == expected ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(attend({.threads = 4}), expected);  // and the parent's pool still works
}

// A host's executor that runs the tasks backwards, on one thread, while the caller's arena is in use.
class Backwards final : public Executor {
 public:
  int concurrency() const override { return 3; }
  void run(int count, void (*task)(void*, int), void* context) override {
    ++runs;
    for (int i = count; i-- > 0;) {
      if (!nested) {
        nested = true;
        inner = attend({.threads = 1});  // other work of the host in between
        nested = false;
      }
      task(context, i);
    }
  }
  int runs = 0;
  bool nested = false;
  std::vector<float> inner;
};

TEST(Pool, AHostsExecutorIsUsedInstead) {
  Backwards host;
  const std::vector<float> expected = attend({.threads = 1});
  EXPECT_EQ(attend({.executor = &host}), expected);
  EXPECT_GT(host.runs, 0);
  EXPECT_EQ(host.inner, expected);
}

}  // namespace
}  // namespace tessera
