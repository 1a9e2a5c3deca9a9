// Subjects that compute on a device: what a call hands over is taken there whole, guards and poison with it, and comes
// back whole, so that a stray write or a use of what was never written is judged as on the CPU.
// Must not know: cases.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "gpu/engine.hpp"
#include "regions.hpp"
#include "subject.hpp"

namespace tessera::conformance {

// A device's memory for the time of one call.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // Makes the tensor's elements usable on the device under the address that is returned, of the same alignment. Where
  // the suite knows the memory, `region` is all of it, and tensors of one region lie side by side on the device, too.
  virtual void* enter(const std::string& name, const Tensor& tensor, const Region* region, bool output) = 0;
  // After the call: everything is on the host as the device left it. Throws what the device found wrong.
  virtual void leave() = 0;
  // In which the call runs, where it names none.
  virtual Stream stream() const { return {}; }
};
using MakeMemory = std::function<std::unique_ptr<DeviceMemory>()>;

// Memory of a device that the host cannot see: copied there and back by the engine. Each call has memory of its own,
// exactly as much as it needs, for tools that watch over that; with `make_stream`, calls at once have a stream each,
// and memory of calls before them, for allocations wait for all of the device.
MakeMemory copied_memory(const gpu::Engine& engine, int device, std::function<Stream()> make_stream = {});

// Where the numbers about a call (prefix sums, lengths, ids ...) lie.
enum class Metadata : std::uint8_t { host, device, either };  // either: one or the other, by the call's own hash

// The tensors of a call as they are on the device. Without `memory` only described so: the addresses stay. `metadata`:
// numbers about the call and captured tensors go there, too.
struct DeviceCall {
  Inputs inputs;
  Outputs outputs;
  Exec exec;
  DeviceCall(const Inputs& in, const Outputs& out, const Exec& how, Device device, bool metadata, DeviceMemory* memory);
};

Subject device_subject(const std::string& backend, Device device, Metadata metadata, MakeMemory memory);

// The plan of such a call, made without touching the device's memory.
Plan device_plan(const std::string& backend, Device device, Metadata metadata, const Inputs& inputs,
                 const Outputs& outputs, const Options& options);

// For tests of machines whose memory the host can see. Before the subjects are asked for.
void set_memory(const std::string& backend, MakeMemory memory);

}  // namespace tessera::conformance
