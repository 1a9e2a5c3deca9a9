// One launch of a kernel on the emulated GPU, and what it had to say. What tests and the engine use.
// Must not know: how kernels come into memory (engine.hpp does).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::sim {

// When an asynchronous copy becomes visible: as late as its contract allows, at once, or at random.
enum class Timing : std::uint8_t { late, eager, random };

// In which order threads run. The same schedule is the same run, to the bit.
struct Schedule {
  std::uint64_t seed = 0;  // 0: blocks, warps and lanes in order; else a random order, threads preempted at random
  Timing timing = Timing::late;
  int resident = 1;  // blocks that run at the same time, if there are so many
};

// A kernel in memory: a function that takes its parameters as bytes.
struct LoadedCode {
  void (*run)(const void* params) = nullptr;
  std::size_t params_bytes = 0;
  bool checked = false;              // built with hooks: vector clocks, bounds of every access, uninitialised reads
  bool asynchronous = false;         // its text has the asynchronous instructions of sm_90
  int blocks_per_sm = 1;             // that its launch bounds promise
  const char* text_begin = nullptr;  // where its code and constants lie in memory, and from which file they are
  const char* text_end = nullptr;
  std::string file{};
};

struct Report {
  std::string kind;  // "race", "deadlock", "out of bounds", "uninitialised" ...
  std::string text;  // who, where, what
  std::uint64_t times = 1;
};

struct Result {
  std::vector<Report> reports{};
  std::uint64_t switches = 0, meetings = 0;  // of threads; of whole warps at an instruction
  double seconds = 0;                        // of this thread's processor time
  bool ok() const { return reports.empty(); }
};
std::string text_of(const Result& result);

// Runs `blocks` blocks of `threads` threads with `smem_bytes` of shared memory each, on the calling thread. Several
// threads may launch at a time.
Result launch(const LoadedCode& code, std::int64_t blocks, int threads, std::size_t smem_bytes, const void* params,
              const Schedule& schedule);

}  // namespace tessera::sim
