// For tests only. What a graph gives with reals of 32 bits, one operation after the other.
#pragma once
#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "mods/arithmetic.hpp"
#include "mods/graph.hpp"

namespace tessera::tests {

// The interpreter with reals of 32 bits: rounded after each operation, which for arithmetic and roots is what an
// operation on floats gives, and elsewhere the function of the math library on floats.
inline mods::Value evaluate_f32(const Graph& graph, const mods::Point& at, std::span<const mods::Table> tables) {
  std::vector<mods::Value> value;
  for (const Node& node : graph.nodes) {
    const auto argument = [&](std::size_t i) { return value[node.arg[i]]; };
    const auto real = [&](std::size_t i) { return static_cast<float>(argument(i).r); };
    mods::Value v{};
    switch (node.op) {
      case Op::exp:
        v.r = std::exp(real(0));
        break;
      case Op::exp2:
        v.r = std::exp2(real(0));
        break;
      case Op::log:
        v.r = std::log(real(0));
        break;
      case Op::tanh:
        v.r = std::tanh(real(0));
        break;
      case Op::sigmoid:
        v.r = 1 / (1 + std::exp(-real(0)));
        break;
      case Op::rsqrt:
        v.r = 1 / std::sqrt(real(0));
        break;
      case Op::erf:
        v.r = std::erf(real(0));
        break;
      case Op::pow:
        v.r = std::pow(real(0), real(1));
        break;
      case Op::to_real:
        v.r = static_cast<float>(argument(0).i);
        break;
      case Op::load: {
        std::int64_t index[Capture::max_rank]{};
        for (std::size_t i = 0; i < node.arg_count; ++i) index[i] = argument(i).i;
        v = mods::element(tables[node.slot], node.arg_count, index);
        break;
      }
      case Op::upper_bound: {
        std::int64_t argument_of[Capture::max_rank]{};
        for (std::size_t i = 0; i < node.arg_count; ++i) argument_of[i] = argument(i).i;
        v.i = mods::upper_bound(tables[node.slot], node.arg_count, argument_of);
        break;
      }
      case Op::param:
      case Op::constant: {
        const std::int64_t bits = node.op == Op::param ? graph.params[node.slot].value : node.value;
        if (node.type == Type::real) v.r = std::bit_cast<double>(bits);
        else v.i = bits;
        break;
      }
      case Op::batch:
        v.i = at.b;
        break;
      case Op::head:
        v.i = at.h;
        break;
      case Op::query:
        v.i = at.q;
        break;
      case Op::key:
        v.i = at.k;
        break;
      case Op::score:
        v.r = at.s;
        break;
      default:
        v = mods::compute(node.op, graph.nodes[node.arg[node.op == Op::select ? 1 : 0]].type, argument(0),
                          argument(node.arg_count > 1 ? 1 : 0), argument(node.arg_count > 2 ? 2 : 0));
    }
    v.r = static_cast<float>(v.r);
    value.push_back(v);
  }
  return value.back();
}

// -0 and 0 differ, any NaN is any NaN.
inline bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}
inline bool same(Type type, const mods::Value& a, const mods::Value& b) {
  return type == Type::real ? same(a.r, b.r) : a.i == b.i;
}

}  // namespace tessera::tests
