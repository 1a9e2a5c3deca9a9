// The contract between a plan and what runs it.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/plan.hpp"

namespace tessera {

// One way to run: a backend and its variant, with what it can do on this machine.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;     // "cpu"
  virtual std::string_view variant() const = 0;  // "avx2"
  // Where the tensors are that it computes on. Known without asking the machine.
  virtual DeviceType device() const = 0;
  // Whether this machine can run it at all: empty, or what is missing.
  virtual std::string missing() const = 0;
  // Every reason why the problem cannot be run here; empty: it can.
  virtual std::vector<std::string> supports(const Problem& problem) const = 0;
  // Why a later variant of the same backend is expected to be the better choice for a problem that this one can run;
  // empty: it is not. Says nothing where this one is pinned, or no other can.
  virtual std::string better_elsewhere(const Problem&) const { return {}; }
  // Fills tiling, partial_bytes and scratch_bytes from problem and tiles. Pure: the same for the same problem.
  virtual void decide(PlanData& plan) const = 0;
  // Runs a plan on validated tensors.
  virtual void run(const PlanData& plan, const Inputs& inputs, const Outputs& outputs, const Exec& exec) const = 0;
  // merge() of partial results on such a device, which are valid (problem::check_merge).
  virtual void merge(const Outputs& a, const Outputs& b, const Outputs& out, const Exec& exec) const = 0;
  // A line for people: what it is.
  virtual std::string about() const = 0;

  std::string full_name() const { return std::string(name()) + ":" + std::string(variant()); }
};

// The ONE ordered list, best first. src/attention/backends.cpp.
const std::vector<const Backend*>& all_backends();
// One more at its end, which outlives all calls: how tests bring machines that are no part of the library. Before the
// first plan is made: the list is read without a lock.
void append_backend(const Backend& backend);

}  // namespace tessera
