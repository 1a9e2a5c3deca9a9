// Arithmetic that is an instruction of its own: base-2 exponential and logarithm, reciprocals, halves in pairs.
// The emulated results of approximations are correctly rounded or nearly so; a GPU's lie within the errors stated here,
// so what a kernel computes from them agrees within that, not in every bit (kernels/calibrate.cuh measures it).
// Must not know: tiles, attention.
#pragma once
#include "base.cuh"

namespace ptx {

PTX float as_float(u32 x) { INSN(return ::sim::as_float(x), return __uint_as_float(x)); }
PTX u32 as_bits(float x) { INSN(return ::sim::as_bits(x), return __float_as_uint(x)); }
PTX float infinity() { return as_float(0x7f800000u); }

// 9.7.3: ex2. Relative error 2^-22; denormal arguments and results are 0. exp2(0) is 1, exp2(-inf) 0.
PTX float exp2(float x) {
  INSN(return ::sim::exp2(x), float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y);
}
// 9.7.3: lg2. Absolute error 2^-22 for arguments in (0.5, 2), else relative error 2^-22. log2(0) is -inf.
PTX float log2(float x) {
  INSN(return ::sim::log2(x), float y; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y);
}
// 9.7.3: rcp. Error 1 unit in the last place; denormals are 0. rcp(0) is inf.
PTX float rcp(float x) {
  INSN(return ::sim::rcp(x), float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y);
}
// 9.7.3: rsqrt. Relative error 2^-22.9; denormals are 0.
PTX float rsqrt(float x) {
  INSN(return ::sim::rsqrt(x), float y; asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y);
}
// 9.7.3: tanh. Relative error 2^-11: for what is rounded to halves at once, not for scores.
PTX float tanh_approx(float x) {
  INSN(return ::sim::tanh(x), float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y);
}
// 9.7.3: abs.
PTX float abs(float x) {
  INSN(return ::sim::as_float(::sim::as_bits(x) & 0x7fffffffu), float y; asm("abs.f32 %0, %1;"
                                                                             : "=f"(y)
                                                                             : "f"(x));
       return y);
}
// 9.7.3: min, max. Of a NaN and a number: the number.
PTX float max(float a, float b) {
  INSN(return ::sim::max(a, b), float y; asm("max.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y);
}
PTX float min(float a, float b) {
  INSN(return ::sim::min(a, b), float y; asm("min.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y);
}
// 9.7.3: fma. One rounding, whatever the compiler is allowed to contract elsewhere.
PTX float fma(float a, float b, float c) {
  INSN(return ::sim::fma(a, b, c), float y; asm("fma.rn.f32 %0, %1, %2, %3;"
                                                : "=f"(y)
                                                : "f"(a), "f"(b), "f"(c));
       return y);
}
// 9.7.3: mul, add. Never contracted with what follows: where a product or a sum must be rounded by itself.
PTX float mul(float a, float b) {
  INSN(return ::sim::mul(a, b), float y; asm("mul.rn.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y);
}
PTX float add(float a, float b) {
  INSN(return ::sim::add(a, b), float y; asm("add.rn.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y);
}

// tanh by one ex2 and one rcp: (1 - e) / (1 + e) with e = 2^(-2 |x| log2 e). Absolute error below 2^-21; +-1 exactly
// for large arguments, 0 for 0, NaN for NaN.
PTX float tanh(float x) {
  const float e = exp2(-2.88539008f * (x < 0 ? -x : x)), y = (1.0f - e) * rcp(1.0f + e);
  return x < 0 ? -y : y;
}

// 9.7.9: cvt. Two floats as a register of two halves, to nearest even; `lo` is the half at the lower address. A NaN
// becomes 0x7fff; what is too large becomes infinite.
PTX u32 pack_bf16(float lo, float hi) {
  INSN(return ::sim::pack_bf16(lo, hi), u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
                                                   : "=r"(r)
                                                   : "f"(hi), "f"(lo));
       return r);
}
PTX u32 pack_f16(float lo, float hi) {
  INSN(return ::sim::pack_f16(lo, hi), u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;"
                                                  : "=r"(r)
                                                  : "f"(hi), "f"(lo));
       return r);
}
// 9.7.9: cvt. One half.
PTX bf16 to_bf16(float x) {
  INSN(return bf16{(u16)::sim::pack_bf16(x, 0.0f)}, bf16 r; asm("cvt.rn.bf16.f32 %0, %1;"
                                                                : "=h"(r.bits)
                                                                : "f"(x));
       return r);
}
PTX f16 to_f16(float x) {
  INSN(return f16{(u16)::sim::pack_f16(x, 0.0f)}, f16 r; asm("cvt.rn.f16.f32 %0, %1;"
                                                             : "=h"(r.bits)
                                                             : "f"(x));
       return r);
}
// Exact. A bf16 is the upper half of a float.
PTX float to_float(bf16 x) { return as_float((u32)x.bits << 16); }
PTX float to_float(f16 x) {
  INSN(return ::sim::from_f16(x.bits), float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y);
}

}  // namespace ptx
