// Asynchronous copies in bulk, for sm_90: boxes of a tensor that a map describes, and plain runs of bytes. One thread
// asks for a whole copy. Loads count their bytes down on an mbarrier; stores are waited for in groups, by the thread
// that asked. They go through the asynchronous proxy: before one reads (or overwrites) what threads have written to
// shared memory by themselves, those threads call fence_async(), then meet the one that asks at a barrier.
// Must not know: tiles, attention.
#pragma once
#include "mbarrier.cuh"

namespace ptx {

// Made on the host by gpu::Engine::tensor_map(). A kernel has it in its parameters, by value, and takes its address
// there.
struct alignas(64) TensorMap {
  u64 opaque[16];
};

// 9.7.13: fence.proxy.async. Between a thread's own accesses to shared memory and those of the asynchronous proxy: bulk
// copies, tensor copies and products of the warpgroup that read by a descriptor.
PTX void fence_async() { INSN(::sim::fence_async(), asm volatile("fence.proxy.async.shared::cta;" ::: "memory")); }

// 9.7.9: prefetch.tensormap.
PTX void tensor_prefetch(const TensorMap& map) {
  INSN(::sim::tensor_prefetch(&map), asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"));
}

// 9.7.9: cp.async.bulk.tensor, from global to shared memory. The box at these coordinates (of the innermost dimension
// first, in elements) goes to `dst`, which is a multiple of 128, or of 1024 where the map swizzles; what lies outside
// of the tensor is zero. The innermost coordinate is a multiple of 16 bytes: an H200 takes another one for an illegal
// instruction. All bytes of the box count on the mbarrier, those outside of the tensor too.
PTX void tensor_load(void* dst, const TensorMap& map, MBarrier& b, i32 c0) {
  INSN(
      ::sim::tensor_load(dst, &map, &b, 1, c0, 0, 0, 0, 0),
      asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3}], "
                   "[%2];" ::"r"(smem(dst)),
                   "l"(&map), "r"(smem(&b)), "r"(c0)
                   : "memory"));
}
PTX void tensor_load(void* dst, const TensorMap& map, MBarrier& b, i32 c0, i32 c1) {
  INSN(::sim::tensor_load(dst, &map, &b, 2, c0, c1, 0, 0, 0),
       asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
                    "%4}], [%2];" ::"r"(smem(dst)),
                    "l"(&map), "r"(smem(&b)), "r"(c0), "r"(c1)
                    : "memory"));
}
PTX void tensor_load(void* dst, const TensorMap& map, MBarrier& b, i32 c0, i32 c1, i32 c2) {
  INSN(::sim::tensor_load(dst, &map, &b, 3, c0, c1, c2, 0, 0),
       asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
                    "%4, %5}], [%2];" ::"r"(smem(dst)),
                    "l"(&map), "r"(smem(&b)), "r"(c0), "r"(c1), "r"(c2)
                    : "memory"));
}
PTX void tensor_load(void* dst, const TensorMap& map, MBarrier& b, i32 c0, i32 c1, i32 c2, i32 c3) {
  INSN(::sim::tensor_load(dst, &map, &b, 4, c0, c1, c2, c3, 0),
       asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
                    "%4, %5, %6}], [%2];" ::"r"(smem(dst)),
                    "l"(&map), "r"(smem(&b)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                    : "memory"));
}
PTX void tensor_load(void* dst, const TensorMap& map, MBarrier& b, i32 c0, i32 c1, i32 c2, i32 c3, i32 c4) {
  INSN(::sim::tensor_load(dst, &map, &b, 5, c0, c1, c2, c3, c4),
       asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
                    "%4, %5, %6, %7}], [%2];" ::"r"(smem(dst)),
                    "l"(&map), "r"(smem(&b)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
                    : "memory"));
}

// 9.7.9: cp.async.bulk.tensor, from shared to global memory: the other way, and what lies outside of the tensor stays
// as it is. Part of this thread's next group.
PTX void tensor_store(const TensorMap& map, const void* src, i32 c0) {
  INSN(::sim::tensor_store(&map, src, 1, c0, 0, 0, 0, 0),
       asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%2}], [%1];" ::"l"(&map),
                    "r"(smem(src)), "r"(c0)
                    : "memory"));
}
PTX void tensor_store(const TensorMap& map, const void* src, i32 c0, i32 c1) {
  INSN(::sim::tensor_store(&map, src, 2, c0, c1, 0, 0, 0),
       asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
                    "r"(smem(src)), "r"(c0), "r"(c1)
                    : "memory"));
}
PTX void tensor_store(const TensorMap& map, const void* src, i32 c0, i32 c1, i32 c2) {
  INSN(::sim::tensor_store(&map, src, 3, c0, c1, c2, 0, 0),
       asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
                    "r"(smem(src)), "r"(c0), "r"(c1), "r"(c2)
                    : "memory"));
}
PTX void tensor_store(const TensorMap& map, const void* src, i32 c0, i32 c1, i32 c2, i32 c3) {
  INSN(::sim::tensor_store(&map, src, 4, c0, c1, c2, c3, 0),
       asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], "
                    "[%1];" ::"l"(&map),
                    "r"(smem(src)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                    : "memory"));
}
PTX void tensor_store(const TensorMap& map, const void* src, i32 c0, i32 c1, i32 c2, i32 c3, i32 c4) {
  INSN(::sim::tensor_store(&map, src, 5, c0, c1, c2, c3, c4),
       asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], "
                    "[%1];" ::"l"(&map),
                    "r"(smem(src)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
                    : "memory"));
}

// 9.7.9: cp.async.bulk. Addresses and `bytes` are multiples of 16. A load counts on the mbarrier, a store is part of
// this thread's next group.
PTX void bulk_load(void* dst, const void* src, u32 bytes, MBarrier& b) {
  INSN(::sim::bulk_load(dst, src, bytes, &b),
       asm volatile(
           "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem(dst)),
           "l"(src), "r"(bytes), "r"(smem(&b))
           : "memory"));
}
PTX void bulk_store(void* dst, const void* src, u32 bytes) {
  INSN(::sim::bulk_store(dst, src, bytes),
       asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(smem(src)), "r"(bytes)
                    : "memory"));
}

// 9.7.9: cp.async.bulk.commit_group, cp.async.bulk.wait_group. Waits until at most `Left` of this thread's groups are
// on their way. After bulk_wait_read, their sources in shared memory may be overwritten (by this thread, or by others
// behind a barrier); after bulk_wait, their destinations are written as well. A thread waits for all of its groups
// before it ends: the block's shared memory ends with it.
PTX void bulk_commit() { INSN(::sim::bulk_commit(), asm volatile("cp.async.bulk.commit_group;" ::: "memory")); }
template <int Left>
PTX void bulk_wait_read() {
  INSN(::sim::bulk_wait(Left, true), asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Left) : "memory"));
}
template <int Left>
PTX void bulk_wait() {
  INSN(::sim::bulk_wait(Left, false), asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Left) : "memory"));
}

}  // namespace ptx
