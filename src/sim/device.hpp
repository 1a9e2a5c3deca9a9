// What the instructions of kernels/ptx/ mean on the emulated GPU: declarations only. The text of this file and of
// builtins.hpp stands before the text of every kernel that the host's compiler takes, so nothing is included here.
// Must not know: fibers, schedules, shadow memory (machine.hpp does).
#pragma once

#define TESSERA_SIM_API __attribute__((visibility("default")))

namespace tessera::sim {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

struct Dim3 {
  u32 x = 1, y = 1, z = 1;
};

// Who the running thread is.
struct Me {
  Dim3 thread_idx, block_idx, block_dim, grid_dim;
  char* smem = nullptr;  // of its block
  u64 smem_bytes = 0;
  char* stack = nullptr;  // its own
  u64 stack_bytes = 0;
  u32 flying = 0;  // arrays of its own that the warpgroup's tensor core owns for now
};
TESSERA_SIM_API extern constinit thread_local Me* me;

enum class Half : u8 { bf16, f16 };
struct Reg4 {
  u32 v[4];
};
struct Acc4 {
  float v[4];
};

// Shared memory
TESSERA_SIM_API void* shared_memory(u64 bytes);
TESSERA_SIM_API u32 smem_offset(const void* p);
TESSERA_SIM_API void trap();

// The block. Threads 0: all of them.
TESSERA_SIM_API void barrier(u32 id, u32 threads, bool wait);
TESSERA_SIM_API bool barrier_or(u32 id, u32 threads, bool x);

// The warp
TESSERA_SIM_API void syncwarp(u32 lanes);
TESSERA_SIM_API u32 shfl(u32 value, u32 lane, bool is_xor, u32 lanes);
TESSERA_SIM_API u32 ballot(bool x, u32 lanes);

// cp.async
TESSERA_SIM_API void cp_async(void* dst, const void* src, u32 bytes, u32 src_bytes);
TESSERA_SIM_API void cp_async_commit();
TESSERA_SIM_API void cp_async_wait(u32 groups_left);

// The warp's tensor core
TESSERA_SIM_API Reg4 ldmatrix(const void* row, u32 matrices, bool trans);
TESSERA_SIM_API void stmatrix(void* row, u32 matrices, bool trans, Reg4 r);
TESSERA_SIM_API Acc4 mma_16816(Acc4 d, Reg4 a, u32 b0, u32 b1, Half type);

// sm_90: mbarriers
TESSERA_SIM_API void mbarrier_init(void* barrier, u32 arrivals);
TESSERA_SIM_API void mbarrier_init_fence();
TESSERA_SIM_API void mbarrier_invalidate(void* barrier);
TESSERA_SIM_API void mbarrier_arrive(void* barrier, u32 arrivals, u32 bytes);
TESSERA_SIM_API void cp_async_mbarrier_arrive(void* barrier);
TESSERA_SIM_API void mbarrier_wait(void* barrier, u32 parity);
TESSERA_SIM_API bool mbarrier_test(void* barrier, u32 parity);

// sm_90: copies in bulk. Coordinates beyond the rank are 0.
TESSERA_SIM_API void fence_async();
TESSERA_SIM_API void tensor_prefetch(const void* map);
TESSERA_SIM_API void tensor_load(void* dst, const void* map, void* barrier, u32 rank, i32 c0, i32 c1, i32 c2, i32 c3,
                                 i32 c4);
TESSERA_SIM_API void tensor_store(const void* map, const void* src, u32 rank, i32 c0, i32 c1, i32 c2, i32 c3, i32 c4);
TESSERA_SIM_API void bulk_load(void* dst, const void* src, u32 bytes, void* barrier);
TESSERA_SIM_API void bulk_store(void* dst, const void* src, u32 bytes);
TESSERA_SIM_API void bulk_commit();
TESSERA_SIM_API void bulk_wait(u32 groups_left, bool read);

// sm_90: the warpgroup's tensor core, and warps with different tasks
TESSERA_SIM_API void wgmma_fence();
TESSERA_SIM_API void wgmma_commit();
TESSERA_SIM_API void wgmma_wait(u32 groups_left, const float* ready, u32 count);
TESSERA_SIM_API void wgmma_ss(float* d, u32 n, u64 a, u64 b, bool a_mn, bool b_mn, bool accumulate, Half type);
TESSERA_SIM_API void wgmma_rs(float* d, u32 n, const u32* a, u64 b, bool b_mn, bool accumulate, Half type);
TESSERA_SIM_API void setmaxnreg(u32 registers, bool raise);
TESSERA_SIM_API bool elect();

// Global memory
TESSERA_SIM_API void bad_global(const void* p, u32 bytes);  // misaligned, or not global
TESSERA_SIM_API void read_only(const void* p, u32 bytes);   // ld.global.nc, beside the load itself
TESSERA_SIM_API u32 load_sync(const u32* p, bool acquire);
TESSERA_SIM_API void store_sync(u32* p, u32 x, bool release);
TESSERA_SIM_API void threadfence();
TESSERA_SIM_API u32 atomic_add(u32* p, u32 x);
TESSERA_SIM_API u32 atomic_or(u32* p, u32 x);
TESSERA_SIM_API u32 atomic_max(u32* p, u32 x);
TESSERA_SIM_API float atomic_add(float* p, float x);

// What a checked build tells of each plain load and store outside of the thread's own stack.
TESSERA_SIM_API void on_access(const void* p, u64 bytes, bool write, const void* pc);
// And of those within the stack, while something of it is `flying`.
TESSERA_SIM_API void on_register(const void* p, u64 bytes, bool write, const void* pc);

}  // namespace tessera::sim
