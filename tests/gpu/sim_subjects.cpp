#include "gpu/sim_subjects.hpp"

#include <cstdlib>
#include <optional>
#include <vector>

#include "backend.hpp"
#include "problem/layout.hpp"

namespace tessera::conformance {
namespace {

// Host memory is device memory here: it is used where it is, and registered for as long as a call takes, so that the
// machine reports what a kernel touches beside it.
class Registered final : public DeviceMemory {
 public:
  void* enter(const std::string& name, const Tensor& t, const Region* known, bool output) override {
    const char* const begin = known ? known->data : static_cast<const char*>(t.data);
    const std::size_t bytes = known ? known->data_bytes : static_cast<std::size_t>(*problem::reach_bytes(t));
    for (const char* other : begins_)
      if (other == begin) return t.data;  // q, k and v of one buffer
    begins_.push_back(begin);
    regions_.emplace_back(name, begin, bytes, output ? sim::Content::given : sim::Content::constant);
    return t.data;
  }
  void leave() override { regions_.clear(), begins_.clear(); }

 private:
  std::vector<const char*> begins_;
  std::vector<sim::Region> regions_;
};

struct Machine {
  sim::Engine engine;
  gpu::GpuBackend backend;
  Machine(const char* name, const std::string& folder, bool checked, int arch)
      : engine(sim::EngineOptions{.checked = checked, .folder = folder, .vary = checked, .caps = caps(arch)}),
        backend(name, engine, arch) {}

 private:
  static gpu::Caps caps(int arch) {
    if (arch == 80) return sim::emulated_sm80();
    gpu::Caps made = sim::emulated_sm90();
    made.sms = 3;
    return made;
  }
};
Machine* machines[2][2];

}  // namespace

std::unique_ptr<DeviceMemory> registered_memory() { return std::make_unique<Registered>(); }

void append_sim(const std::string& folder) {
  const char* const given = std::getenv("TESSERA_SIM_CACHE");
  const std::string where = !folder.empty() ? folder : given ? given : "";
  for (const int arch : {80, 90})
    for (const bool checked : {false, true}) {
      Machine*& machine = machines[arch == 90][checked];
      machine = new Machine(checked ? "checked" : "sim", where, checked, arch);
      append_backend(machine->backend);
      set_memory(machine->backend.full_name(), registered_memory);
    }
}

const sim::Engine& sim_engine(bool checked, int arch) { return machines[arch == 90][checked]->engine; }

}  // namespace tessera::conformance
