// attention() = describe, plan (cached), run; and the plan's own calls, which need the list of backends.
#include "tessera/attention.hpp"

#include <array>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "backend.hpp"
#include "cpu/pool.hpp"
#include "plan/choose.hpp"
#include "problem/validate.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {
namespace {

void check_exec(const Exec& exec) {
  if (exec.threads < 0)
    throw Error(Code::invalid_option, "threads is " + std::to_string(exec.threads) + ": it is 0 (all) or more");
  if (exec.executor && exec.executor->concurrency() < 1)
    throw Error(Code::invalid_option,
                "the executor's concurrency is " + std::to_string(exec.executor->concurrency()) + ": it is at least 1");
  if (!exec.workspace.data && exec.workspace.bytes > 0)
    throw Error(Code::null_pointer,
                "the workspace has " + std::to_string(exec.workspace.bytes) + " bytes but no address");
}

// Plans by problem, for the whole process. Bounded: a program that meets ever new shapes starts over.
class PlanCache {
 public:
  Plan find_or_make(const Problem& problem, std::uint64_t key) {
    {
      std::shared_lock lock(mutex_);
      for (auto [it, end] = plans_.equal_range(key); it != end; ++it)
        if (it->second->problem == problem) return it->second;
    }
    Plan made = plan(problem);
    std::unique_lock lock(mutex_);
    if (plans_.size() >= most) plans_.clear();
    plans_.emplace(key, made);
    return made;
  }

 private:
  static constexpr std::size_t most = 4096;
  std::shared_mutex mutex_;
  std::unordered_multimap<std::uint64_t, Plan> plans_;
};

// The calling thread's most recent plans stand before it: a repeated call takes no lock and allocates nothing.
const Plan& cached_plan(const Problem& problem) {
  static PlanCache& all = *new PlanCache;  // never destroyed: other threads may still call during exit
  thread_local std::array<Plan, 16> recent;
  const std::uint64_t key = hash(problem);
  Plan& slot = recent[key % recent.size()];
  if (!slot || !(slot->problem == problem)) slot = all.find_or_make(problem, key);
  return slot;
}

}  // namespace

Plan plan(const Problem& problem) {
  std::vector<plans::Candidate> candidates;
  for (const Backend* b : all_backends()) {
    candidates.push_back({b->name(), b->variant(), {}, b->supports(problem), {}});
    if (plans::needs_missing(candidates.back(), problem.pinned())) candidates.back().missing = b->missing();
    if (candidates.back().reasons.empty() && candidates.back().missing.empty())
      candidates.back().better_elsewhere = b->better_elsewhere(problem);
  }
  plans::Choice choice = plans::choose(candidates, problem.pinned());
  auto data = std::make_shared<PlanData>();
  data->problem = problem;
  data->tiles = TileMap(problem.mask);
  data->runner = all_backends()[choice.index];
  data->backend = candidates[choice.index].backend, data->isa = candidates[choice.index].variant;
  data->cost = plans::cost(problem, data->tiles);
  data->passed_over = std::move(choice.passed_over);
  data->runner->decide(*data);
  return Plan(std::move(data));
}

std::size_t Plan::workspace_bytes(int threads) const {
  if (threads <= 0) threads = cpu::default_threads();
  return data_->partial_bytes + data_->scratch_bytes * static_cast<std::size_t>(threads);
}

void Plan::run(const Inputs& inputs, const Outputs& outputs, const Exec& exec) const {
  check_exec(exec);
  problem::check_tensors(data_->problem, inputs, outputs);
  problem::check_values(data_->problem, inputs);
  data_->runner->run(*data_, inputs, outputs, exec);
}

void attention(const Inputs& inputs, const Outputs& outputs, const Options& options, const Exec& exec) {
  check_exec(exec);
  const Problem problem = describe(inputs, outputs, options);
  const Plan& plan = cached_plan(problem);
  problem::check_values(problem, inputs);
  plan->runner->run(*plan, inputs, outputs, exec);
}

Status try_attention(const Inputs& inputs, const Outputs& outputs, const Options& options, const Exec& exec) noexcept {
  try {
    attention(inputs, outputs, options, exec);
    return {};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {Code::out_of_memory, {}};
  } catch (const std::exception& error) {
    return {Code::internal, error.what()};
  }
}

std::string_view version() { return TESSERA_VERSION; }

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
