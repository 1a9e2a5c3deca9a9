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

// make(): the bytes, once. Where they are now.
template <class Make>
const char* State::uploaded(Upload& upload, Stream stream, const Make& make) const {
  if (!upload.done.load(std::memory_order_acquire)) {
    const std::scoped_lock lock(uploading_);
    if (!upload.done.load(std::memory_order_relaxed)) {  // else by another thread meanwhile
      const std::vector<char> bytes = make();
      upload.memory = engine_.constant(device_, bytes.data(), bytes.size());
      upload.done.store(true, std::memory_order_release);
    }
  }
  engine_.keep(device_, stream, upload.memory);
  return static_cast<const char*>(upload.memory.get());
}

namespace {

// Two lists, one behind the other.
template <class A, class B>
std::vector<char> joined(const std::vector<A>& a, const std::vector<B>& b) {
  const std::size_t first = a.size() * sizeof(A), second = b.size() * sizeof(B);
  std::vector<char> all(std::max<std::size_t>(1, first + second));
  if (first > 0) std::memcpy(all.data(), a.data(), first);
  if (second > 0) std::memcpy(all.data() + first, b.data(), second);
  return all;
}

}  // namespace

DeviceRuns State::runs(Stream stream) const {
  if (!decision_.runs) return {};
  const char* const memory = uploaded(run_memory_, stream, [&] {
    WorkList list;
    fixed_work_list(problem_, decision_, list);
    const std::size_t range_bytes = list.ranges.size() * sizeof(RunRange);
    device_runs_ = {nullptr, reinterpret_cast<const KeyRun*>(range_bytes), list.batch, list.head, list.tiles};
    return joined(list.ranges, list.runs);
  });
  DeviceRuns runs = device_runs_;
  runs.ranges = reinterpret_cast<const RunRange*>(memory);
  runs.runs = reinterpret_cast<const KeyRun*>(memory + reinterpret_cast<std::uintptr_t>(device_runs_.runs));
  return runs;
}

DeviceDeal State::dealt(Stream stream) const {
  if (!decision_.dealt) return {};
  const DealList& lists = *decision_.dealt;
  const char* const memory = uploaded(deal_memory_, stream, [&] { return joined(lists.begin, lists.list); });
  const auto* const begin = reinterpret_cast<const unsigned*>(memory);
  return {begin + lists.begin.size(), begin};
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
