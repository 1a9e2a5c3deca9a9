#include "cuda/lane.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tessera::cuda {
namespace {

constexpr std::size_t smallest_workspace = std::size_t{64} << 10, most_added = std::size_t{256} << 20;
constexpr std::size_t smallest_block = std::size_t{64} << 10;
// Copies of one stream that may wait on pinned memory before a caller waits for the oldest of them.
constexpr std::size_t most_pinned = std::size_t{64} << 20;

}  // namespace

std::size_t grown_bytes(std::size_t had, std::size_t bytes) {
  const std::size_t wanted = std::max({bytes, had + std::min(had, most_added), smallest_workspace});
  const std::size_t unit = wanted >= (std::size_t{2} << 20) ? std::size_t{2} << 20 : smallest_workspace;
  return wanted > ~std::size_t{0} - unit ? bytes : (wanted + unit - 1) / unit * unit;
}

CUresult Lane::grow(const Current& current, std::size_t bytes, std::vector<Outgrown>& kept) {
  const OutsideCapture outside(current.driver());
  const DriverApi& api = current.driver().api;
  const std::size_t had = bytes_;
  if (data_) {
    // In stream order where the driver has pools: kernels that were launched before still have it.
    if (!pooled_ || api.pool_free(data_, key_.stream) != cuda_success)
      kept.push_back({key_.context, data_, nullptr, bytes_});
  }
  data_ = 0, bytes_ = 0;
  pooled_ = current.driver().has_pools(current.device());
  CUresult code = cuda_success;
  for (const std::size_t wanted : {grown_bytes(had, bytes), bytes}) {
    code = pooled_ ? api.pool_allocate(&data_, wanted, key_.stream) : api.memory_allocate(&data_, wanted);
    if (code == cuda_success) {
      bytes_ = wanted;
      return code;
    }
    data_ = 0;
  }
  return code;
}

void Lane::upload(const Current& current, CUdeviceptr to, const void* from, std::size_t bytes) {
  Block& block = block_for(current, bytes);
  std::memcpy(block.data + block.used, from, bytes);
  current.driver().check(current.driver().api.copy_to_device(to, block.data + block.used, bytes, key_.stream),
                         "cuMemcpyHtoDAsync", current.device());
  block.used += (bytes + 255) / 256 * 256;
}

// The block in use while there is room, then another one whose copies are done, oldest first, else a new one.
Lane::Block& Lane::block_for(const Current& current, std::size_t bytes) {
  const Driver& driver = current.driver();
  const DriverApi& api = driver.api;
  const int device = current.device();
  if (!blocks_.empty()) {
    Block& now = blocks_[at_];
    if (now.used + bytes <= now.bytes) return now;
    driver.check(api.event_record(now.read, key_.stream), "cuEventRecord", device);
    now.left = true;
    for (std::size_t i = 1; i <= blocks_.size(); ++i) {
      const std::size_t next = (at_ + i) % blocks_.size();
      Block& other = blocks_[next];
      if (other.bytes < bytes || !other.left) continue;
      CUresult code = api.event_query(other.read);
      if (code == cuda_not_ready && pinned_ + bytes > most_pinned) code = api.event_synchronise(other.read);
      if (code == cuda_not_ready) continue;
      driver.check(code, "cuEventQuery", device);
      other.left = false, other.used = 0, at_ = next;
      return other;
    }
  }
  const OutsideCapture outside(driver);
  Block block;
  block.bytes = std::bit_ceil(std::max(bytes, smallest_block));
  void* data = nullptr;
  driver.check(api.event_create(&block.read, event_disable_timing), "cuEventCreate", device);
  driver.check(api.host_allocate(&data, block.bytes, host_portable), "cuMemHostAlloc", device);
  block.data = static_cast<char*>(data);
  pinned_ += block.bytes;
  at_ = blocks_.empty() ? 0 : at_ + 1;
  return *blocks_.insert(blocks_.begin() + static_cast<std::ptrdiff_t>(at_), block);
}

void Lane::abandon(std::vector<Outgrown>& kept) {
  if (data_) kept.push_back({key_.context, data_, nullptr, bytes_});
  for (const Block& block : blocks_) kept.push_back({key_.context, 0, block.data, block.bytes});
  data_ = 0, bytes_ = 0, pinned_ = 0, at_ = 0;
  blocks_.clear();
}

}  // namespace tessera::cuda
