// What the library uses of the CUDA driver (libcuda): types, numbers and functions by the driver API's published names,
// declared here so that no CUDA header is needed to build. The names' suffixes (_v2) are those of the binary interface.
// Must not know: kernels, attention.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tessera::cuda {

using CUresult = int;
using CUdevice = int;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUuserObject = struct CUuserObject_st*;
using CUdeviceptr = unsigned long long;

enum : CUresult {
  cuda_success = 0,
  cuda_invalid_value = 1,
  cuda_out_of_memory = 2,
  cuda_not_initialised = 3,
  cuda_deinitialised = 4,
  cuda_stub_library = 34,
  cuda_no_device = 100,
  cuda_invalid_image = 200,
  cuda_invalid_context = 201,
  cuda_no_binary_for_gpu = 209,
  cuda_unsupported_ptx = 222,
  cuda_invalid_handle = 400,
  cuda_not_ready = 600,
  cuda_illegal_address = 700,
  cuda_launch_out_of_resources = 701,
  cuda_context_is_destroyed = 709,
  cuda_launch_failed = 719,
  cuda_system_not_ready = 802,
  cuda_driver_mismatch = 803,
  cuda_capture_unsupported = 900,
  cuda_capture_implicit = 906,
  cuda_unknown = 999,
};

// CUdevice_attribute
enum : int {
  attribute_clock_khz = 13,
  attribute_sms = 16,
  attribute_memory_clock_khz = 36,
  attribute_memory_bus_bits = 37,
  attribute_l2_bytes = 38,
  attribute_threads_sm = 39,
  attribute_major = 75,
  attribute_minor = 76,
  attribute_smem_sm = 81,
  attribute_registers_sm = 82,
  attribute_smem_block_optin = 97,
  attribute_smem_reserved = 111,
  attribute_memory_pools = 115,
};
// CUfunction_attribute
enum : int { function_smem = 1, function_local = 3, function_registers = 4, function_max_dynamic_smem = 8 };
// CUpointer_attribute; CUmemorytype
enum : int { pointer_memory_type = 2, pointer_is_managed = 8, pointer_device = 9 };
enum : unsigned { memory_host = 1, memory_device = 2 };
// CUjit_option
enum : int { jit_error_log = 5, jit_error_log_bytes = 6 };
// CUstreamCaptureMode, CUstreamCaptureStatus
enum : int { capture_mode_relaxed = 2, capture_none = 0, capture_active = 1 };
enum : unsigned {
  event_disable_timing = 2,
  stream_non_blocking = 1,
  host_portable = 1,
  user_object_no_sync = 1,
  graph_move = 1
};

// CUtensorMapDataType, CUtensorMapL2promotion; of interleave and of what is outside: 0, none and zeros
enum : int { map_u8 = 0, map_i32 = 3, map_f16 = 6, map_f32 = 7, map_bf16 = 9, map_l2_256 = 3 };
inline constexpr std::size_t map_alignment = 64;

// Streams that are numbers, not objects.
inline CUstream stream_legacy() { return reinterpret_cast<CUstream>(std::uintptr_t{1}); }
inline CUstream stream_per_thread() { return reinterpret_cast<CUstream>(std::uintptr_t{2}); }

// X(member, exported name, parameters). Without them there is no GPU for us: all are in every driver since 11.4.
#define TESSERA_CUDA_NEEDED(X)                                                                                        \
  X(init, "cuInit", (unsigned flags))                                                                                 \
  X(driver_version, "cuDriverGetVersion", (int* version))                                                             \
  X(error_name, "cuGetErrorName", (CUresult code, const char** name))                                                 \
  X(error_string, "cuGetErrorString", (CUresult code, const char** text))                                             \
  X(device_count, "cuDeviceGetCount", (int* count))                                                                   \
  X(device_get, "cuDeviceGet", (CUdevice * device, int ordinal))                                                      \
  X(device_name, "cuDeviceGetName", (char* name, int bytes, CUdevice device))                                         \
  X(device_attribute, "cuDeviceGetAttribute", (int* value, int attribute, CUdevice device))                           \
  X(primary_retain, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device))                               \
  X(context_current, "cuCtxGetCurrent", (CUcontext * context))                                                        \
  X(context_device, "cuCtxGetDevice", (CUdevice * device))                                                            \
  X(context_push, "cuCtxPushCurrent_v2", (CUcontext context))                                                         \
  X(context_pop, "cuCtxPopCurrent_v2", (CUcontext * context))                                                         \
  X(context_synchronise, "cuCtxSynchronize", ())                                                                      \
  X(module_load, "cuModuleLoadDataEx",                                                                                \
    (CUmodule * module, const void* image, unsigned options, int* names, void** values))                              \
  X(module_unload, "cuModuleUnload", (CUmodule module))                                                               \
  X(module_function, "cuModuleGetFunction", (CUfunction * function, CUmodule module, const char* name))               \
  X(function_get, "cuFuncGetAttribute", (int* value, int attribute, CUfunction function))                             \
  X(function_set, "cuFuncSetAttribute", (CUfunction function, int attribute, int value))                              \
  X(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                                                         \
    (int* blocks, CUfunction function, int threads, std::size_t dynamic_smem))                                        \
  X(launch, "cuLaunchKernel",                                                                                         \
    (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,               \
     unsigned dynamic_smem, CUstream stream, void** parameters, void** extra))                                        \
  X(memory_allocate, "cuMemAlloc_v2", (CUdeviceptr * memory, std::size_t bytes))                                      \
  X(memory_free, "cuMemFree_v2", (CUdeviceptr memory))                                                                \
  X(host_allocate, "cuMemHostAlloc", (void** memory, std::size_t bytes, unsigned flags))                              \
  X(host_free, "cuMemFreeHost", (void* memory))                                                                       \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2", (CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream))   \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void* to, CUdeviceptr from, std::size_t bytes, CUstream stream))           \
  X(stream_create, "cuStreamCreate", (CUstream * stream, unsigned flags))                                             \
  X(stream_synchronise, "cuStreamSynchronize", (CUstream stream))                                                     \
  X(stream_context, "cuStreamGetCtx", (CUstream stream, CUcontext * context))                                         \
  X(capture_info, "cuStreamGetCaptureInfo_v2",                                                                        \
    (CUstream stream, int* status, std::uint64_t* id, CUgraph* graph, const void** dependencies, std::size_t* count)) \
  X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int* mode))                                                   \
  X(user_object, "cuUserObjectCreate",                                                                                \
    (CUuserObject * object, void* pointer, void (*destroy)(void*), unsigned references, unsigned flags))              \
  X(graph_retain, "cuGraphRetainUserObject", (CUgraph graph, CUuserObject object, unsigned count, unsigned flags))    \
  X(event_create, "cuEventCreate", (CUevent * event, unsigned flags))                                                 \
  X(event_record, "cuEventRecord", (CUevent event, CUstream stream))                                                  \
  X(event_query, "cuEventQuery", (CUevent event))                                                                     \
  X(event_synchronise, "cuEventSynchronize", (CUevent event))                                                         \
  X(pointer_attributes, "cuPointerGetAttributes", (unsigned count, int* attributes, void** values, CUdeviceptr pointer))

// Null where the driver is older or the platform lacks them.
#define TESSERA_CUDA_OPTIONAL(X)                                                                                    \
  X(context_id, "cuCtxGetId", (CUcontext context, unsigned long long* id)) /* 12.0 */                               \
  X(stream_id, "cuStreamGetId", (CUstream stream, unsigned long long* id)) /* 12.0 */                               \
  X(pool_allocate, "cuMemAllocAsync", (CUdeviceptr * memory, std::size_t bytes, CUstream stream))                   \
  X(pool_free, "cuMemFreeAsync", (CUdeviceptr memory, CUstream stream))                                             \
  X(tensor_map, "cuTensorMapEncodeTiled", /* 12.0 */                                                                \
    (void* map, int type, std::uint32_t rank, void* data, const std::uint64_t* dims, const std::uint64_t* strides,  \
     const std::uint32_t* box, const std::uint32_t* element_strides, int interleave, int swizzle, int l2_promotion, \
     int outside))

struct DriverApi {
#define TESSERA_MEMBER(member, name, parameters) CUresult(*member) parameters = nullptr;
  TESSERA_CUDA_NEEDED(TESSERA_MEMBER)
  TESSERA_CUDA_OPTIONAL(TESSERA_MEMBER)
#undef TESSERA_MEMBER
};

}  // namespace tessera::cuda
