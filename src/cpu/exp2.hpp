// 2^(c x): the polynomial of 2^f on [-0.5, 0.5] that every instruction set uses.
#pragma once

namespace tessera::cpu {
namespace {

// Degree 5, minimax in relative error (1.5e-7) with the constant term fixed at 1, so that 2^0 is exactly 1 and equal
// scores give the exact mean. Degree 4 would be 4e-6, above the accuracy rule's 2^-20.
constexpr float exp2_coefficients[6] = {1.0f,           0.6931469776f,   0.2402224208f,
                                        0.05550733744f, 0.009671512769f, 0.001326472727f};

// 1.5 * 2^23 + 127: adding it to c x rounds that to an integer n and leaves n + 127, the biased exponent of 2^n, in the
// low bits of the sum: no rounding instruction, and a clamped n = -127 gives the factor 0. One fma forms the sum and
// one more the remainder c x - n, so the multiplication by c costs nothing and rounds once.
constexpr float exp2_magic = 12582912.0f + 127.0f;

}  // namespace
}  // namespace tessera::cpu
