// The emulated GPU as a backend of the library's list, and as a subject of the suite.
#pragma once
#include <memory>

#include "conformance/device_subject.hpp"
#include "gpu/gpu_backend.hpp"
#include "sim/engine.hpp"

namespace tessera::conformance {

// Appends `sim:sm_80` and `sim:sm_90`, and `checked:sm_80` and `checked:sm_90` whose kernels are compiled with the
// checks of the machine. Those of sm_90 have few multiprocessors, so that each block has several items. Compiled
// kernels stay in `folder` (empty: TESSERA_SIM_CACHE, else sim-cache in the working folder). Once, before anything is
// planned.
void append_sim(const std::string& folder = {});
// Of such machines: host memory, whose tensors they know for as long as a call takes.
std::unique_ptr<DeviceMemory> registered_memory();
const sim::Engine& sim_engine(bool checked, int arch = 80);

}  // namespace tessera::conformance
