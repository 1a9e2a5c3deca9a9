// Masks: the ready-made ones, their combinations, their hash.
#include <string>

#include "mods/graph.hpp"
#include "tessera/mods.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {
namespace {

using mods::Builder;

Mask combined(Op op, const Mask& a, const Mask& b) {
  Builder& builder = mods::scratch_builder();
  const std::uint16_t left = builder.import(a.graph()), right = builder.import(b.graph());
  return builder.finish_mask(builder.apply(op, left, right));
}

void check_side(const char* side, std::int64_t width) {
  if (width < 0)
    throw Error(Code::invalid_option, std::string("window: ") + side + " is " + std::to_string(width) +
                                          ": it is 0 or more, or tessera::unbounded for no limit");
}

}  // namespace

Mask::Mask(const Graph& graph) {
  mods::verify_mask(graph);
  Builder& builder = mods::scratch_builder();
  *this = builder.finish_mask(builder.import(graph));
}

Mask full() { return {}; }

Mask causal() {
  Builder& builder = mods::scratch_builder();
  return builder.finish_mask(builder.apply(Op::le, builder.leaf(Op::key), builder.leaf(Op::query)));
}

Mask window(std::int64_t left, std::int64_t right) {
  check_side("left", left), check_side("right", right);
  // Sums saturate, so the widest widths need no care here.
  Builder& builder = mods::scratch_builder();
  const std::uint16_t q = builder.leaf(Op::query), k = builder.leaf(Op::key);
  std::uint16_t inside = builder.constant(true);
  if (left != unbounded) inside = builder.apply(Op::le, builder.apply(Op::sub, q, builder.param(left)), k);
  if (right != unbounded) {
    const std::uint16_t end = builder.apply(Op::le, k, builder.apply(Op::add, q, builder.param(right)));
    inside = builder.apply(Op::logical_and, inside, end);
  }
  return builder.finish_mask(inside);
}

Mask operator&(const Mask& a, const Mask& b) { return combined(Op::logical_and, a, b); }
Mask operator|(const Mask& a, const Mask& b) { return combined(Op::logical_or, a, b); }
Mask operator!(const Mask& a) {
  Builder& builder = mods::scratch_builder();
  return builder.finish_mask(builder.apply(Op::logical_not, builder.import(a.graph())));
}

std::uint64_t hash(const Graph& graph) {
  std::uint64_t h = 0x9e3779b97f4a7c15u;
  const auto mix = [&](std::uint64_t x) {
    h = (h ^ x) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  };
  for (const Node& n : graph.nodes) {
    mix(static_cast<std::uint64_t>(n.op) | static_cast<std::uint64_t>(n.type) << 8 |
        static_cast<std::uint64_t>(n.slot) << 16 | static_cast<std::uint64_t>(n.arg_count) << 24);
    mix(static_cast<std::uint64_t>(n.arg[0]) | static_cast<std::uint64_t>(n.arg[1]) << 16 |
        static_cast<std::uint64_t>(n.arg[2]) << 32 | static_cast<std::uint64_t>(n.arg[3]) << 48);
    mix(static_cast<std::uint64_t>(n.value));
  }
  for (const Param& p : graph.params) mix(static_cast<std::uint64_t>(p.type)), mix(static_cast<std::uint64_t>(p.value));
  for (const Capture& c : graph.captures) {
    mix(static_cast<std::uint64_t>(c.type) | std::uint64_t{c.rank} << 8);
    for (const char letter : c.name) mix(static_cast<unsigned char>(letter));
  }
  return h;
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
