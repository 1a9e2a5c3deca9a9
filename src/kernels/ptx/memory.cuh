// Loads and stores of global memory with a width and a kind, fences, and atomic operations.
// Plain loads and stores through pointers are allowed too; these are for widths that must not be split (the address is
// a multiple of the width), for the read-only path, and for what other blocks write at the same time.
// Must not know: tiles, attention.
#pragma once
#include "base.cuh"

namespace ptx {

// 9.7.9: ld.global. 16, 8, 4, 2 bytes.
PTX uint4 load16(const void* p) {
  INSN(return ::sim::load<uint4>(p), uint4 r; asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                                                           : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
                                                           : "l"(p)
                                                           : "memory");
       return r);
}
PTX uint2 load8(const void* p) {
  INSN(return ::sim::load<uint2>(p), uint2 r; asm volatile("ld.global.v2.u32 {%0, %1}, [%2];"
                                                           : "=r"(r.x), "=r"(r.y)
                                                           : "l"(p)
                                                           : "memory");
       return r);
}
PTX u32 load4(const void* p) {
  INSN(return ::sim::load<u32>(p), u32 r; asm volatile("ld.global.u32 %0, [%1];"
                                                       : "=r"(r)
                                                       : "l"(p)
                                                       : "memory");
       return r);
}
PTX u16 load2(const void* p) {
  INSN(return ::sim::load<u16>(p), u16 r; asm volatile("ld.global.u16 %0, [%1];"
                                                       : "=h"(r)
                                                       : "l"(p)
                                                       : "memory");
       return r);
}

// 9.7.9: ld.global.nc. Of what nobody writes while the kernel runs.
PTX uint4 load16_nc(const void* p) {
  INSN(return ::sim::load_nc<uint4>(p), uint4 r; asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                                                     : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
                                                     : "l"(p));
       return r);
}
PTX uint2 load8_nc(const void* p) {
  INSN(return ::sim::load_nc<uint2>(p), uint2 r; asm("ld.global.nc.v2.u32 {%0, %1}, [%2];"
                                                     : "=r"(r.x), "=r"(r.y)
                                                     : "l"(p));
       return r);
}
PTX u32 load4_nc(const void* p) {
  INSN(return ::sim::load_nc<u32>(p), u32 r; asm("ld.global.nc.u32 %0, [%1];" : "=r"(r) : "l"(p)); return r);
}
PTX u16 load2_nc(const void* p) {
  INSN(return ::sim::load_nc<u16>(p), u16 r; asm("ld.global.nc.u16 %0, [%1];" : "=h"(r) : "l"(p)); return r);
}

// 9.7.9: st.global. 16, 8, 4, 2 bytes.
PTX void store16(void* p, uint4 x) {
  INSN(::sim::store(p, x),
       asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                    : "memory"));
}
PTX void store8(void* p, uint2 x) {
  INSN(::sim::store(p, x), asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(x.x), "r"(x.y) : "memory"));
}
PTX void store4(void* p, u32 x) {
  INSN(::sim::store(p, x), asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory"));
}
PTX void store2(void* p, u16 x) {
  INSN(::sim::store(p, x), asm volatile("st.global.u16 [%0], %1;" ::"l"(p), "h"(x) : "memory"));
}

// Words that blocks tell each other something by. 9.7.9: ld.relaxed, ld.acquire, st.relaxed, st.release at the scope of
// the GPU. A loop that waits has to read by one of these loads (or an atomic operation): the emulated GPU lets other
// threads run there, and nowhere else.
PTX u32 load_relaxed(const u32* p) {
  INSN(return ::sim::load_sync(p, false), u32 r; asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
                                                              : "=r"(r)
                                                              : "l"(p)
                                                              : "memory");
       return r);
}
PTX u32 load_acquire(const u32* p) {
  INSN(return ::sim::load_sync(p, true), u32 r; asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                                                             : "=r"(r)
                                                             : "l"(p)
                                                             : "memory");
       return r);
}
PTX void store_relaxed(u32* p, u32 x) {
  INSN(::sim::store_sync(p, x, false), asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory"));
}
PTX void store_release(u32* p, u32 x) {
  INSN(::sim::store_sync(p, x, true), asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory"));
}
// 9.7.13: fence. Orders this thread's accesses, and what it has seen, against relaxed and atomic operations before and
// after it: data, fence, flag on one side; flag, fence, data on the other.
PTX void threadfence() { INSN(::sim::threadfence(), asm volatile("fence.acq_rel.gpu;" ::: "memory")); }

// 9.7.13: atom, relaxed, at the scope of the GPU; each returns the value before.
PTX u32 atomic_add(u32* p, u32 x) {
  INSN(return ::sim::atomic_add(p, x), u32 r; asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
                                                           : "=r"(r)
                                                           : "l"(p), "r"(x)
                                                           : "memory");
       return r);
}
PTX u32 atomic_or(u32* p, u32 x) {
  INSN(return ::sim::atomic_or(p, x), u32 r; asm volatile("atom.relaxed.gpu.global.or.b32 %0, [%1], %2;"
                                                          : "=r"(r)
                                                          : "l"(p), "r"(x)
                                                          : "memory");
       return r);
}
PTX u32 atomic_max(u32* p, u32 x) {
  INSN(return ::sim::atomic_max(p, x), u32 r; asm volatile("atom.relaxed.gpu.global.max.u32 %0, [%1], %2;"
                                                           : "=r"(r)
                                                           : "l"(p), "r"(x)
                                                           : "memory");
       return r);
}
PTX float atomic_add(float* p, float x) {
  INSN(return ::sim::atomic_add(p, x), float r; asm volatile("atom.relaxed.gpu.global.add.f32 %0, [%1], %2;"
                                                             : "=f"(r)
                                                             : "l"(p), "f"(x)
                                                             : "memory");
       return r);
}

}  // namespace ptx
