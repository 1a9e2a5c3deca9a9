// What tests see of the driver that is none (fake_driver.cpp): what was asked of it, and what it shall answer.
// Both sides are compiled together, so plain C++ goes through.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::fake {

struct Context {
  int device = 0;
  std::uint64_t id = 0;
  bool primary = false, destroyed = false;
};
struct Node {  // a copy, or a launch that does nothing
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};
struct UserObject {
  void* pointer = nullptr;
  void (*destroy)(void*) = nullptr;
};
struct Graph {
  std::vector<Node> nodes;
  std::vector<UserObject*> kept;
};
struct Stream {
  Context* context = nullptr;  // null: of the default streams, which are in every context
  std::uint64_t id = 0;
  Graph* capture = nullptr;
  std::uint64_t capture_id = 0;
  std::vector<Node> waiting;  // copies that were asked for and not made yet
};
struct Event {
  Stream* stream = nullptr;
  std::uint64_t copies = 0;  // copies of the stream that had been asked for when it was recorded
};
struct Module {
  Context* context = nullptr;
  std::string image;
};
struct Function {
  Module* module = nullptr;
  std::string name;
  int dynamic_smem = 48 << 10;
};
struct Memory {
  std::size_t bytes = 0;
  Context* context = nullptr;
  bool host = false, pooled = false;
};
struct Launch {
  std::string_view name;  // of a function, which stays
  Context* context = nullptr;
  Stream* stream = nullptr;
  unsigned blocks = 0, threads = 0, smem = 0;
  std::uint64_t first = 0;  // the first 8 bytes of the parameters
};

struct TensorMap {  // what was asked to be encoded
  int type = 0, swizzle = 0;
  void* data = nullptr;
  std::vector<std::uint64_t> dims, strides;
  std::vector<std::uint32_t> box;
};

struct State {
  std::recursive_mutex mutex;
  int version = 13000, devices = 2, init_result = 0, arch = 90;
  bool pools = true, late_copies = false;
  std::map<std::string, int, std::less<>> fail;   // function -> what it returns next, once
  std::map<std::string, int, std::less<>> calls;  // function -> times
  std::map<char*, Memory> memory;                 // what is allocated now, device and pinned
  std::vector<Launch> launches;
  std::vector<TensorMap> maps;
  std::vector<Context*> primaries{};        // by device; null: not retained
  std::map<Stream*, std::uint64_t> copied;  // copies made of each stream
  Stream legacy, per_thread;
  std::uint64_t next_id = 100;
  int captures = 0;  // going on: threads in a strict mode may not allocate, load or wait meanwhile

  int count(const std::string& function) { return calls[function]; }
};

// The functions that the library exports beside the driver's own.
struct Control {
  State& (*state)();
  void (*reset)();
  Context* (*make_context)(int device);
  void (*destroy_context)(Context*);
  void (*set_current)(Context*);  // of the calling thread; null: none
  Context* (*current)();
  Stream* (*make_stream)(Context*);
  void (*begin_capture)(Stream*);
  Graph* (*end_capture)(Stream*);
  void (*replay)(Graph*);
  void (*destroy_graph)(Graph*);
  void (*finish)(Stream*);             // makes the copies that wait
  Stream* (*replace_stream)(Stream*);  // destroyed, and another one comes with the same handle
};

}  // namespace tessera::fake
