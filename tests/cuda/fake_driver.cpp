// A CUDA driver that is none: contexts, streams, modules, memory and graphs on the host, as far as the library uses
// them, strict about what the real one is strict about (which context is current, whose stream it is, what is not
// allocated), and told by the tests what to refuse. Kernels do nothing: launches are recorded.
#include "cuda/fake_driver.hpp"

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace tessera::fake {
namespace {

constexpr int ok = 0, invalid_value = 1, out_of_memory = 2, invalid_context = 201, no_binary = 209, invalid_image = 200,
              invalid_handle = 400, not_found = 500, not_ready = 600, destroyed_context = 709,
              capture_unsupported = 900;

State* the_state = [] {
  auto* made = new State;
  if (const char* arch = std::getenv("FAKE_CUDA_ARCH")) made->arch = std::atoi(arch);
  return made;
}();
thread_local std::vector<Context*> stack;
thread_local int capture_mode = 0;  // global; relaxed is 2

// Counts the call; what it is to return, or ok.
int enter(const char* name) {
  std::lock_guard lock(the_state->mutex);
  // Without making a string of the name: tests count allocations.
  const auto counted = the_state->calls.find(std::string_view(name));
  if (counted == the_state->calls.end()) the_state->calls[name] = 1;
  else ++counted->second;
  const auto found = the_state->fail.find(std::string_view(name));
  if (found == the_state->fail.end()) return ok;
  const int code = found->second;
  the_state->fail.erase(found);
  return code;
}

// What a capture forbids, of this thread's stream or of another's.
int enter_unsafe(const char* name) {
  if (const int code = enter(name)) return code;
  std::lock_guard lock(the_state->mutex);
  return the_state->captures > 0 && capture_mode != 2 ? capture_unsupported : ok;
}

Context* top() { return stack.empty() ? nullptr : stack.back(); }
Stream* stream_of(void* handle) {
  if (handle == nullptr || handle == reinterpret_cast<void*>(1)) return &the_state->legacy;
  if (handle == reinterpret_cast<void*>(2)) return &the_state->per_thread;
  return static_cast<Stream*>(handle);
}
// Whether a stream may be used in the current context.
int usable(Stream* stream) {
  if (!top()) return invalid_context;
  return !stream->context || stream->context == top() ? ok : invalid_handle;
}
void make(const Node& node, Stream* stream) {
  if (node.to) std::memcpy(node.to, node.from, node.bytes);
  if (stream) ++the_state->copied[stream];
}
void finish(Stream* stream) {
  std::lock_guard lock(the_state->mutex);
  for (const Node& node : stream->waiting) make(node, stream);
  stream->waiting.clear();
}
int add(Stream* stream, const Node& node) {
  std::lock_guard lock(the_state->mutex);
  if (const int code = usable(stream)) return code;
  if (stream->capture) {
    stream->capture->nodes.push_back(node);
  } else {
    stream->waiting.push_back(node);
    if (!the_state->late_copies) finish(stream);
  }
  return ok;
}
int allocate(std::size_t bytes, bool host, bool pooled, char** out) {
  std::lock_guard lock(the_state->mutex);
  if (!top()) return invalid_context;
  if (bytes == 0) return invalid_value;
  if (bytes > std::size_t{1} << 36) return out_of_memory;
  // Nothing but what is small is really there.
  *out = static_cast<char*>(std::aligned_alloc(256, ((bytes > (1u << 24) ? 256 : bytes) + 255) / 256 * 256));
  std::memset(*out, 0xA5, bytes > (1u << 24) ? 256 : bytes);
  the_state->memory[*out] = {bytes, top(), host, pooled};
  return ok;
}
int release(void* pointer, bool host) {
  std::lock_guard lock(the_state->mutex);
  const auto found = the_state->memory.find(static_cast<char*>(pointer));
  if (found == the_state->memory.end() || found->second.host != host) return invalid_value;
  std::memset(pointer, 0xDD, found->second.bytes > (1u << 24) ? 256 : found->second.bytes);
  std::free(pointer);
  the_state->memory.erase(found);
  return ok;
}

Context* make_context(int device) {
  std::lock_guard lock(the_state->mutex);
  return new Context{device, the_state->next_id++, false, false};
}
void reset() {
  State* const old = the_state;
  the_state = new State;
  for (auto& [data, memory] : old->memory) std::free(data);
  delete old;
  stack.clear();
}

}  // namespace
}  // namespace tessera::fake

using namespace tessera::fake;

#define ENTER(name) \
  if (const int code = enter(name)) return code
#define ENTER_UNSAFE(name) \
  if (const int code = enter_unsafe(name)) return code

EXPORTED Control fake_control() {
  Control control;
  control.state = []() -> State& { return *the_state; };
  control.reset = [] { reset(); };
  control.make_context = [](int device) { return make_context(device); };
  control.destroy_context = [](Context* context) { context->destroyed = true; };
  control.set_current = [](Context* context) {
    stack.clear();
    if (context) stack.push_back(context);
  };
  control.current = [] { return top(); };
  control.make_stream = [](Context* context) {
    std::lock_guard lock(the_state->mutex);
    return new Stream{context, the_state->next_id++, nullptr, 0, {}};
  };
  control.begin_capture = [](Stream* stream) {
    std::lock_guard lock(the_state->mutex);
    ++the_state->captures;
    stream->capture = new Graph;
    stream->capture_id = the_state->next_id++;
  };
  control.end_capture = [](Stream* stream) {
    std::lock_guard lock(the_state->mutex);
    --the_state->captures;
    Graph* const graph = stream->capture;
    stream->capture = nullptr;
    return graph;
  };
  control.replay = [](Graph* graph) {
    for (const Node& node : graph->nodes) make(node, nullptr);
  };
  control.destroy_graph = [](Graph* graph) {
    for (UserObject* object : graph->kept) {
      object->destroy(object->pointer);
      delete object;
    }
    delete graph;
  };
  control.finish = [](Stream* stream) { finish(stream); };
  control.replace_stream = [](Stream* stream) {
    stream->id = the_state->next_id++;
    return stream;
  };
  return control;
}

EXPORTED int cuInit(unsigned) {
  ENTER("cuInit");
  return the_state->init_result;
}
EXPORTED int cuDriverGetVersion(int* version) {
  *version = the_state->version;
  return enter("cuDriverGetVersion");
}
EXPORTED int cuGetErrorName(int code, const char** name) {
  *name = code == out_of_memory ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_FAKE";
  return ok;
}
EXPORTED int cuGetErrorString(int, const char** text) {
  *text = "so the fake driver says";
  return ok;
}
EXPORTED int cuDeviceGetCount(int* count) {
  ENTER("cuDeviceGetCount");
  *count = the_state->devices;
  return ok;
}
EXPORTED int cuDeviceGet(int* device, int ordinal) {
  ENTER("cuDeviceGet");
  *device = ordinal + 10;  // a handle is no ordinal
  return ok;
}
EXPORTED int cuDeviceGetName(char* name, int bytes, int device) {
  ENTER("cuDeviceGetName");
  std::strncpy(name, ("Fake " + std::to_string(device - 10)).c_str(), static_cast<std::size_t>(bytes));
  return ok;
}
EXPORTED int cuDeviceGetAttribute(int* value, int attribute, int) {
  ENTER("cuDeviceGetAttribute");
  const std::map<int, int> values{{13, 1980000}, {16, 132},    {36, 3201000}, {37, 6144},   {38, 60 << 20},
                                  {39, 2048},    {81, 233472}, {82, 65536},   {97, 232448}, {111, 1024}};
  const auto found = values.find(attribute);
  *value = attribute == 75         ? the_state->arch / 10
           : attribute == 76       ? the_state->arch % 10
           : attribute == 115      ? the_state->pools
           : found == values.end() ? 0
                                   : found->second;
  return ok;
}
EXPORTED int cuDevicePrimaryCtxRetain(Context** context, int device) {
  ENTER("cuDevicePrimaryCtxRetain");
  std::lock_guard lock(the_state->mutex);
  std::vector<Context*>& all = the_state->primaries;
  all.resize(static_cast<std::size_t>(the_state->devices));
  Context*& primary = all[static_cast<std::size_t>(device - 10)];
  if (!primary || primary->destroyed) primary = make_context(device - 10), primary->primary = true;
  *context = primary;
  return ok;
}
EXPORTED int cuCtxGetCurrent(Context** context) {
  ENTER("cuCtxGetCurrent");
  *context = top();
  return ok;
}
EXPORTED int cuCtxGetDevice(int* device) {
  ENTER("cuCtxGetDevice");
  if (!top()) return invalid_context;
  *device = top()->device + 10;
  return ok;
}
EXPORTED int cuCtxPushCurrent_v2(Context* context) {
  ENTER("cuCtxPushCurrent_v2");
  if (context->destroyed) return destroyed_context;
  stack.push_back(context);
  return ok;
}
EXPORTED int cuCtxPopCurrent_v2(Context** context) {
  ENTER("cuCtxPopCurrent_v2");
  if (stack.empty()) return invalid_context;
  *context = stack.back();
  stack.pop_back();
  return ok;
}
EXPORTED int cuCtxSynchronize() {
  ENTER_UNSAFE("cuCtxSynchronize");
  return top() ? ok : invalid_context;
}
EXPORTED int cuModuleLoadDataEx(Module** module, const void* image, unsigned, int*, void** values) {
  ENTER_UNSAFE("cuModuleLoadDataEx");
  if (!top()) return invalid_context;
  const std::string text(static_cast<const char*>(image), 4);
  if (text == "\177ELF") {  // a real one: as good as any
    *module = new Module{top(), ""};
    return ok;
  }
  if (text != "FAKE") {
    std::strcpy(static_cast<char*>(values[0]), "no image");
    return invalid_image;
  }
  const std::string whole = static_cast<const char*>(image);  // "FAKE sm_90a\n..."
  const int made_for = std::atoi(whole.c_str() + 8);
  if (made_for / 10 != the_state->arch / 10 || made_for > the_state->arch) return no_binary;
  *module = new Module{top(), whole};
  return ok;
}
EXPORTED int cuModuleUnload(Module*) { return enter("cuModuleUnload"); }
EXPORTED int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  ENTER("cuModuleGetFunction");
  if (!module->image.empty() && module->image.find(name) == std::string::npos) return not_found;
  *function = new Function{module, name};
  return ok;
}
EXPORTED int cuFuncGetAttribute(int* value, int attribute, Function*) {
  ENTER_UNSAFE("cuFuncGetAttribute");
  *value = attribute == 4 ? 42 : attribute == 1 ? 16 : 0;
  return ok;
}
EXPORTED int cuFuncSetAttribute(Function* function, int attribute, int value) {
  ENTER("cuFuncSetAttribute");
  if (attribute == 8) function->dynamic_smem = value;
  return ok;
}
EXPORTED int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function*, int threads, std::size_t) {
  ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  *blocks = 2048 / threads;
  return ok;
}
EXPORTED int cuLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned, unsigned,
                            unsigned smem, void* stream, void** parameters, void**) {
  ENTER("cuLaunchKernel");
  std::lock_guard lock(the_state->mutex);
  Stream* const s = stream_of(stream);
  if (const int code = usable(s)) return code;
  if (function->module->context != top()) return invalid_context;
  if (static_cast<int>(smem) > function->dynamic_smem || gy != 1 || gz != 1) return invalid_value;
  std::uint64_t first = 0;
  if (parameters) std::memcpy(&first, parameters[0], sizeof first);
  if (s->capture) s->capture->nodes.push_back({});
  if (the_state->launches.size() < 1000) the_state->launches.push_back({function->name, top(), s, gx, bx, smem, first});
  return ok;
}
EXPORTED int cuMemAlloc_v2(unsigned long long* memory, std::size_t bytes) {
  ENTER_UNSAFE("cuMemAlloc_v2");
  return allocate(bytes, false, false, reinterpret_cast<char**>(memory));
}
EXPORTED int cuMemFree_v2(unsigned long long memory) {
  ENTER_UNSAFE("cuMemFree_v2");
  return top() ? release(reinterpret_cast<void*>(memory), false) : invalid_context;
}
EXPORTED int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  ENTER_UNSAFE("cuMemHostAlloc");
  return allocate(bytes, true, false, reinterpret_cast<char**>(memory));
}
EXPORTED int cuMemFreeHost(void* memory) {
  ENTER_UNSAFE("cuMemFreeHost");
  return release(memory, true);
}
EXPORTED int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, std::size_t bytes, void* stream) {
  ENTER("cuMemcpyHtoDAsync_v2");
  return add(stream_of(stream), {reinterpret_cast<void*>(to), from, bytes});
}
EXPORTED int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, std::size_t bytes, void* stream) {
  ENTER("cuMemcpyDtoHAsync_v2");
  return add(stream_of(stream), {to, reinterpret_cast<const void*>(from), bytes});
}
EXPORTED int cuStreamCreate(Stream** stream, unsigned) {
  ENTER("cuStreamCreate");
  *stream = new Stream{top(), the_state->next_id++, nullptr, 0, {}};
  return ok;
}
EXPORTED int cuStreamSynchronize(void* stream) {
  ENTER_UNSAFE("cuStreamSynchronize");
  Stream* const s = stream_of(stream);
  if (const int code = usable(s)) return code;
  if (s->capture) return capture_unsupported;
  finish(s);
  return ok;
}
EXPORTED int cuStreamGetCtx(void* stream, Context** context) {
  ENTER("cuStreamGetCtx");
  Stream* const s = stream_of(stream);
  *context = s->context ? s->context : top();
  return ok;
}
EXPORTED int cuStreamGetCaptureInfo_v2(void* stream, int* status, std::uint64_t* id, Graph** graph, const void**,
                                       std::size_t*) {
  ENTER("cuStreamGetCaptureInfo_v2");
  Stream* const s = stream_of(stream);
  *status = s->capture ? 1 : 0;
  if (s->capture) *id = s->capture_id, *graph = s->capture;
  return ok;
}
EXPORTED int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return enter("cuThreadExchangeStreamCaptureMode");
}
EXPORTED int cuUserObjectCreate(UserObject** object, void* pointer, void (*destroy)(void*), unsigned, unsigned) {
  ENTER("cuUserObjectCreate");
  *object = new UserObject{pointer, destroy};
  return ok;
}
EXPORTED int cuGraphRetainUserObject(Graph* graph, UserObject* object, unsigned, unsigned) {
  ENTER("cuGraphRetainUserObject");
  graph->kept.push_back(object);
  return ok;
}
EXPORTED int cuEventCreate(Event** event, unsigned) {
  ENTER("cuEventCreate");
  *event = new Event;
  return ok;
}
EXPORTED int cuEventRecord(Event* event, void* stream) {
  ENTER("cuEventRecord");
  std::lock_guard lock(the_state->mutex);
  event->stream = stream_of(stream);
  event->copies = the_state->copied[event->stream] + event->stream->waiting.size();
  return ok;
}
EXPORTED int cuEventQuery(Event* event) {
  ENTER("cuEventQuery");
  std::lock_guard lock(the_state->mutex);
  return the_state->copied[event->stream] >= event->copies ? ok : not_ready;
}
EXPORTED int cuEventSynchronize(Event* event) {
  ENTER_UNSAFE("cuEventSynchronize");
  finish(event->stream);
  return ok;
}
EXPORTED int cuPointerGetAttributes(unsigned count, int* attributes, void** values, unsigned long long pointer) {
  ENTER("cuPointerGetAttributes");
  std::lock_guard lock(the_state->mutex);
  char* const at = reinterpret_cast<char*>(pointer);
  const auto after = the_state->memory.upper_bound(at);
  const Memory* found = nullptr;
  if (after != the_state->memory.begin()) {
    const auto before = std::prev(after);
    if (at < before->first + before->second.bytes) found = &before->second;
  }
  for (unsigned i = 0; i < count; ++i) {
    int value = 0;
    if (attributes[i] == 2) value = found ? found->host ? 1 : 2 : 0;
    if (attributes[i] == 9) value = found ? found->context->device : -2;
    std::memcpy(values[i], &value, sizeof value);
  }
  return ok;
}
#ifndef FAKE_DRIVER_OLD  // as of 11.8: these are not there
EXPORTED int cuCtxGetId(Context* context, unsigned long long* id) {
  ENTER("cuCtxGetId");
  *id = context->id;
  return ok;
}
EXPORTED int cuStreamGetId(void* stream, unsigned long long* id) {
  ENTER("cuStreamGetId");
  *id = stream_of(stream)->id;
  return ok;
}
// Strict as the real one is: the result's alignment, steps of one element, nothing interleaved.
EXPORTED int cuTensorMapEncodeTiled(void* map, int type, std::uint32_t rank, void* data, const std::uint64_t* dims,
                                    const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* steps,
                                    int interleave, int swizzle, int l2_promotion, int outside) {
  ENTER("cuTensorMapEncodeTiled");
  if (reinterpret_cast<std::uintptr_t>(map) % 64 || rank < 1 || rank > 5 || interleave != 0 || outside != 0 ||
      l2_promotion < 0 || l2_promotion > 3 || swizzle < 0 || swizzle > 3)
    return invalid_value;
  for (std::uint32_t i = 0; i < rank; ++i)
    if (steps[i] != 1 || box[i] < 1 || box[i] > 256) return invalid_value;
  std::lock_guard lock(the_state->mutex);
  the_state->maps.push_back(
      {type, swizzle, data, {dims, dims + rank}, {strides, strides + rank - 1}, {box, box + rank}});
  std::memset(map, static_cast<int>(the_state->maps.size()), 128);
  return ok;
}
EXPORTED int cuMemAllocAsync(unsigned long long* memory, std::size_t bytes, void* stream) {
  ENTER_UNSAFE("cuMemAllocAsync");
  if (const int code = usable(stream_of(stream))) return code;
  return allocate(bytes, false, true, reinterpret_cast<char**>(memory));
}
EXPORTED int cuMemFreeAsync(unsigned long long memory, void* stream) {
  ENTER_UNSAFE("cuMemFreeAsync");
  if (const int code = usable(stream_of(stream))) return code;
  return release(reinterpret_cast<void*>(memory), false);
}
#endif
