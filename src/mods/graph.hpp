// Building graphs: the one place where nodes are added, typed, folded and shared.
// Must not know: tiles, tensors, backends.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/mods.hpp"
#include "tessera/tensor.hpp"

namespace tessera::mods {

// Name, arity and text form of an operation: the table that the printer, the parser and the verifier share.
struct OpInfo {
  Op op;
  std::string_view name;  // "min", "k", or the infix symbol
  int arity;
  int precedence;  // of the infix or prefix form, tighter is higher; 0: written as a call or a leaf
};
inline constexpr std::size_t op_count = static_cast<std::size_t>(Op::upper_bound) + 1;
inline constexpr int comparison_precedence = 3;
const OpInfo& info(Op op);
// Whether an operation reads a captured tensor: its slot names one, and it has as many arguments as that has axes.
constexpr bool reads_capture(Op op) { return op == Op::load || op == Op::upper_bound; }
const OpInfo* find_call(std::string_view name);  // ops written as calls, by name; nullptr if none

// Limits of a finished graph. The text form repeats what the graph shares, and the parser recurses: with both bounded,
// whatever is printed can be read back.
inline constexpr int max_depth = 500;                // operations on the way from the result to a leaf
inline constexpr std::size_t max_written = 1 << 15;  // operations and leaves of the text
// Positions of queries and keys lie in [-farthest, farthest]: more tokens than memory could hold, and yet small
// multiples of positions and distances cannot saturate, so that masks of them can be analysed.
inline constexpr std::int64_t farthest = std::int64_t{1} << 48;

// Appends nodes in evaluation order; equal nodes are shared, constants folded, types checked.
class Builder {
 public:
  std::uint16_t constant(bool value);
  std::uint16_t constant(std::int64_t value);
  std::uint16_t constant(double value);
  std::uint16_t param(std::int64_t value);  // each call makes a new slot
  std::uint16_t param(double value);
  std::uint16_t same_param(std::size_t slot);  // one that is there already: slot < param_count()
  std::size_t param_count() const { return params_.size(); }
  std::uint16_t leaf(Op op);  // batch, head, query, key, score
  // Integers beside reals are converted. Throws Error(invalid_mod) naming the operation and the types if they do not
  // fit.
  std::uint16_t apply(Op op, std::uint16_t a);
  std::uint16_t apply(Op op, std::uint16_t a, std::uint16_t b);
  std::uint16_t apply(Op op, std::uint16_t a, std::uint16_t b, std::uint16_t c);
  // The slot of a captured tensor: one name is one tensor. Throws Error(invalid_mod) for a name that cannot be one, a
  // rank outside [1, max_rank], and a name that is here with another type or rank.
  std::uint8_t capture(std::string_view tensor, Type type, int rank);
  std::uint8_t capture(const Capture& capture);
  const Capture* find_capture(std::string_view tensor) const;  // nullptr: none of this name
  std::span<const Capture> captures() const { return captures_; }
  // An element of it: as many integers as it has axes.
  std::uint16_t load(std::uint8_t slot, std::span<const std::uint16_t> index);
  // The search for a number along its last axis: an integer for each axis before, then the number.
  std::uint16_t upper_bound(std::uint8_t slot, std::span<const std::uint16_t> argument);
  // Copies another (valid) graph in; its parameters get slots after those that are here, its captures those of the same
  // name. Where it names the score, `score` stands (left out: the score itself). Returns its result.
  std::uint16_t import(const Graph& graph, std::optional<std::uint16_t> score = {});
  // The node of each node of the graph that was imported last; until the next import() or finish().
  std::span<const std::uint16_t> imported() const { return place_; }

  Type type(std::uint16_t node) const { return nodes_[node].type; }
  // The graph whose result is `root`: unused nodes dropped, canonical order. A constant-true boolean: no nodes.
  // Throws Error(invalid_mod) beyond max_depth and max_written. (In a score change it is the score that has no nodes.)
  Graph finish(std::uint16_t root);
  Mask finish_mask(std::uint16_t root);       // root: a boolean without the score
  ScoreMod finish_score(std::uint16_t root);  // root: a number; an integer becomes a real
  void clear();

  static constexpr std::size_t max_nodes = 4096, max_params = 255, max_captures = 32;

 private:
  void finish_into(Graph& graph, std::uint16_t root);
  std::uint16_t add(const Node& node);
  std::uint16_t add_param(Param param);
  std::uint16_t read(Op op, std::uint8_t slot, std::span<const std::uint16_t> argument);
  std::uint16_t apply(Op op, std::array<std::uint16_t, 4> arg);
  std::optional<Node> fold(const Node& node) const;
  std::optional<std::uint16_t> simplified(const Node& node) const;

  std::vector<Node> nodes_;
  std::vector<Param> params_;
  std::vector<Capture> captures_;
  std::vector<std::uint16_t> index_;  // of many nodes: an open hash table, so that sharing stays linear
  // Scratch of import() and finish(), kept for its capacity.
  std::vector<Node> kept_;
  std::vector<Param> kept_params_;
  std::vector<Capture> kept_captures_;
  std::vector<std::uint16_t> place_;
  std::vector<std::uint32_t> path_;
  struct Extent {
    int depth = 0;
    std::size_t written = 0;
  };
  std::vector<Extent> extents_;
};
// The calling thread's own, emptied: its vectors keep their capacity, so that combining known masks allocates nothing.
Builder& scratch_builder();

// Where a graph is evaluated: the five coordinates.
struct Point {
  std::int64_t b = 0, h = 0, q = 0, k = 0;
  double s = 0;
};
// What a capture is bound to. An index outside [0, extent) is clamped. Without data, or without elements: all zeros.
struct Table {
  const void* data = nullptr;
  DType dtype = DType::none;
  std::array<std::int64_t, Capture::max_rank> extent{}, stride{};  // stride: elements
};
// The plain interpreter: the reference for everything that evaluates faster. The graph has at least one node; `tables`
// are bound to its captures, in order.
struct Value;  // arithmetic.hpp
Value element(const Table& table, int rank, const std::int64_t* index);
// upper_bound() of arithmetic.hpp along the last axis of a table of integers: the last of `argument` is the number that
// is looked for, those before are indices. Without data, or without elements: 0.
std::int64_t upper_bound(const Table& table, int rank, const std::int64_t* argument);
Value evaluate(const Graph& graph, const Point& point, std::span<const Table> tables = {});
// What a score becomes; no nodes: itself.
double evaluate_score(const Graph& graph, const Point& point, std::span<const Table> tables = {});
// The graph of a mask; no nodes: true.
bool evaluate_mask(const Graph& graph, const Point& point, std::span<const Table> tables = {});

// For errors: a line with the text, or what of a long one is around the part [begin, end), and below it a line that
// points at the part. Each begins with a new line.
std::string pointing(std::string_view text, std::size_t begin, std::size_t end);
// At a node of a graph, where its text stands first; or at one of its arguments, counted from 0.
std::string pointing(const Graph& graph, std::size_t node, std::optional<std::size_t> argument = {});

// Reads any expression, of any type; parse_mask() is for masks. Throws Error(parse) that points at the offending part.
Graph parse(std::string_view text);

// The type of an operation's result for arguments of these types, and whether they fit as they stand: the rules that
// the builder and the verifier share. Throws Error(invalid_mod) naming the operation and the types.
Type result_type(Op op, const Type* argument);
std::string_view name(Type type);  // "a boolean", "an integer", "a real"

// Whether a word of the text form has a meaning that a captured tensor cannot take over.
bool is_reserved(std::string_view word);
// Throws Error(invalid_mod) for a name that cannot be one and a rank outside [1, max_rank].
Capture make_capture(std::string_view name, Type type, int rank);
std::string_view name(const Capture& capture);
std::string_view suffix(Type type);  // in the text form, after the name of a captured tensor: "", ":int", ":bool"
std::string shown(const Capture& capture);                              // "ids:int[.]"
void check_index(const Capture& capture, std::size_t axis, Type type);  // throws Error(invalid_mod) unless an integer
// The same of a search: of the tensor, which holds integers, and of an argument.
void check_search(const Capture& capture);
void check_search(const Capture& capture, std::size_t argument, Type type);

// Structural check of a graph that came from outside: throws Error(invalid_mod). Allocates nothing for a valid one.
void verify(const Graph& graph);
// The same, and the result is a boolean over (b, h, q, k) alone.
void verify_mask(const Graph& graph);
// The same, and the result is a number.
void verify_score(const Graph& graph);

}  // namespace tessera::mods
