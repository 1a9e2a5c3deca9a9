// What every instruction in this folder is written with. Each is one function with two meanings side by side:
//   INSN(what it does on the emulated GPU, the instruction itself)
// NVRTC and nvcc see the second, g++ the first (the emulated GPU puts its own header, src/sim/device.hpp, before the
// text). All asm of the library's kernels stands in this folder; section numbers are those of the PTX ISA, version 8.x.
// Must not know: tiles, attention.
#pragma once

#ifdef __CUDACC__
#define PTX [[maybe_unused]] static __device__ __forceinline__
#define INSN(host, ...) __VA_ARGS__
#else
#ifndef TESSERA_SIM_DEVICE
#error "src/sim/device.hpp has to stand before the text of a kernel that a host compiler takes"
#endif
#define PTX [[maybe_unused]] static __forceinline__
#define INSN(host, ...) host
#endif

namespace ptx {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;
// Halves in memory are their bits; arithmetic is done in float or by the tensor core.
struct bf16 {
  u16 bits;
};
struct f16 {
  u16 bits;
};

constexpr u32 all_lanes = 0xffffffffu;

// The block's dynamic shared memory as the kernel's one typed struct.
template <class T>
PTX T& shared_memory() {
  INSN(return *reinterpret_cast<T*>(::sim::shared_memory(sizeof(T))), extern __shared__ __align__(1024) u8 raw[];
       return *reinterpret_cast<T*>(raw));
}

// The address that instructions on shared memory take. 5.2: state spaces.
PTX u32 smem(const void* p) { INSN(return ::sim::smem_offset(p), return (u32)__cvta_generic_to_shared(p)); }

// Ends the whole launch with an error: for what must never happen. 9.7.13: trap.
PTX void trap() { INSN(::sim::trap(), asm volatile("trap;")); }

}  // namespace ptx

namespace tessera_kernels {
using ptx::bf16;
using ptx::f16;
using ptx::i32;
using ptx::i64;
using ptx::u16;
using ptx::u32;
using ptx::u64;
using ptx::u8;
}  // namespace tessera_kernels
