// For tests only. Random programs over the whole table of operations, with their own meaning: what graphs, their text
// and the interpreter are compared with. Shares no arithmetic with src/mods.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "mods/graph.hpp"
#include "mods/testing/property.hpp"

namespace tessera::tests {

// One step: an operation on the results of earlier steps.
struct Step {
  Op op{};
  Type type{};         // of the result
  std::int64_t i = 0;  // of a constant or a parameter
  double r = 0;
  std::vector<int> arg;    // earlier steps
  std::size_t tensor = 0;  // of a load or a search: its place in tensors()
};
using Program = std::vector<Step>;

inline bool is_leaf(Op op) { return static_cast<int>(op) <= static_cast<int>(Op::score); }
Step random_constant(Choices& choices, Op op, Type type);

// The captured tensors of random programs: of every type, and from 1 to 4 axes, bound to tensors whose strides are not
// dense and whose elements follow from their indices. Those of "offsets" ascend along its last axis.
struct Captured {
  const char* name;
  DType dtype;
  std::array<std::int64_t, 4> extent;  // 0: no such axis
  Type type() const { return dtype == b8 ? Type::boolean : dtype < i32 ? Type::real : Type::integer; }
  std::size_t rank() const { return static_cast<std::size_t>(4 - std::count(extent.begin(), extent.end(), 0)); }
  // What stands at an index, exact in every type: before clamping.
  double at(std::array<std::int64_t, 4> index) const {
    for (std::size_t i = 0; i < rank(); ++i) index[i] = std::clamp<std::int64_t>(index[i], 0, extent[i] - 1);
    if (name == std::string_view("offsets")) return static_cast<double>(4 * index[1] * index[1] + index[0] - 6);
    const int mixed = static_cast<int>((7 * index[0] + 3 * index[1] + 5 * index[2] + 11 * index[3] + 4) % 16);
    return dtype == b8 ? mixed % 3 == 0 : dtype == u8 ? mixed : dtype < i32 ? 0.25 * (mixed - 8) : mixed - 5;
  }
};
const std::vector<Captured>& tensors();
// The tensors that a graph names, in its order.
std::vector<mods::Table> tables(const Graph& graph);

// A well-typed program of at most `most` steps; the last is the result.
Program random_program(Choices& choices, std::size_t most = 40);

// The node of each step.
std::vector<std::uint16_t> build(mods::Builder& builder, const Program& program);

// A search as docs/mods.md has it: the middle element tells in which half to go on.
std::int64_t searched(const std::vector<std::int64_t>& line, std::size_t first, std::size_t last, std::int64_t x);

// What a program means, in 128-bit integers that are cut to int64, and in doubles.
struct Meaning {
  std::int64_t i = 0;
  double r = 0;
};
std::vector<Meaning> meanings(const Program& program, const mods::Point& at);

}  // namespace tessera::tests
