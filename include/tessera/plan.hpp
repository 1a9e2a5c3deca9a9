// How it will be done: a value decided by pure functions of (Problem, Caps). The third stage of the flow.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "tessera/problem.hpp"
#include "tessera/tile_map.hpp"

namespace tessera {
class Backend;
namespace mods {
struct Program;
}
namespace tiles {
class RunMaps;
}
namespace plans {
class Details;
}
inline namespace TESSERA_API_NAMESPACE {

// Runs `count` tasks; task(context, i) for every i in [0, count), in any order, on any threads, and returns when all
// are done. A host's own thread pool can be plugged in by deriving from it.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual int concurrency() const = 0;  // how many tasks it runs at a time
  virtual void run(int count, void (*task)(void* context, int index), void* context) = 0;
};

// Scratch memory of the caller, 64-byte aligned, at least plan.workspace_bytes(threads). Not shared by two calls at
// once.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// A CUstream or cudaStream_t of the tensors' device; null is the default stream. CPU backends run at once.
struct Stream {
  void* handle = nullptr;
  bool operator==(const Stream&) const = default;
};

// How to run it. Nothing here changes a single bit of the result.
struct Exec {
  Workspace workspace{};         // default: a per-thread arena that grows once
  Executor* executor = nullptr;  // default: the library's own pool
  int threads = 0;               // 0: TESSERA_THREADS, else all cores (or the executor's concurrency)
  Stream stream{};               // of CUDA tensors
};

// What the hardware would need at least, and what the problem asks for.
struct Cost {
  double pairs = 0;  // attended (query, key) pairs over all heads; packed or undecided: an upper bound
  double flops = 0;  // 2 * pairs * (dim + dim_v)
  double bytes = 0;  // q, k, v, o and lse once each
  bool upper_bound = false;
};

// What the device reaches at most, where that is known: floating-point operations and bytes of its memory a second.
struct Ceiling {
  double flops_s = 0, bytes_s = 0;  // 0: not known
};

// Why a candidate that stands before the chosen one in the list was not taken.
struct PassedOver {
  std::string candidate;  // "cpu:avx512"
  std::string reason;
  bool operator==(const PassedOver&) const = default;
};

// How a backend cuts the work. Rows of a tile are (query, head) pairs of one key head.
struct Tiling {
  std::int64_t q_tile = 0;          // queries of one work item
  std::int64_t tiles_at_once = 1;   // neighbouring items that a thread may take together, to read K and V once
  std::int64_t heads_per_tile = 1;  // query heads of a group that share one item (more than 1 when queries are few)
  std::int64_t panel = 0;           // rows that one inner loop works on at a time
  std::int64_t k_block = 0;         // keys between two rescalings; the grid starts at key 0
  std::int64_t kv_split = 0;        // keys after which a partial result is closed and merged; the same for every shape
  // Queries x keys of the tiles in which a mask that bands do not describe is known to be empty, full or partial; 0:
  // bands describe it, or nothing is known of it before it is evaluated.
  std::int64_t run_queries = 0, run_keys = 0;
  std::int64_t splits = 1;  // work items that share one query tile, merged by `combine` in key order
  std::int64_t items = 0;   // work items in all; packed: an upper bound
  bool operator==(const Tiling&) const = default;
};

struct PlanData {
  Problem problem;
  TileMap tiles;
  std::string backend;  // "cpu"
  std::string isa;      // "avx2"
  Tiling tiling;
  Cost cost;
  Ceiling ceiling;
  std::size_t partial_bytes = 0;  // workspace for partial results
  std::size_t scratch_bytes = 0;  // workspace for each thread
  // Of the score change, and of a mask that the tile map cannot decide.
  std::shared_ptr<const mods::Program> score, mask;
  std::shared_ptr<const tiles::RunMaps> runs;     // of such a mask, where they are the same in every call
  std::shared_ptr<const plans::Details> details;  // what the backend keeps besides
  std::vector<PassedOver> passed_over;
  const Backend* runner = nullptr;
};

// A decided plan: const, reentrant, cheap to copy. Two plans are equal when they would do the same.
class Plan {
 public:
  Plan() = default;
  explicit Plan(std::shared_ptr<const PlanData> data) : data_(std::move(data)) {}
  const PlanData& operator*() const { return *data_; }
  const PlanData* operator->() const { return data_.get(); }
  explicit operator bool() const { return data_ != nullptr; }

  // Bytes of workspace for a run on `threads` threads (0: the default number).
  std::size_t workspace_bytes(int threads = 0) const;
  // Runs it. Throws Error before anything is written when the tensors are not those of the problem.
  void run(const Inputs& inputs, const Outputs& outputs, const Exec& exec = {}) const;

 private:
  std::shared_ptr<const PlanData> data_;
};
bool operator==(const Plan& a, const Plan& b);
std::uint64_t hash(const Plan& plan);
std::ostream& operator<<(std::ostream& out, const Plan& plan);

// Decides. Throws Error(unsupported) naming every reason when the pinned backend, or none at all, can do it.
Plan plan(const Problem& problem);

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
