// What a GPU backend stands on: a machine that compiles kernel text, keeps it, and launches it. There are two: the CUDA
// driver (src/cuda) and the emulated GPU (src/sim). Everything above an Engine is the same text for both.
// Must not know: attention.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emit/kernel_text.hpp"
#include "gpu/tensor_map.hpp"
#include "tessera/plan.hpp"

namespace tessera::gpu {

// What a device can do: all that plans and kernel texts may depend on.
struct Caps {
  std::string name;             // "NVIDIA H200"
  int arch = 0;                 // 80, 86, 89, 90, 100, 120: compute capability, major * 10 + minor
  int sms = 0;                  // multiprocessors
  int smem_block_bytes = 0;     // most shared memory of one block, opted in
  int smem_sm_bytes = 0;        // of one multiprocessor
  int smem_reserved_bytes = 0;  // taken from it by each resident block
  int threads_sm = 0;           // most resident threads of one multiprocessor
  int registers_sm = 0;         // 32-bit registers of one multiprocessor
  std::int64_t l2_bytes = 0;
  double dram_bytes_s = 0;   // datasheet or derived from clock and bus width; 0: not known
  double tensor_flops = 0;   // dense 16-bit tensor-core rate, datasheet by arch and clock; 0: not known
  bool tensor_maps = false;  // sm_90 and later, and a driver that makes them (CUDA 12.0)
  bool operator==(const Caps&) const = default;
};

using emit::KernelText;

struct Resources {
  int registers = 0;      // of a thread
  int local_bytes = 0;    // spills and stack of a thread
  int smem_bytes = 0;     // static and dynamic, of a block
  int blocks_per_sm = 0;  // occupancy
};

// Where a kernel is now.
enum class Found : std::uint8_t { memory, disk, pack, nowhere };

// A kernel loaded on one device. Owned by the engine, lives as long as the process.
class Kernel {
 public:
  virtual ~Kernel() = default;
  Resources resources;
};

// Thread-safe. Devices are numbered as the driver numbers them. Streams: null is the default stream.
class Engine {
 public:
  virtual ~Engine() = default;
  // Whether there is a device at all: empty, or what is missing, what was tried, and what would help.
  virtual std::string missing() const = 0;
  virtual int devices() const = 0;
  virtual const Caps& caps(int device) const = 0;

  // Memory, disk, packs, or else compiled now. Throws Error(unsupported) with the compiler's log, or naming every place
  // where a compiler was looked for.
  virtual const Kernel& kernel(int device, const KernelText& text) const = 0;
  virtual Found where(int device, const KernelText& text) const = 0;  // compiles and loads nothing

  // One-dimensional grid; the parameters are one struct by value. Asynchronous in `stream`; throws Error(internal) with
  // the driver's word when the launch is refused. For up to 2^31 - 1 blocks.
  virtual void launch(int device, Stream stream, const Kernel& kernel, std::int64_t blocks, const void* params,
                      std::size_t params_bytes) const = 0;
  // Copies from the host in stream order; `from` may be reused when it returns.
  virtual void upload(int device, Stream stream, void* to, const void* from, std::size_t bytes) const = 0;
  // Copies to the host and waits until it is there, and with it all that was asked of `stream` before. Never part of a
  // call of attention(): for tests.
  virtual void download(int device, Stream stream, void* to, const void* from, std::size_t bytes) const = 0;
  // Waits until all that was asked of `stream` is done. For tests and benchmarks.
  virtual void synchronise(int device, Stream stream) const = 0;
  // Memory of the device that belongs to this stream and the calling thread until asked for again: at least `bytes`,
  // 256-byte aligned, never shared between streams; grows, so that a repeated call allocates nothing. Under capture it
  // belongs to the graph instead, so that a replay meets no call beside it.
  virtual void* workspace(int device, Stream stream, std::size_t bytes) const = 0;
  // Memory that a plan keeps (what does not change between its runs). Freed with the last owner.
  virtual std::shared_ptr<void> allocate(int device, std::size_t bytes) const = 0;
  // The same, filled with a copy of `bytes` from the host before it returns, outside of any stream: what a plan keeps
  // may be made in a call that is being captured, and must be there for the next one, which may not be.
  virtual std::shared_ptr<void> constant(int device, const void* from, std::size_t bytes) const {
    std::shared_ptr<void> memory = allocate(device, bytes);
    upload(device, Stream{}, memory.get(), from, bytes);
    return memory;
  }
  // Where `stream` is being captured into a graph: `owner` lives as long as the graph can be replayed. Else nothing.
  // What a launch reads and a plan owns is handed in here, with every run.
  virtual void keep(int /*device*/, Stream, const std::shared_ptr<const void>& /*owner*/) const {}

  // The 128 bytes (tensor_map_bytes) of this map, which go to kernels in their parameters, as a ptx::TensorMap. Throws
  // Error(internal) for a map that is not possible, Error(unsupported) where caps() says that there are none.
  virtual void tensor_map(const TensorMapSpec& spec, void* map) const = 0;

  // What went wrong and was worked around (a cache that cannot be written, a damaged file ...), for explain and info.
  virtual std::vector<std::string> notes() const { return {}; }

  // Where memory is: the number of the device that can use it, or -1 and a few words what it is ("host memory").
  struct Place {
    int device = -1;
    const char* what = "";
  };
  virtual Place place(const void* pointer) const = 0;
};

}  // namespace tessera::gpu
