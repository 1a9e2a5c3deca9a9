// The steps of a mod's program over a strip of keys, in the vectors of one instruction set. Included by forward.hpp,
// under its rules. Must not know: plans, threads, where the slots come from.
#pragma once
#include "cpu/mod_slots.hpp"

namespace tessera::cpu {
namespace {

template <class S>
struct Steps {
  using F = typename S::F;
  using M = typename S::M;
  using Op = tessera::Op;
  static constexpr int lanes = S::lanes;
  static constexpr int panel = 2 * lanes;

  // Where an operand's values lie: of key i, base[i * step], the same in all lanes or a vector for each half.
  struct View {
    const float* base;
    std::int64_t step;
    bool same;
    F get(std::int64_t i, int half) const {
      return same ? S::set(base[i * step]) : S::load_any(base + i * step + half * lanes);
    }
  };
  // A strip: rows of a panel that starts at `row` of the item, keys from `key` of a block of `keys`.
  struct Strip {
    const Mod& mod;
    const Slots& slots;
    std::int64_t row, key, keys;
    const float* s;
    float* buffers;
  };
  static View view(const Strip& at, const mods::Operand& operand) {
    using Kind = mods::Operand::Kind;
    if (operand.kind == Kind::number) return {&operand.number, 0, true};
    if (operand.kind == Kind::score) return {at.s, panel, false};
    if (operand.kind == Kind::step) return {at.buffers + operand.index * strip_keys * panel, panel, false};
    const float* slot = at.slots.at + operand.index * at.slots.stride;
    switch (at.mod.slots[operand.index].axis) {
      case mods::Axis::uniform:
        return {slot, 0, true};
      case mods::Axis::row:
        return {slot + at.row, 0, false};
      case mods::Axis::key:
        return {slot + at.key, 1, true};
      case mods::Axis::distance:  // ascending with the query, descending with the key
        return {slot + at.row + at.keys - 1 - at.key, -1, false};
      case mods::Axis::pair:
        break;
    }
    return {at.mod.slots[operand.index].by_rows ? slot + at.key * panel : slot, panel, false};
  }

  // Whether 1 / x is a normal number, a few roundings from exact.
  static bool has_inverse(float x) {
    const float size = x < 0 ? -x : x;
    return size > 0x1p-100f && size < 0x1p100f;
  }
  static F zero() { return S::set(0); }
  static F one() { return S::set(1); }
  static F truth(M m) { return S::select(m, one(), zero()); }
  static M is_true(F a) { return S::eq(a, one()); }
  static F negated(F a) { return S::mul(a, S::set(-1)); }
  static F absolute(F a) { return S::select(S::gt(a, zero()), a, S::sub(zero(), a)); }  // of -0 too
  // e^x and 2^x, of any x: the kernel's exp2 takes what is not positive; above, the square of 1 / 2^(-x / 2).
  static F power(F x, float c) {
    const F low = S::exp2(S::select(S::gt(x, zero()), S::mul(x, S::set(-0.5f)), x), S::set(c));
    const F high = S::div(one(), low);
    return S::select(S::gt(x, zero()), S::mul(high, high), low);
  }
  static constexpr float log2e = 1.44269504f;
  // Within 1.3 units of 2^-24, so that a capped score is as good as one by the library: below 1, x + x^3 p / Q(x^2),
  // fitted to 2e-9 relative, which is exact about 0; above, 1 - 2 g / (1 + g) with g = e^-2|x|, which is exactly 1
  // where the float is. Both share the division; caps are mostly larger than scores, and where all are, that is all.
  // (One fraction x P / Q for all x is off by 5 units: as 1 approaches, its own roundings are all that is left.)
  static F hyperbolic_tangent(F x) {
    constexpr std::uint32_t all = static_cast<std::uint32_t>((std::uint64_t{1} << lanes) - 1);
    const F u = S::mul(x, x);
    F q = S::fma(S::set(7.565627953e-5f), u, S::set(-1.897587798e-3f)),
      p = S::mul(x, S::mul(u, S::set(-0.3333332602f)));
    q = S::fma(S::fma(q, u, S::set(0.3999976507f)), u, one());
    const M small = S::gt(one(), u);
    F base = x;
    if (S::bits(small) != all) {
      const F g = S::exp2(S::min(x, S::sub(zero(), x)), S::set(2 * log2e));
      const F sign = S::select(S::gt(x, zero()), one(), S::set(-1));
      base = S::select(small, x, sign), q = S::select(small, q, S::add(one(), g));
      p = S::select(small, p, S::mul(S::mul(g, S::set(-2)), sign));
    }
    return S::select(S::eq(x, zero()), x, S::add(base, S::div(p, q)));  // of -0 too
  }
  static F sigmoid(F x) {
    const F e = power(negated(absolute(x)), log2e), r = S::div(one(), S::add(one(), e));
    return S::select(S::ge(x, zero()), r, S::mul(e, r));
  }

  template <class Fn>
  static inline __attribute__((always_inline)) void each(std::int64_t n, float* out, Fn fn) {
    for (std::int64_t i = 0; i < n; ++i)
      for (int half = 0; half < 2; ++half) S::store(out + i * panel + half * lanes, fn(i, half));
  }

  // The value of the program for keys [key, key + n): out [n][panel], may be the scores.
  static void run(const Strip& at, std::int64_t n, float* out) {
    for (std::int64_t i = 0; i < at.mod.step_count; ++i) step(at, at.mod.steps[i], n);
    const View result = view(at, at.mod.result);
    each(n, out, [&](std::int64_t i, int half) { return result.get(i, half); });
  }

  static void step(const Strip& at, const mods::Step& step, std::int64_t n) {
    const View a = view(at, step.arg[0]), b = view(at, step.arg[1]), c = view(at, step.arg[2]);
    float* out = at.buffers + step.buffer * strip_keys * panel;
    const auto unary = [&](auto fn) __attribute__((always_inline)) {
      each(n, out, [&](std::int64_t i, int half) { return fn(a.get(i, half)); });
    };
    const auto binary = [&](auto fn) __attribute__((always_inline)) {
      each(n, out, [&](std::int64_t i, int half) { return fn(a.get(i, half), b.get(i, half)); });
    };
    switch (step.op) {
      case Op::add:
        return binary([](F x, F y) { return S::add(x, y); });
      case Op::sub:
        return binary([](F x, F y) { return S::sub(x, y); });
      case Op::mul:
      case Op::logical_and:
        return binary([](F x, F y) { return S::mul(x, y); });
      case Op::div:
        if (b.same && b.step == 0 &&
            has_inverse(*b.base)) {  // one division a strip: softcap at d 64: 66 -> 80 % of causal
          const F inverse = S::set(1 / *b.base), divisor = S::set(-*b.base);
          return unary([&](F x) __attribute__((always_inline)) {
            const F quotient = S::mul(x, inverse);  // as good as a division, once its remainder is divided too
            const F better = S::fma(S::fma(quotient, divisor, x), inverse, quotient);
            return S::select(S::eq(better, better), better, quotient);  // of infinity: infinity
          });
        }
        return binary([](F x, F y) { return S::div(x, y); });
      case Op::min:  // of a number and a NaN, the number
        return binary([](F x, F y) { return S::select(S::eq(y, y), S::min(x, y), x); });
      case Op::max:
        return binary([](F x, F y) { return S::select(S::eq(y, y), S::max(x, y), x); });
      case Op::logical_or:
        return binary([](F x, F y) { return S::max(x, y); });
      case Op::lt:
        return binary([](F x, F y) { return truth(S::gt(y, x)); });
      case Op::le:
        return binary([](F x, F y) { return truth(S::ge(y, x)); });
      case Op::gt:
        return binary([](F x, F y) { return truth(S::gt(x, y)); });
      case Op::ge:
        return binary([](F x, F y) { return truth(S::ge(x, y)); });
      case Op::eq:
        return binary([](F x, F y) { return truth(S::eq(x, y)); });
      case Op::ne:
        return binary([](F x, F y) { return S::select(S::eq(x, y), zero(), one()); });
      case Op::logical_not:
        return unary([](F x) { return S::sub(one(), x); });
      case Op::neg:
        return unary([](F x) { return negated(x); });
      case Op::abs:
        return unary([](F x) { return absolute(x); });
      case Op::sign:  // of a zero and a NaN: itself
        return unary(
            [](F x) { return S::select(S::gt(x, zero()), one(), S::select(S::gt(zero(), x), S::set(-1), x)); });
      case Op::exp:
        return unary([](F x) { return power(x, log2e); });
      case Op::exp2:
        return unary([](F x) { return power(x, 1); });
      case Op::tanh:
        return unary([](F x) { return hyperbolic_tangent(x); });
      case Op::sigmoid:
        return unary([](F x) { return sigmoid(x); });
      case Op::sqrt:
        return unary([](F x) { return S::sqrt(x); });
      case Op::rsqrt:
        return unary([](F x) { return S::div(one(), S::sqrt(x)); });
      case Op::to_real:
        return unary([](F x) { return x; });
      case Op::select:
        return each(n, out, [&](std::int64_t i, int half) {
          return S::select(is_true(a.get(i, half)), b.get(i, half), c.get(i, half));
        });
      default: {  // log, erf, pow: one by one
        alignas(64) float x[panel], y[panel];
        for (std::int64_t i = 0; i < n; ++i) {
          for (int half = 0; half < 2; ++half)
            S::store(x + half * lanes, a.get(i, half)), S::store(y + half * lanes, b.get(i, half));
          apply_each(step.op, x, y, panel, out + i * panel);
        }
      }
    }
  }
};

}  // namespace
}  // namespace tessera::cpu
