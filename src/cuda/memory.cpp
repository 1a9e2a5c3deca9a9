#include "cuda/memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "cuda/lane.hpp"
#include "problem/fail.hpp"

namespace tessera::cuda {

using problem::fail;

namespace {

// Outgrown memory that may pile up before someone waits for the device to take it back.
constexpr std::size_t most_kept = std::size_t{256} << 20;
constexpr std::size_t smallest_chunk = std::size_t{64} << 10;

// Memory that a captured call uses: of the graph until that is destroyed, then of the next one that needs it.
struct Captured {
  std::uint64_t context = 0, capture = 0;
  CUstream stream = nullptr;
  std::thread::id thread{};
  bool host = false;
  char* data = nullptr;
  std::size_t bytes = 0, used = 0;
  std::atomic<bool> free{false};
};

}  // namespace

struct Memory::Shared : std::enable_shared_from_this<Memory::Shared> {
  explicit Shared(std::shared_ptr<const Driver> d) : driver(std::move(d)) {}
  const std::shared_ptr<const Driver> driver;

  std::mutex mutex;
  std::vector<std::unique_ptr<Lane>> parked;  // of threads that ended
  std::vector<Outgrown> kept;
  std::deque<Captured> captured;          // addresses stay
  std::map<std::uint64_t, CUstream> own;  // a stream of our own in each context, for constants

  // Owners that a destroyed graph let go: the driver forbids to call it from where it tells us. Taken with no lock held
  // that a call to the driver is made under.
  std::mutex released_mutex;
  std::vector<std::shared_ptr<const void>> released;
  std::atomic<bool> any_released{false};

  void drop_released() {
    if (!any_released.load(std::memory_order_relaxed)) return;
    std::vector<std::shared_ptr<const void>> dropped;  // goes last, when the lock is gone
    std::lock_guard lock(released_mutex);
    dropped.swap(released);
    any_released.store(false, std::memory_order_relaxed);
  }

  // Waits for all work of the context and frees what was outgrown there. Not while something is captured: then the
  // driver refuses to wait.
  void reclaim(const Current& current) {
    const OutsideCapture outside(*driver);
    if (driver->api.context_synchronise() != cuda_success) return;
    std::erase_if(kept, [&](const Outgrown& old) {
      if (old.context != current.id()) return false;
      if (old.data) driver->api.memory_free(old.data);
      if (old.host) driver->api.host_free(old.host);
      return true;
    });
    for (Captured& c : captured)
      if (c.context == current.id() && c.data && !c.host && c.free.load(std::memory_order_acquire)) {
        driver->api.memory_free(reinterpret_cast<CUdeviceptr>(c.data));
        c.data = nullptr, c.bytes = 0;
      }
  }
  std::size_t kept_bytes() const {
    std::size_t sum = 0;
    for (const Outgrown& old : kept) sum += old.bytes;
    return sum;
  }

  Lane& lane(const LaneKey& key);
  Captured& captured_for(const Current& current, const Capture& capture, CUstream stream, bool host, std::size_t bytes);
};

namespace {

// What the calling thread has. Lanes of a thread that ends are parked for the next one that calls on the same stream.
struct Mine {
  std::shared_ptr<Memory::Shared> shared;
  std::unique_ptr<Lane> lane;
};
struct Lanes {
  std::vector<Mine> all;
  ~Lanes() {
    for (Mine& mine : all) {
      std::lock_guard lock(mine.shared->mutex);
      // Another thread's per-thread stream is another stream.
      if (mine.lane->key().stream == stream_per_thread()) mine.lane->abandon(mine.shared->kept);
      else mine.shared->parked.push_back(std::move(mine.lane));
    }
  }
};
thread_local Lanes lanes;

LaneKey key_of(const Current& current, CUstream stream) {
  // The default stream goes by two names.
  LaneKey key{current.id(), stream == stream_legacy() ? nullptr : stream, 0};
  unsigned long long id = 0;
  if (const auto get = current.driver().api.stream_id; get && get(key.stream, &id) == cuda_success) key.stream_id = id;
  return key;
}

// Hands `pointer` to `destroy` when nothing can replay the graph any more.
void tie(const Driver& driver, int device, CUgraph graph, void* pointer, void (*destroy)(void*)) {
  CUuserObject object = nullptr;
  const CUresult made = driver.api.user_object(&object, pointer, destroy, 1, user_object_no_sync);
  if (made != cuda_success) {
    destroy(pointer);
    driver.refuse(made, "cuUserObjectCreate", device);
  }
  driver.check(driver.api.graph_retain(graph, object, 1, graph_move), "cuGraphRetainUserObject", device);
}

}  // namespace

// Called with `mutex` not held; takes it only where the calling thread has no lane there yet.
Lane& Memory::Shared::lane(const LaneKey& key) {
  std::vector<Mine>& all = lanes.all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].shared.get() != this || !(all[i].lane->key() == key)) continue;
    if (i != 0) std::swap(all[i], all[0]);
    return *all[0].lane;
  }
  std::lock_guard lock(mutex);
  // The handle with another number: that stream is gone, though perhaps not its kernels.
  const auto stale = [&](const LaneKey& old) {
    return old.context == key.context && old.stream == key.stream && old.stream_id != key.stream_id;
  };
  std::erase_if(all, [&](Mine& mine) {
    if (mine.shared.get() != this || !stale(mine.lane->key())) return false;
    mine.lane->abandon(kept);
    return true;
  });
  std::unique_ptr<Lane> lane;
  std::erase_if(parked, [&](std::unique_ptr<Lane>& old) {
    if (stale(old->key())) {
      old->abandon(kept);
      return true;
    }
    if (lane || !(old->key() == key)) return false;
    lane = std::move(old);
    return true;
  });
  if (!lane) lane = std::make_unique<Lane>(key);
  all.insert(all.begin(), Mine{shared_from_this(), std::move(lane)});
  return *all.front().lane;
}

Captured& Memory::Shared::captured_for(const Current& current, const Capture& capture, CUstream stream, bool host,
                                       std::size_t bytes) {
  const auto mine = std::this_thread::get_id();
  for (Captured& c : captured)
    if (c.capture == capture.id && c.context == current.id() && c.stream == stream && c.host == host &&
        c.thread == mine && !c.free.load(std::memory_order_acquire) && c.bytes >= (host ? c.used : 0) + bytes)
      return c;
  Captured* found = nullptr;
  for (Captured& c : captured)  // the smallest that is large enough
    if (c.context == current.id() && c.host == host && c.data && c.bytes >= bytes &&
        c.free.load(std::memory_order_acquire) && (!found || c.bytes < found->bytes))
      found = &c;
  if (!found) {
    const OutsideCapture outside(*driver);
    const std::size_t wanted = host ? std::max(bytes, smallest_chunk) : grown_bytes(0, bytes);
    void* data = nullptr;
    CUdeviceptr device = 0;
    const CUresult code =
        host ? driver->api.host_allocate(&data, wanted, host_portable) : driver->api.memory_allocate(&device, wanted);
    if (code != cuda_success)
      driver->refuse(code, std::to_string(bytes) + " bytes that a graph keeps", current.device());
    found = &captured.emplace_back();
    found->context = current.id(), found->host = host, found->bytes = wanted;
    found->data = host ? static_cast<char*>(data) : reinterpret_cast<char*>(device);
  }
  found->capture = capture.id, found->stream = stream, found->thread = mine, found->used = 0;
  found->free.store(false, std::memory_order_release);
  struct Ticket {
    std::shared_ptr<Shared> shared;  // where `captured` is
    Captured* captured;
  };
  tie(*driver, current.device(), capture.graph, new Ticket{shared_from_this(), found}, [](void* pointer) {
    const std::unique_ptr<Ticket> ticket(static_cast<Ticket*>(pointer));
    ticket->captured->free.store(true, std::memory_order_release);
  });
  return *found;
}

Memory::Memory(std::shared_ptr<const Driver> driver) : shared_(std::make_shared<Shared>(std::move(driver))) {}

void* Memory::workspace(const Current& current, CUstream stream, std::size_t bytes) {
  if (const Capture capture = capture_of(current, stream); capture.active) {
    std::lock_guard lock(shared_->mutex);
    return shared_->captured_for(current, capture, stream, false, bytes).data;
  }
  Lane& lane = shared_->lane(key_of(current, stream));
  if (lane.holds(bytes)) [[likely]]
    return lane.workspace();
  shared_->drop_released();
  std::lock_guard lock(shared_->mutex);
  if (shared_->kept_bytes() > most_kept) shared_->reclaim(current);
  CUresult code = lane.grow(current, bytes, shared_->kept);
  if (code == cuda_out_of_memory) {
    shared_->reclaim(current);
    code = lane.grow(current, bytes, shared_->kept);
  }
  if (code != cuda_success)
    current.driver().refuse(code, "a workspace of " + std::to_string(bytes) + " bytes", current.device());
  return lane.workspace();
}

void Memory::upload(const Current& current, CUstream stream, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const CUdeviceptr target = reinterpret_cast<CUdeviceptr>(to);
  const Capture capture = capture_of(current, stream);
  if (!capture.active) return shared_->lane(key_of(current, stream)).upload(current, target, from, bytes);
  // A replay reads the source again: it reads a copy that lives as long as the graph.
  std::lock_guard lock(shared_->mutex);
  Captured& chunk = shared_->captured_for(current, capture, stream, true, bytes);
  char* const source = chunk.data + chunk.used;
  std::memcpy(source, from, bytes);
  chunk.used += std::min((bytes + 255) / 256 * 256, chunk.bytes - chunk.used);
  current.driver().check(current.driver().api.copy_to_device(target, source, bytes, stream), "cuMemcpyHtoDAsync",
                         current.device());
}

std::shared_ptr<void> Memory::allocate(const Current& current, std::size_t bytes) {
  shared_->drop_released();
  const OutsideCapture outside(current.driver());
  CUdeviceptr memory = 0;
  const std::size_t wanted = std::max<std::size_t>(bytes, 1);
  CUresult code = current.driver().api.memory_allocate(&memory, wanted);
  if (code == cuda_out_of_memory) {
    std::lock_guard lock(shared_->mutex);
    shared_->reclaim(current);
    code = current.driver().api.memory_allocate(&memory, wanted);
  }
  if (code != cuda_success)
    current.driver().refuse(code, std::to_string(bytes) + " bytes that a plan keeps", current.device());
  return {reinterpret_cast<void*>(memory), [driver = shared_->driver, device = current.device()](void* data) {
            // The driver waits for kernels that use it. Nothing is to be done about a refusal: the context is gone, and
            // the memory with it, or the process is ending.
            try {
              const Current there(*driver, device);
              const OutsideCapture strict(*driver);
              driver->api.memory_free(reinterpret_cast<CUdeviceptr>(data));
            } catch (const Error&) {
            }
          }};
}

std::shared_ptr<void> Memory::constant(const Current& current, const void* from, std::size_t bytes) {
  std::shared_ptr<void> memory = allocate(current, bytes);
  if (bytes == 0) return memory;
  const Driver& driver = current.driver();
  const OutsideCapture outside(driver);
  std::lock_guard lock(shared_->mutex);
  CUstream& stream = shared_->own[current.id()];
  if (!stream) driver.check(driver.api.stream_create(&stream, stream_non_blocking), "cuStreamCreate", current.device());
  driver.check(driver.api.copy_to_device(reinterpret_cast<CUdeviceptr>(memory.get()), from, bytes, stream),
               "cuMemcpyHtoDAsync", current.device());
  driver.check(driver.api.stream_synchronise(stream), "cuStreamSynchronize", current.device());
  return memory;
}

void Memory::keep(const Current& current, CUstream stream, const std::shared_ptr<const void>& owner) {
  if (!owner) return;
  const Capture capture = capture_of(current, stream);
  if (!capture.active) return;
  struct Ticket {
    std::shared_ptr<Shared> shared;
    std::shared_ptr<const void> owner;
  };
  tie(current.driver(), current.device(), capture.graph, new Ticket{shared_, owner}, [](void* pointer) {
    const std::unique_ptr<Ticket> ticket(static_cast<Ticket*>(pointer));
    std::lock_guard lock(ticket->shared->released_mutex);
    ticket->shared->released.push_back(std::move(ticket->owner));
    ticket->shared->any_released.store(true, std::memory_order_relaxed);
  });
}

}  // namespace tessera::cuda
