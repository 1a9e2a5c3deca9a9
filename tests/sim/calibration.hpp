// Runs kernels/calibrate.cuh on an engine, whichever it is, and compares what two of them wrote down.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/engine.hpp"

namespace tessera::sim {

struct Group {
  std::string name;  // four letters, the mark
  int words;         // of each thread
};
// In the order of the kernel.
const std::vector<Group>& calibration_groups();

// Of kernels/calibrate_sm90.cuh, which only devices of compute capability 9.0 can run.
const std::vector<Group>& calibration_groups_sm90();

struct Calibration {
  const std::vector<Group>* groups = nullptr;
  std::vector<std::uint32_t> words{};  // [words][128]
  // Word i of the group, of thread t; throws if the group's mark is not where the table says.
  std::uint32_t at(const std::string& group, int i, int t) const;
};

gpu::KernelText calibration_text();
// What the kernel reads: [16][128] bit patterns of floats.
const std::vector<std::uint32_t>& calibration_floats();
Calibration calibrate(const gpu::Engine& engine, int device);
gpu::KernelText calibration_text_sm90();
Calibration calibrate_sm90(const gpu::Engine& engine, int device);

struct Comparison {
  std::string name;
  int words = 0, different = 0;
  double worst = 0;   // of approximations: the largest error, as a fraction of what is stated
  std::string first;  // what differs first
};
// Exact groups word by word (any NaN is like any other), approximations each against the truth; sums that are rounded
// (`wsum`) lie close.
std::vector<Comparison> compare(const Calibration& got, const Calibration& wanted);

}  // namespace tessera::sim
