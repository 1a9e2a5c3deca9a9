// Memory of devices: workspaces of streams, the way of small data to the device, and what plans and graphs keep.
//
// Three things decide how it is done. Nothing may wait for the GPU and nothing may be allocated in a repeated call, so
// workspaces and pinned staging memory stay where they were used: with the pair of a stream and a thread (two threads
// that call on one stream take turns there, but not within a call). A stream may be destroyed and its handle come back
// while its kernels still run, so memory follows the stream's number, not its handle. And a call may be captured into
// a graph that is replayed at any later time beside other calls: what a captured call uses belongs to the graph.
// Must not know: kernels, attention.
#pragma once
#include <cstddef>
#include <memory>

#include "cuda/context.hpp"

namespace tessera::cuda {

class Memory {
 public:
  explicit Memory(std::shared_ptr<const Driver> driver);

  // As gpu::Engine says.
  void* workspace(const Current& current, CUstream stream, std::size_t bytes);
  void upload(const Current& current, CUstream stream, void* to, const void* from, std::size_t bytes);
  std::shared_ptr<void> allocate(const Current& current, std::size_t bytes);
  std::shared_ptr<void> constant(const Current& current, const void* from, std::size_t bytes);
  void keep(const Current& current, CUstream stream, const std::shared_ptr<const void>& owner);

  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace tessera::cuda
