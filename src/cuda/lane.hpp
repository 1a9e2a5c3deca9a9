// What one thread keeps for one stream of one context: a workspace, and pinned memory on which data waits for its copy.
// Used by one thread at a time; everything in it is ordered by the stream.
// Must not know: graphs, other streams.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/context.hpp"

namespace tessera::cuda {

struct LaneKey {
  std::uint64_t context = 0;
  CUstream stream = nullptr;
  std::uint64_t stream_id = 0;
  bool operator==(const LaneKey&) const = default;
};

// Memory that cannot be handed back now, since kernels may be using it and no stream is left to order the release by.
struct Outgrown {
  std::uint64_t context = 0;
  CUdeviceptr data = 0;
  void* host = nullptr;
  std::size_t bytes = 0;
};

class Lane {
 public:
  explicit Lane(const LaneKey& key) : key_(key) {}
  const LaneKey& key() const { return key_; }

  bool holds(std::size_t bytes) const { return bytes_ >= bytes && data_ != 0; }
  void* workspace() const { return reinterpret_cast<void*>(data_); }
  // Grows to at least `bytes`. What was outgrown and could not be released in stream order goes to `kept`. Returns the
  // driver's refusal, after which the lane has no workspace.
  CUresult grow(const Current& current, std::size_t bytes, std::vector<Outgrown>& kept);

  // Copies `bytes` to pinned memory and from there to the device, in stream order.
  void upload(const Current& current, CUdeviceptr to, const void* from, std::size_t bytes);

  // All that it holds, when its stream is gone.
  void abandon(std::vector<Outgrown>& kept);

 private:
  struct Block {
    char* data = nullptr;
    std::size_t bytes = 0, used = 0;
    CUevent read = nullptr;  // recorded when the block was left: the copies out of it are done
    bool left = false;
  };
  Block& block_for(const Current& current, std::size_t bytes);

  LaneKey key_;
  CUdeviceptr data_ = 0;
  std::size_t bytes_ = 0;
  bool pooled_ = false;
  std::vector<Block> blocks_;
  std::size_t at_ = 0, pinned_ = 0;  // the block in use; bytes of all of them
};

// How much is asked of the driver for a need of `bytes` where `had` was too little: steps that double, so that a need
// that grows slowly soon stops asking.
std::size_t grown_bytes(std::size_t had, std::size_t bytes);

}  // namespace tessera::cuda
