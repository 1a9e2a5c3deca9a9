// Building graphs: the one place where nodes are added, typed, folded and shared.
// Must not know: tiles, tensors, backends.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/expr.hpp"

namespace tessera::mods {

// Name, arity and text form of an operation: the table that the printer, the parser and the verifier share.
struct OpInfo {
  Op op;
  std::string_view name;  // "min", "k", or the infix symbol
  int arity;
  int precedence;  // of the infix form; 0: written as a call or a leaf
};
const OpInfo& info(Op op);
const OpInfo* find_call(std::string_view name);  // ops written as calls, by name; nullptr if none

// Appends nodes in evaluation order; equal nodes are shared, constants folded, types checked.
class Builder {
 public:
  std::uint16_t constant(bool value);
  std::uint16_t constant(std::int64_t value);
  std::uint16_t constant(double value);
  std::uint16_t param(std::int64_t value);  // each call makes a new slot
  std::uint16_t param(double value);
  std::uint16_t leaf(Op op);  // batch, head, query, key, score
  // Throws Error(invalid_mod) naming the operation and the types when they do not fit.
  std::uint16_t apply(Op op, std::uint16_t a);
  std::uint16_t apply(Op op, std::uint16_t a, std::uint16_t b);
  std::uint16_t apply(Op op, std::uint16_t a, std::uint16_t b, std::uint16_t c);
  // Copies another graph in; its parameters get slots after those that are here. Returns its result.
  std::uint16_t import(const Graph& graph);

  Type type(std::uint16_t node) const { return nodes_[node].type; }
  // The graph whose result is `root`: unused nodes dropped, canonical order. A constant-true boolean: no nodes.
  Graph finish(std::uint16_t root);
  void clear();

  static constexpr std::size_t max_nodes = 4096, max_params = 255;

 private:
  static constexpr std::uint16_t unused = 0xffff, used = 0xfffe;
  std::uint16_t add(const Node& node);
  std::uint16_t param(const Param& param);
  std::uint16_t apply(Op op, std::array<std::uint16_t, 3> arg);
  std::optional<Node> fold(const Node& node) const;
  std::vector<Node> nodes_, kept_;
  std::vector<Param> params_, kept_params_;
  std::vector<std::uint16_t> import_map_, order_;
};
// The calling thread's own, emptied: its vectors keep their capacity, so that combining known masks allocates nothing.
Builder& scratch_builder();

// Where a graph is evaluated: the five coordinates.
struct Point {
  std::int64_t b = 0, h = 0, q = 0, k = 0;
  double s = 0;
};
// The plain interpreter: the reference for everything that evaluates faster. The graph has at least one node.
struct Value;  // arithmetic.hpp
Value evaluate(const Graph& graph, const Point& point);
// The graph of a mask; no nodes: true.
bool evaluate_mask(const Graph& graph, const Point& point);

// Structural check of a graph that came from outside (hand-made or parsed): throws Error(invalid_mod).
void verify(const Graph& graph);
// The same, and the result is a boolean over (b, h, q, k) alone. Allocates nothing for what a builder made.
void verify_mask(const Graph& graph);

}  // namespace tessera::mods
