#include "device_subject.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "backend.hpp"
#include "problem/layout.hpp"
#include "problem/validate.hpp"

namespace tessera::conformance {
namespace {

// ------------------------------------------------------------------------------------------------ lanes
// A stream and memory, for one call at a time.
struct Lane {
  Stream stream{};
  std::vector<std::pair<std::size_t, std::shared_ptr<void>>> spare{};
};
class Lanes {
 public:
  explicit Lanes(std::function<Stream()> make_stream) : make_stream_(std::move(make_stream)) {}
  std::unique_ptr<Lane> take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Lane>(Lane{make_stream_ ? make_stream_() : Stream{}});
    std::unique_ptr<Lane> lane = std::move(idle_.back());
    idle_.pop_back();
    return lane;
  }
  void give_back(std::unique_ptr<Lane> lane) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(lane));
  }
  bool keeps() const { return static_cast<bool>(make_stream_); }

 private:
  const std::function<Stream()> make_stream_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Lane>> idle_;
};

// ------------------------------------------------------------------------------------------------ copies
// Regions are copied whole; of memory that the suite does not know (lists in a test's own variables, tensors that reach
// over gigabytes) the rows of the tensor are.
class Copied final : public DeviceMemory {
 public:
  Copied(const gpu::Engine& engine, int device, std::shared_ptr<Lanes> lanes)
      : engine_(engine), device_(device), lanes_(std::move(lanes)), lane_(lanes_->take()) {}
  ~Copied() override {
    for (Copy& copy : copies_) keep(copy);
    lanes_->give_back(std::move(lane_));
  }
  Stream stream() const override { return lane_->stream; }

  void* enter(const std::string&, const Tensor& t, const Region* region, bool output) override {
    char* const host = static_cast<char*>(t.data);
    for (const Copy& copy : copies_)
      if (region && copy.host == region->begin) return copy.device + (host - copy.host);
    const char* const begin = region ? region->begin : host;
    const std::size_t bytes = region ? region->bytes : static_cast<std::size_t>(*problem::reach_bytes(t));
    constexpr std::size_t period = 256;  // of alignments that a kernel may ask for
    Copy copy{
        .host = const_cast<char*>(begin), .bytes = bytes, .rows = t, .whole = region != nullptr, .output = output};
    copy.memory = allocate(bytes + period, copy.held);
    copy.device = static_cast<char*>(copy.memory.get()) + reinterpret_cast<std::uintptr_t>(begin) % period;
    copy.move([&](void* to, void* from, std::size_t count) { engine_.upload(device_, stream(), to, from, count); },
              true);
    copies_.push_back(std::move(copy));
    return copies_.back().device + (host - begin);
  }

  void leave() override {
    for (Copy& copy : copies_)
      if (copy.whole || copy.output)
        copy.move(
            [&](void* to, void* from, std::size_t count) { engine_.download(device_, stream(), to, from, count); },
            false);
    for (Copy& copy : copies_) keep(copy);
    copies_.clear();
  }

 private:
  struct Copy {
    char* host;
    std::size_t bytes;
    Tensor rows;
    bool whole, output;
    std::shared_ptr<void> memory{};
    std::size_t held = 0;  // bytes of it
    char* device = nullptr;

    template <class Move>
    void move(Move move, bool to_device) {
      const auto some = [&](std::size_t at, std::size_t count) {
        if (to_device) move(device + at, host + at, count);
        else move(host + at, device + at, count);
      };
      if (whole) return some(0, bytes);
      const std::size_t size = static_cast<std::size_t>(size_bytes(rows.dtype));
      const int last = rows.rank - 1;
      const bool dense = rows.shape[last] <= 1 || rows.stride[last] == 1;
      std::vector<std::int64_t> at(static_cast<std::size_t>(rows.rank));
      for (;;) {  // every row, or every element where they do not lie side by side
        std::int64_t offset = 0;
        for (int axis = 0; axis < rows.rank; ++axis) offset += at[static_cast<std::size_t>(axis)] * rows.stride[axis];
        some(static_cast<std::size_t>(offset) * size, (dense ? static_cast<std::size_t>(rows.shape[last]) : 1) * size);
        int axis = dense ? last - 1 : last;
        for (; axis >= 0; --axis) {
          auto& index = at[static_cast<std::size_t>(axis)];
          if (++index < rows.shape[axis]) break;
          index = 0;
        }
        if (axis < 0) return;
      }
    }
  };
  std::shared_ptr<void> allocate(std::size_t bytes, std::size_t& held) {
    held = lanes_->keeps() ? std::bit_ceil(bytes) : bytes;
    auto& spare = lane_->spare;
    const auto found = std::find_if(spare.begin(), spare.end(), [&](const auto& one) { return one.first == held; });
    if (found == spare.end()) return engine_.allocate(device_, held);
    std::shared_ptr<void> memory = std::move(found->second);
    spare.erase(found);
    return memory;
  }
  void keep(Copy& copy) {
    constexpr std::size_t most = std::size_t{64} << 20;
    if (lanes_->keeps() && copy.memory && copy.held <= most)
      lane_->spare.emplace_back(copy.held, std::move(copy.memory));
  }

  const gpu::Engine& engine_;
  const int device_;
  const std::shared_ptr<Lanes> lanes_;
  std::unique_ptr<Lane> lane_;
  std::deque<Copy> copies_;
};

// ------------------------------------------------------------------------------------------------ calls
bool to_device(Metadata metadata, const Inputs& in, const Outputs& out, const Options& options) {
  if (metadata != Metadata::either) return metadata == Metadata::device;
  return hash(describe(in, out, options)) % 2 == 1;
}

Outputs moved(Outputs part, bool output, Device device, DeviceMemory& memory) {
  for (auto [name, t] : {std::pair{"o", &part.o}, {"lse", &part.lse}}) {
    if (!t->defined()) continue;
    t->device = device;
    if (problem::is_empty(*t)) continue;
    const std::optional<Region> region = region_of(t->data);
    t->data = memory.enter(name, *t, region ? &*region : nullptr, output);
  }
  return part;
}

// By the public call where that takes this backend, which is the first one that is here; else as that call would.
void merge_by(const std::string& name, const Outputs& a, const Outputs& b, const Outputs& out, const Exec& exec) {
  bool first = true;
  for (const Backend* backend : all_backends()) {
    if (backend->device() != a.o.device.type || !backend->missing().empty()) continue;
    if (backend->full_name() != name) {
      first = false;
      continue;
    }
    if (first) return merge(a, b, out, exec);
    problem::check_merge(a, b, out);
    return backend->merge(a, b, out, exec);
  }
  throw Error(Code::unsupported, "there is no backend '" + name + "' to merge by");
}

}  // namespace

DeviceCall::DeviceCall(const Inputs& in, const Outputs& out, const Exec& how, Device device, bool metadata,
                       DeviceMemory* memory)
    : inputs(in), outputs(out), exec(how) {
  const auto move = [&](const char* name, Tensor& t, bool output) {
    if (!t.defined()) return;
    t.device = device;
    if (!memory || !t.data || problem::is_empty(t)) return;
    const std::optional<Region> region = region_of(t.data);
    t.data = memory->enter(name, t, region ? &*region : nullptr, output);
  };
  move("q", inputs.q, false), move("k", inputs.k, false), move("v", inputs.v, false);
  move("sinks", inputs.sinks, false);
  if (metadata) {
    move("packed.cu_q", inputs.packed.cu_q, false), move("packed.cu_k", inputs.packed.cu_k, false);
    move("pages.block_table", inputs.pages.block_table, false), move("pages.lengths", inputs.pages.lengths, false);
    move("q_offset", inputs.q_offset, false);
    inputs.bind = {};
    for (Binding binding : in.bind) {
      const std::string name(binding.name);
      move(name.c_str(), binding.tensor, false);
      inputs.bind.add(binding);
    }
  }
  move("o", outputs.o, true), move("lse", outputs.lse, true), move("errors", outputs.errors, true);
  if (exec.workspace.data) {
    const std::int64_t bytes = static_cast<std::int64_t>(exec.workspace.bytes);
    Tensor t = tensor(exec.workspace.data, DType::u8, {bytes});
    move("the workspace", t, true);
    exec.workspace.data = t.data;
  }
}

MakeMemory copied_memory(const gpu::Engine& engine, int device, std::function<Stream()> make_stream) {
  const auto lanes = std::make_shared<Lanes>(std::move(make_stream));
  return [&engine, device, lanes] { return std::make_unique<Copied>(engine, device, lanes); };
}

Plan device_plan(const std::string& backend, Device device, Metadata metadata, const Inputs& inputs,
                 const Outputs& outputs, const Options& options) {
  Options with = options;
  with.backend = backend;
  const DeviceCall moved(inputs, outputs, {}, device, to_device(metadata, inputs, outputs, options), nullptr);
  return plan(describe(moved.inputs, moved.outputs, with));
}

Subject device_subject(const std::string& backend, Device device, Metadata metadata, MakeMemory make) {
  Subject s{.name = backend};
  s.run = [=](const Inputs& inputs, const Outputs& outputs, const Options& options, const Exec& exec) {
    Options with = options;
    with.backend = backend;
    const std::unique_ptr<DeviceMemory> memory = make();
    Exec how = exec;
    if (!how.stream.handle) how.stream = memory->stream();
    const DeviceCall moved(inputs, outputs, how, device, to_device(metadata, inputs, outputs, options), memory.get());
    attention(moved.inputs, moved.outputs, with, moved.exec);
    memory->leave();
  };
  s.merge = [=](const Outputs& a, const Outputs& b, const Outputs& out, const Exec& exec) {
    const std::unique_ptr<DeviceMemory> memory = make();
    // The result first: where a part lies in the same memory, that is written.
    const Outputs into = moved(out, true, device, *memory), first = moved(a, false, device, *memory),
                  second = moved(b, false, device, *memory);
    Exec how = exec;
    if (!how.stream.handle) how.stream = memory->stream();
    merge_by(backend, first, second, into, how);
    memory->leave();
  };
  s.workspace_bytes = [=](const Inputs& inputs, const Outputs& outputs, const Options& options, int threads) {
    return device_plan(backend, device, metadata, inputs, outputs, options).workspace_bytes(threads);
  };
  s.dtypes = {bf16, f16};
  s.max_dim = 256;
  return s;
}

}  // namespace tessera::conformance
