// A graph made ready to be evaluated over tiles of (query, key) pairs: what does not depend on the pair is hoisted out
// of the tile into slots (values along the rows, along the keys, along the distance q - k), the rest is a list of steps
// over vectors of 32-bit floats. Must not know: tiles, instruction sets, attention.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "mods/graph.hpp"

namespace tessera::mods {

// On what a value depends, within one item of work: on nothing that varies, on the row (query and head), on the key, on
// the distance q - k alone, or on more than one of them.
enum class Axis : std::uint8_t { uniform, row, key, distance, pair };

// A sub-expression that is evaluated outside of the steps, by evaluate_line(). Axis::pair: one that no step can do (an
// integer operation that floats do not hold), or that several heads in one item keep from being a line; slow, never
// wrong.
struct Slot {
  // A load whose indices each depend on the row or on the key alone, as bias[q][k]: its address is a sum of two.
  struct Index {
    Axis axis{};
    Graph graph;
    bool operator==(const Index&) const = default;
  };
  Axis axis{};
  Graph graph;                   // with the parameters and captures of the whole
  std::vector<Index> indices{};  // of such a load, else empty
  std::uint8_t capture = 0;
  // Axis::pair only because an item holds several heads: each of them has a line of values along `within`.
  bool by_rows = false;
  Axis within{};
  bool operator==(const Slot&) const = default;
};

struct Operand {
  enum class Kind : std::uint8_t { slot, step, score, number } kind = Kind::number;
  std::uint16_t index = 0;  // of a slot, or the buffer of a step
  float number = 0;
  bool operator==(const Operand&) const = default;
};

// One operation on floats: reals, booleans as 0 and 1, integers that are small enough to be exact.
struct Step {
  Op op{};
  Operand arg[3];            // no std::array: read in code of one instruction set (cpu/forward.hpp)
  std::uint16_t buffer = 0;  // where the result goes
  bool operator==(const Step&) const = default;
};

struct Program {
  // Integer slots that steps calculate with must stay within this, so that no sum of a few leaves what a float holds
  // exactly. Where one does not, the wide program stands in.
  static constexpr std::int64_t exact = 1 << 22;

  std::vector<Slot> slots;
  std::vector<Step> steps;
  Operand result;
  int buffers = 0;
  // One if some step reads an integer, else none: the same with every operation on integers in slots (of pairs, slow).
  // Where the integers are small it has the same bits, so that how blocks are cut, and with them which of the two
  // programs sees a pair, changes nothing.
  std::vector<Program> wide;
  bool operator==(const Program&) const = default;
};

// `one_head`: all rows of an item belong to one head, and neighbouring rows are neighbouring queries.
// graph: not empty, its result a real or a boolean.
Program compile(const Graph& graph, bool one_head);

// Coordinates of `count` points: each an array, or null where all have that of `at`.
struct Line {
  Point at;
  const std::int64_t *h = nullptr, *q = nullptr, *k = nullptr;
  const float* s = nullptr;
};
// The graph at each point of the line, as floats; booleans as 0 and 1. Returns whether every integer was at most
// Program::exact in size (always true for other types).
bool evaluate_line(const Graph& graph, const Line& line, std::int64_t count, std::span<const Table> tables, float* out);
// The same for a graph of integers, exactly.
void evaluate_line(const Graph& graph, const Line& line, std::int64_t count, std::span<const Table> tables,
                   std::int64_t* out);

}  // namespace tessera::mods
