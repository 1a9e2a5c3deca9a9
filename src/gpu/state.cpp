#include "gpu/state.hpp"

#include <algorithm>
#include <cstring>
#include <iomanip>
#include <ostream>
#include <sstream>

#include "gpu/work_list.hpp"

namespace tessera::gpu {
namespace {

using tessera_kernels::KeyRun;
using tessera_kernels::RunRange;

const char* words(Found found) {
  switch (found) {
    case Found::memory:
      return "in memory";
    case Found::disk:
      return "on disk";
    case Found::pack:
      return "in a pack";
    case Found::nowhere:
      break;
  }
  return "compiled when it is first run";
}

std::string rate(double value, const char* unit) {
  std::ostringstream text;
  text << std::setprecision(4) << value << ' ' << unit;
  return text.str();
}

}  // namespace

State::State(const Engine& engine, const PlanData& plan, int arch, std::span<const Tile> table)
    : engine_(engine),
      device_(plan.problem.device.index),
      decision_(decide(plan.problem, plan.tiles, engine.caps(device_), arch, table)),
      cost_(plan.cost),
      problem_(plan.problem) {}

KernelText State::forward_text() const { return emit::forward_text(decision_.spec); }
KernelText State::combine_text() const { return emit::combine_text(decision_.spec); }

KernelText State::prepare_text() const { return emit::prepare_text(*decision_.prepare); }

std::vector<KernelText> State::texts() const {
  std::vector<KernelText> all{forward_text()};
  if (decision_.spec.split) all.push_back(combine_text());
  if (decision_.prepare) all.push_back(prepare_text());
  return all;
}

const Kernel& State::load(Slot& slot, const KernelText& text) const {
  const Kernel& kernel = engine_.kernel(device_, text);
  slot.store(&kernel, std::memory_order_release);
  return kernel;
}

DeviceRuns State::runs(Stream stream) const {
  if (!decision_.runs) return {};
  if (uploaded_.load(std::memory_order_acquire)) {
    engine_.keep(device_, stream, run_memory_);
    return device_runs_;
  }
  const std::scoped_lock lock(uploading_);
  if (uploaded_.load(std::memory_order_relaxed)) {  // by another thread meanwhile
    engine_.keep(device_, stream, run_memory_);
    return device_runs_;
  }
  WorkList list;
  fixed_work_list(problem_, decision_, list);
  const std::size_t range_bytes = list.ranges.size() * sizeof(RunRange), run_bytes = list.runs.size() * sizeof(KeyRun);
  std::vector<char> all(std::max<std::size_t>(1, range_bytes + run_bytes));
  if (range_bytes > 0) std::memcpy(all.data(), list.ranges.data(), range_bytes);
  if (run_bytes > 0) std::memcpy(all.data() + range_bytes, list.runs.data(), run_bytes);
  run_memory_ = engine_.constant(device_, all.data(), all.size());
  const char* const memory = static_cast<const char*>(run_memory_.get());
  device_runs_ = {reinterpret_cast<const RunRange*>(memory), reinterpret_cast<const KeyRun*>(memory + range_bytes),
                  list.batch, list.head, list.tiles};
  uploaded_.store(true, std::memory_order_release);
  engine_.keep(device_, stream, run_memory_);
  return device_runs_;
}

void State::print(std::ostream& out) const {
  const Caps& caps = engine_.caps(device_);
  const Decision& d = decision_;
  out << "\n  device     " << caps.name << ", " << caps.sms << " multiprocessors";
  out << "\n  kernel     " << d.spec;
  int resident = 0;
  for (const KernelText& text : texts()) {
    const Found found = engine_.where(device_, text);
    out << "\n             " << text.name << ": " << text.threads << " threads, ";
    if (found == Found::nowhere) {
      const int blocks = resident_blocks(caps, static_cast<std::int64_t>(text.smem_bytes), text.threads);
      if (resident == 0) resident = blocks;
      out << text.smem_bytes << " B of shared memory, at most " << blocks << " blocks a multiprocessor; ";
    } else {
      const Resources& r = engine_.kernel(device_, text).resources;
      if (resident == 0) resident = r.blocks_per_sm;
      out << r.registers << " registers, " << r.local_bytes << " B of local memory, " << r.smem_bytes
          << " B of shared memory, " << r.blocks_per_sm << " blocks a multiprocessor; ";
    }
    out << words(found);
  }
  const double slots = static_cast<double>(std::max(1, resident)) * std::max(1, caps.sms);
  out << "\n  waves      " << std::setprecision(3) << static_cast<double>(d.items()) / slots << " of " << slots
      << " blocks at a time";
  out << "\n  floor      ";
  if (caps.tensor_flops > 0)
    out << rate(cost_.flops / caps.tensor_flops * 1e3, "ms") << " of arithmetic at "
        << rate(caps.tensor_flops * 1e-12, "TFLOP/s") << ", ";
  else out << "the device's rate of arithmetic is not known, ";
  if (caps.dram_bytes_s > 0)
    out << rate(cost_.bytes / caps.dram_bytes_s * 1e3, "ms") << " of memory at "
        << rate(caps.dram_bytes_s * 1e-12, "TB/s");
  else out << "that of its memory is not known";
}

}  // namespace tessera::gpu
