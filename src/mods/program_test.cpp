// Compiled programs against the interpreter. The slots of a tile are filled as the CPU fills them and the steps run in
// doubles: then a program is right when it equals the interpreter bit for bit, whatever the operations amplify.
#include "mods/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "mods/arithmetic.hpp"
#include "mods/testing/random_program.hpp"

namespace tessera {
namespace {

using mods::Axis;
using mods::Operand;
using mods::Point;
using mods::Table;
using tests::Choices;

// -0 and 0 differ, any NaN is any NaN.
bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}
Type type_of(const Graph& graph) { return graph.nodes[graph.nodes.size() - 1].type; }
double value(const Graph& graph, const Point& at, std::span<const Table> tables) {
  const mods::Value v = mods::evaluate(graph, at, tables);
  return type_of(graph) == Type::real ? v.r : static_cast<double>(v.i);
}

// Rows are queries of neighbouring positions, head by head; keys lie side by side.
struct Tile {
  std::int64_t batch, first_head, q_position, queries, heads, first_key, keys;
  std::int64_t rows() const { return queries * heads; }
  std::int64_t h(std::int64_t row) const { return first_head + row / queries; }
  std::int64_t q(std::int64_t row) const { return q_position + row % queries; }
  std::int64_t k(std::int64_t key) const { return first_key + key; }
};

using Values = std::vector<double>;  // of pairs: [row][key]

// The values of one slot, as many as its axis has.
struct Filled {
  Axis axis;
  Values values;
  double at(const Tile& t, std::int64_t row, std::int64_t key) const {
    const std::int64_t i = axis == Axis::uniform    ? 0
                           : axis == Axis::row      ? row
                           : axis == Axis::key      ? key
                           : axis == Axis::distance ? row + t.keys - 1 - key
                                                    : row * t.keys + key;
    return values[static_cast<std::size_t>(i)];
  }
};

// By the interpreter, the coordinates that the axis does not have poisoned: a slot that reads them is a wrong slot.
Filled interpreted(const mods::Slot& slot, const Tile& t, const Values& scores, std::span<const Table> tables) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  Filled filled{slot.axis, {}};
  Point at{.b = t.batch, .h = t.first_head, .q = 777'777, .k = -555'555, .s = nan};
  const auto add = [&] { filled.values.push_back(value(slot.graph, at, tables)); };
  if (slot.axis == Axis::uniform) add();
  for (std::int64_t row = 0; slot.axis == Axis::row && row < t.rows(); ++row) at.h = t.h(row), at.q = t.q(row), add();
  for (std::int64_t key = 0; slot.axis == Axis::key && key < t.keys; ++key) at.k = t.k(key), add();
  for (std::int64_t i = 0; slot.axis == Axis::distance && i < t.rows() + t.keys - 1; ++i)
    at.q = t.q_position + i, at.k = t.k(t.keys - 1), add();
  for (std::int64_t row = 0; slot.axis == Axis::pair && row < t.rows(); ++row)
    for (std::int64_t key = 0; key < t.keys; ++key) {
      at.h = t.h(row), at.q = t.q(row), at.k = t.k(key), at.s = scores[static_cast<std::size_t>(row * t.keys + key)];
      add();
    }
  return filled;
}

// The coordinates of a tile, as lines have them.
struct Coordinates {
  std::vector<std::int64_t> h, q, k, from_last_key;
  explicit Coordinates(const Tile& t) {
    for (std::int64_t row = 0; row < t.rows(); ++row) h.push_back(t.h(row)), q.push_back(t.q(row));
    for (std::int64_t key = 0; key < t.keys; ++key) k.push_back(t.k(key));
    for (std::int64_t i = 0; i < t.rows() + t.keys - 1; ++i) from_last_key.push_back(t.q_position + i);
  }
};

// The element of a gathering slot, by its addresses: each index clamped, times its stride, all added.
double gathered(const mods::Slot& slot, const Tile& t, std::int64_t row, std::int64_t key,
                std::span<const Table> tables) {
  const Table& table = tables[slot.capture];
  std::int64_t place = 0;
  for (std::size_t axis = 0; axis < slot.indices.size(); ++axis) {
    mods::Line line{{.b = t.batch, .h = t.first_head}};
    const std::int64_t h = t.h(row), q = t.q(row), k = t.k(key);
    if (slot.indices[axis].axis == Axis::row) line.h = &h, line.q = &q;
    if (slot.indices[axis].axis == Axis::key) line.k = &k;
    std::int64_t index = 0;
    mods::evaluate_line(slot.indices[axis].graph, line, 1, tables, &index);
    place += std::clamp<std::int64_t>(index, 0, table.extent[axis] - 1) * table.stride[axis];
  }
  Table single = table;
  single.extent = {1, 1, 1, 1};
  single.data = static_cast<const std::byte*>(table.data) + place * size_bytes(table.dtype);
  const std::int64_t zeros[Capture::max_rank] = {};
  const mods::Value v = mods::element(single, static_cast<int>(slot.indices.size()), zeros);
  return type_of(slot.graph) == Type::real ? v.r : static_cast<double>(v.i);
}

// By evaluate_line(), as floats, the way that the CPU backend calls it. `exact`: cleared where integers are too large.
Filled by_lines(const mods::Slot& slot, const Tile& t, const Values& scores, std::span<const Table> tables,
                bool& exact) {
  const Coordinates c(t);
  const Point origin{.b = t.batch, .h = t.first_head, .q = t.q_position};
  std::vector<float> out(static_cast<std::size_t>(t.rows() * t.keys + t.rows() + t.keys));
  std::int64_t count = 1;
  const auto evaluate = [&](const mods::Line& line) {
    return mods::evaluate_line(slot.graph, line, count, tables, out.data());
  };
  if (slot.axis == Axis::uniform) exact &= evaluate({origin});
  if (slot.axis == Axis::row) count = t.rows(), exact &= evaluate({origin, c.h.data(), c.q.data()});
  if (slot.axis == Axis::key) count = t.keys, exact &= evaluate({origin, nullptr, nullptr, c.k.data()});
  if (slot.axis == Axis::distance) {
    Point last = origin;
    last.k = t.k(t.keys - 1), count = t.rows() + t.keys - 1;
    exact &= evaluate({last, nullptr, c.from_last_key.data()});
  }
  if (slot.axis == Axis::pair) {
    count = t.rows() * t.keys;
    for (std::int64_t row = 0; row < t.rows(); ++row) {
      mods::Line line{origin, nullptr, nullptr, c.k.data()};
      line.at.h = t.h(row), line.at.q = t.q(row);
      std::vector<float> s;
      for (std::int64_t key = 0; key < t.keys; ++key)
        s.push_back(static_cast<float>(scores[static_cast<std::size_t>(row * t.keys + key)]));
      line.s = s.data();
      exact &= mods::evaluate_line(slot.graph, line, t.keys, tables, out.data() + row * t.keys);
    }
  }
  return {slot.axis, Values(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count))};
}

// One step on numbers: booleans are 0 and 1, integers are whole. T: what the steps calculate in.
template <class T>
T stepped(Op op, T a, T b, T c) {
  const mods::Value x{0, static_cast<double>(a)}, y{0, static_cast<double>(b)};
  if (op == Op::logical_and) return a * b;
  if (op == Op::logical_or) return std::max(a, b);
  if (op == Op::logical_not) return 1 - a;
  if (op == Op::select) return a == 1 ? b : c;
  if (op == Op::to_real) return a;
  const mods::Value v = mods::compute(op, Type::real, x, y, y);
  return op >= Op::lt && op <= Op::ne ? static_cast<T>(v.i) : static_cast<T>(v.r);
}

template <class T>
T run(const mods::Program& program, const std::vector<Filled>& slots, const Tile& t, std::int64_t row, std::int64_t key,
      double score) {
  std::vector<T> buffers(static_cast<std::size_t>(program.buffers), std::numeric_limits<T>::quiet_NaN());
  const auto read = [&](const Operand& operand) {
    switch (operand.kind) {
      case Operand::Kind::slot:
        return static_cast<T>(slots.at(operand.index).at(t, row, key));
      case Operand::Kind::step:
        return buffers.at(operand.index);
      case Operand::Kind::score:
        return static_cast<T>(score);
      case Operand::Kind::number:
        break;
    }
    return static_cast<T>(operand.number);
  };
  for (const mods::Step& step : program.steps)
    buffers.at(step.buffer) = stepped(step.op, read(step.arg[0]), read(step.arg[1]), read(step.arg[2]));
  return read(program.result);
}

Tile random_tile(Choices& choices, bool one_head) {
  static constexpr std::int64_t positions[] = {
      0, 3, -4, 1000, std::int64_t{1} << 21, std::int64_t{1} << 33, mods::farthest - 20};
  Tile t{};
  t.batch = choices.pick(4), t.first_head = choices.pick(5);
  t.heads = one_head ? 1 : 1 + choices.pick(3), t.queries = 1 + choices.pick(5), t.keys = 1 + choices.pick(6);
  t.q_position = choices.of(positions), t.first_key = choices.pick(3) == 0 ? choices.of(positions) : choices.pick(9);
  return t;
}
Values random_scores(Choices& choices, const Tile& t) {
  static constexpr double scores[] = {0.5, 0, -0.0, 1.5, -2.25, 80, -80, 1e30, -1e30};
  Values all;
  for (std::int64_t i = 0; i < t.rows() * t.keys; ++i) all.push_back(static_cast<double>(choices.of(scores)));
  for (double& s : all) s = static_cast<double>(static_cast<float>(s));
  return all;
}
// Steps hold constants as floats: where constants are floats, nothing is rounded.
Graph with_float_constants(Graph graph) {
  std::vector<Node> nodes(graph.nodes.begin(), graph.nodes.end());
  for (Node& node : nodes)
    if (node.op == Op::constant && node.type == Type::real)
      node.value =
          std::bit_cast<std::int64_t>(static_cast<double>(static_cast<float>(std::bit_cast<double>(node.value))));
  graph.nodes = decltype(graph.nodes)(nodes);
  return graph;
}

// A float has a zero that an integer has not: what divides by such a step, or takes its root, is not compared.
bool steps_may_negate_integers(const Graph& graph, const mods::Program& program) {
  const auto negates = [](const auto& x) { return x.op == Op::neg; };
  const auto negates_integers = [&](const Node& node) { return negates(node) && node.type == Type::integer; };
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), negates_integers) &&
         std::any_of(program.steps.begin(), program.steps.end(), negates);
}

struct Seen {
  std::map<Axis, int> slots;
  std::array<int, mods::op_count> steps{};
  int gathers = 0, exact = 0, too_large = 0, reused = 0, both = 0;
};

void check_program(const Graph& graph, bool one_head, const Tile& t, const Values& scores, Seen& seen) {
  const std::vector<Table> tables = tests::tables(graph);
  const mods::Program program = mods::compile(graph, one_head);
  if (steps_may_negate_integers(graph, program)) return;
  bool exact = true;
  std::vector<Filled> slots;
  for (const mods::Slot& slot : program.slots) {
    PROPERTY_HOLDS(one_head || slot.axis != Axis::distance);
    slots.push_back(interpreted(slot, t, scores, tables));
    const Filled lines = by_lines(slot, t, scores, tables, exact);
    PROPERTY_HOLDS(lines.values.size() == slots.back().values.size());
    for (std::size_t i = 0; i < lines.values.size(); ++i)
      PROPERTY_HOLDS(same(lines.values[i], static_cast<double>(static_cast<float>(slots.back().values[i]))));
    ++seen.slots[slot.axis];
    if (slot.indices.empty()) continue;
    PROPERTY_HOLDS(slot.axis == Axis::pair);
    ++seen.gathers;
    for (std::int64_t row = 0; row < t.rows(); ++row)
      for (std::int64_t key = 0; key < t.keys; ++key)
        PROPERTY_HOLDS(same(gathered(slot, t, row, key, tables), slots.back().at(t, row, key)));
  }
  for (const mods::Step& step : program.steps) ++seen.steps[static_cast<std::size_t>(step.op)];
  seen.reused += program.buffers < static_cast<int>(program.steps.size());
  ++(exact ? seen.exact : seen.too_large);
  PROPERTY_HOLDS(exact || program.wide.size() == 1);
  const mods::Program& wide = program.wide.empty() ? program : program.wide.front();
  std::vector<Filled> wide_slots, floats, wide_floats;
  bool always = true;
  for (const mods::Slot& slot : program.slots) floats.push_back(by_lines(slot, t, scores, tables, exact));
  for (const mods::Slot& slot : wide.slots) {
    wide_slots.push_back(interpreted(slot, t, scores, tables));
    wide_floats.push_back(by_lines(slot, t, scores, tables, always));
  }
  PROPERTY_HOLDS(always || &wide == &program);
  seen.both += exact && &wide != &program;
  for (std::int64_t row = 0; row < t.rows(); ++row)
    for (std::int64_t key = 0; key < t.keys; ++key) {
      const double s = scores[static_cast<std::size_t>(row * t.keys + key)];
      const Point at{.b = t.batch, .h = t.h(row), .q = t.q(row), .k = t.k(key), .s = s};
      const double expected = value(graph, at, tables);
      const auto check = [&](double got) {
        if (!same(got, expected))
          PROPERTY_FAILS("got " + std::to_string(got) + ", expected " + std::to_string(expected) + " at row " +
                         std::to_string(row) + ", key " + std::to_string(key));
      };
      check(run<double>(wide, wide_slots, t, row, key, s));
      if (!exact) continue;
      check(run<double>(program, slots, t, row, key, s));
      PROPERTY_HOLDS(same(static_cast<double>(run<float>(program, floats, t, row, key, s)),
                          static_cast<double>(run<float>(wide, wide_floats, t, row, key, s))));
    }
}

TEST(Program, EqualsTheInterpreterOverATile) {
  Seen seen;
  tests::check_property("programs", 12000, [&](Choices& choices) {
    const bool one_head = choices.pick(2) == 0;
    const Tile t = random_tile(choices, one_head);
    const Values scores = random_scores(choices, t);
    const tests::Program made = tests::random_program(choices, 30);
    mods::Builder builder;
    for (std::uint16_t root : tests::build(builder, made)) {
      if (builder.type(root) == Type::integer) root = builder.apply(Op::to_real, root);
      Graph graph;
      try {
        graph = builder.finish(root);
      } catch (const Error&) {
        continue;  // beyond the limits of a text: graph_test.cpp
      }
      if (!graph.nodes.empty()) check_program(with_float_constants(graph), one_head, t, scores, seen);
    }
  });
  for (const Axis axis : {Axis::uniform, Axis::row, Axis::key, Axis::distance, Axis::pair})
    EXPECT_GT(seen.slots[axis], 100) << "slots of axis " << static_cast<int>(axis);
  EXPECT_GT(seen.gathers, 20);
  EXPECT_GT(seen.exact, 1000);
  EXPECT_GT(seen.too_large, 100);
  EXPECT_GT(seen.both, 100);
  EXPECT_GT(seen.reused, 100);
  for (const Op op : {Op::add, Op::mul, Op::div, Op::min, Op::sign, Op::lt, Op::eq, Op::logical_and, Op::logical_not,
                      Op::select, Op::exp, Op::tanh, Op::pow, Op::to_real})
    EXPECT_GT(seen.steps[static_cast<std::size_t>(op)], 20) << mods::info(op).name;
}

// In floats: what an ordinary implementation has, within a few roundings.
TEST(Program, StepsInFloatsAreCloseToTheInterpreter) {
  const char* texts[] = {"20.0 * tanh(s / 20.0)",
                         "s + slope[h] * (k - q)",
                         "sigmoid(s) * 6.0 + 0.01 * min(q, 50)",
                         "s * exp(-0.01 * abs(q - k)) + table[h][k]",
                         "where(ids:int[q] == ids:int[k], s, s - 4.0)",
                         "where((q + k) % 3 == 0, s, s - 1.5) + table[q][k]",
                         "max(s, 0.0) + log(1.0 + exp(-abs(s))) + erf(0.1 * s) + pow(1.0 + abs(s), 0.5)",
                         "s - 0.002 * real(q - k) * real(q - k) + sqrt(abs(s))"};
  for (const char* text : texts)
    for (const bool one_head : {true, false}) {
      const Graph graph = parse_score(text).graph();
      const std::vector<Table> tables = tests::tables(graph);
      const mods::Program program = mods::compile(graph, one_head);
      const Tile t{1, 1, 37, 5, one_head ? 1 : 3, 30, 16};
      Values scores;
      for (std::int64_t i = 0; i < t.rows() * t.keys; ++i)
        scores.push_back(static_cast<double>(static_cast<float>(0.37 * static_cast<double>(i % 83 - 41))));
      bool exact = true;
      std::vector<Filled> slots;
      for (const mods::Slot& slot : program.slots) slots.push_back(by_lines(slot, t, scores, tables, exact));
      EXPECT_TRUE(exact) << text;
      for (std::int64_t row = 0; row < t.rows(); ++row)
        for (std::int64_t key = 0; key < t.keys; ++key) {
          const double s = scores[static_cast<std::size_t>(row * t.keys + key)];
          const double expected =
              value(graph, {.b = t.batch, .h = t.h(row), .q = t.q(row), .k = t.k(key), .s = s}, tables);
          EXPECT_NEAR(static_cast<double>(run<float>(program, slots, t, row, key, s)), expected,
                      4e-6 * std::max(1.0, std::abs(expected)))
              << text << " at row " << row << ", key " << key;
        }
    }
}

// ------------------------------------------------------------------------------------------------- what becomes a slot
std::string shape_of(const mods::Program& program) {
  const auto letter = [](Axis axis) { return std::string(1, "urkdp"[static_cast<std::size_t>(axis)]); };
  std::string text;
  for (const mods::Slot& slot : program.slots) {
    text += text.empty() ? "" : " ";
    text += letter(slot.axis);
    for (const auto& index : slot.indices) text += "[" + letter(index.axis) + "]";
  }
  return text + ", " + std::to_string(program.steps.size()) + " steps";
}
std::string wide_shape(const char* text) {
  const mods::Program program = mods::compile(parse_score(text).graph(), true);
  return program.wide.empty() ? "none" : shape_of(program.wide.front());
}
std::string mask_shape(const char* text, bool one_head) {
  return shape_of(mods::compile(parse_mask(text).graph(), one_head));
}
std::string score_shape(const char* text, bool one_head) {
  return shape_of(mods::compile(parse_score(text).graph(), one_head));
}

TEST(Program, KnowsOnWhatAPartDepends) {
  // u, r, k, d, p: uniform, along the rows, the keys, the distance, of each pair (with the axes of its indices).
  EXPECT_EQ(score_shape("s + real(q - k)", true), "d, 1 steps");
  EXPECT_EQ(score_shape("s + real(3 + 2 * b - k + q)", true), "k r, 3 steps") << "a product is not followed";
  EXPECT_EQ(score_shape("s + real((q + 5) - (k - h))", true), "d, 1 steps");
  EXPECT_EQ(score_shape("s + real(q + k)", true), "r k, 3 steps");
  EXPECT_EQ(score_shape("s + real(abs(q - k) + k)", true), "d k, 3 steps");
  EXPECT_EQ(score_shape("softcap(30.0)", true), "u, 3 steps");
  EXPECT_EQ(score_shape("alibi(slope)", true), "d, 1 steps");
  EXPECT_EQ(score_shape("alibi(slope)", false), "p, 1 steps");
  EXPECT_EQ(score_shape("s + table[h][k - q]", true), "d, 1 steps");
  EXPECT_EQ(score_shape("s + table[h][k - q]", false), "p, 1 steps");
  EXPECT_EQ(score_shape("s + bias[q][k]", true), "p[r][k], 1 steps");
  EXPECT_EQ(score_shape("s + bias[q][k]", false), "p[r][k], 1 steps");
  EXPECT_EQ(score_shape("s + bias[b][h][q][k]", true), "p[u][u][r][k], 1 steps");
  EXPECT_EQ(score_shape("s + bias[b][h][q][k]", false), "p[u][r][r][k], 1 steps");
  EXPECT_EQ(score_shape("s + bias[q][k - q]", true), "p, 1 steps");
  EXPECT_EQ(score_shape("s + real(ids:int[q])", true), "r, 1 steps");
  EXPECT_EQ(score_shape("s + slope[h]", true), "u, 1 steps");
  EXPECT_EQ(score_shape("s + slope[h]", false), "r, 1 steps");
  EXPECT_EQ(score_shape("s + weight[k + h]", true), "k, 1 steps");
  EXPECT_EQ(score_shape("s + weight[k + h]", false), "p, 1 steps");
  EXPECT_EQ(mask_shape("causal", true), "d, 0 steps");
  EXPECT_EQ(mask_shape("causal", false), "p, 0 steps");
  EXPECT_EQ(mask_shape("causal & window(5, 3)", true), "d, 0 steps");
  EXPECT_EQ(mask_shape("k - 4611686018427387904 <= q - 4611686018427387904", true), "k r, 1 steps");
  EXPECT_EQ(mask_shape("documents(ids)", true), "r k, 1 steps");
  EXPECT_EQ(mask_shape("documents(ids)", false), "r k, 1 steps");
  EXPECT_EQ(mask_shape("chunked(16) & causal", true), "r k d, 2 steps");
  EXPECT_EQ(mask_shape("dilated(3)", true), "d, 0 steps");
  EXPECT_EQ(mask_shape("(q * k) % 7 < 4", true), "p, 0 steps");
  EXPECT_EQ(mask_shape("mask_tensor(seen)", true), "p[r][k], 0 steps");
  EXPECT_EQ(mask_shape("block_sparse(layout, 16, 32)", true), "p[r][k], 0 steps");
  EXPECT_EQ(mask_shape("block_sparse(layout, 16, 32)", false), "p[r][k], 0 steps");
}

TEST(Program, TheWideOneKeepsIntegersInSlots) {
  EXPECT_EQ(wide_shape("s + real(q - k)"), "none") << "a real along the distance is a slot as it is";
  EXPECT_EQ(wide_shape("s + real(abs(q - k) + k)"), "p, 1 steps");
  EXPECT_EQ(wide_shape("where(ids:int[q] == ids:int[k], s, tanh(s))"), "p, 2 steps");
  EXPECT_EQ(wide_shape("s * exp(0.1 * real(min(q, 2 * k)))"), "p, 3 steps");
}

TEST(Program, AMaskComparesRealsInSlots) {
  EXPECT_EQ(mask_shape("slope[h] * real(q - k) < 3.0", true), "d, 0 steps");
  EXPECT_EQ(mask_shape("(weight[q] < weight[k]) & (k <= q)", true), "p d, 1 steps");
  EXPECT_EQ(score_shape("where(weight[q] < weight[k], s, 0.0)", true), "r k, 2 steps");
}

TEST(Program, PlacesOfAnAddressAreOfTheirTable) {
  const mods::Program program = mods::compile(parse_score("weight[k] * s + bias[q][k]").graph(), true);
  ASSERT_EQ(program.slots.size(), 2u);
  for (const mods::Slot& slot : program.slots) {
    const Capture& capture = slot.graph.captures[slot.capture];
    EXPECT_EQ(mods::name(capture), slot.indices.empty() ? "weight" : "bias");
  }
}

TEST(Program, BuffersAreUsedAgain) {
  const auto compiled = [](const char* text) { return mods::compile(parse_score(text).graph(), true); };
  const mods::Program chain = compiled("tanh(sigmoid(exp(sqrt(abs(s)))))");
  EXPECT_EQ(chain.steps.size(), 5u);
  EXPECT_EQ(chain.buffers, 1) << "each step writes where it reads";
  const mods::Program sum = compiled("tanh(s) + exp(s) + sqrt(s) + sigmoid(s) + erf(s)");
  EXPECT_EQ(sum.steps.size(), 9u);
  EXPECT_EQ(sum.buffers, 2);
  const mods::Program square = compiled("tanh(s) * tanh(s) + exp(s)");
  EXPECT_EQ(square.steps.size(), 4u);
  EXPECT_EQ(square.buffers, 2) << "a step that reads one buffer twice frees it once";
  const mods::Program late = compiled("(exp(s) + 1.0) * sqrt(s) + exp(s)");  // exp(s) is kept to the end
  EXPECT_EQ(late.steps.size(), 5u);
  EXPECT_EQ(late.buffers, 3);
  EXPECT_EQ(compiled("slope[h]").buffers, 0);
}

// --------------------------------------------------------------------------------------------------------------- lines
TEST(EvaluateLine, IsTheInterpreterAtEachPoint) {
  std::array<int, 3> seen{};
  int large = 0;
  tests::check_property("lines", 2000, [&](Choices& choices) {
    static constexpr std::int64_t positions[] = {
        0, 1, 5, -3, 1000, mods::farthest, -mods::farthest, std::numeric_limits<std::int64_t>::max()};
    static constexpr std::int64_t counts[] = {1, 2, 63, 64, 65, 127, 128, 129, 200};
    const Point at{.b = choices.of(positions),
                   .h = choices.pick(5),
                   .q = choices.of(positions),
                   .k = choices.of(positions),
                   .s = 0.25};
    const std::int64_t count = choices.of(counts);
    const bool some_h = choices.pick(2), some_q = choices.pick(2), some_k = choices.pick(2), some_s = choices.pick(2);
    std::vector<std::int64_t> h, q, k;
    std::vector<float> s;
    for (std::int64_t i = 0; i < count; ++i) {  // no two points alike
      h.push_back(i % 7), q.push_back(3 * i - 50), k.push_back(i % 2 ? i * i : -i);
      s.push_back(0.125f * static_cast<float>(i - 60));
    }
    const mods::Line line{at, some_h ? h.data() : nullptr, some_q ? q.data() : nullptr, some_k ? k.data() : nullptr,
                          some_s ? s.data() : nullptr};
    mods::Builder builder;
    const auto nodes = tests::build(builder, tests::random_program(choices, 30));
    for (std::size_t n = nodes.size() > 4 ? nodes.size() - 4 : 0; n < nodes.size(); ++n) {
      Graph graph;
      try {
        graph = builder.finish(nodes[n]);
      } catch (const Error&) {
        continue;
      }
      if (graph.nodes.empty()) continue;
      const auto tables = tests::tables(graph);
      std::vector<float> floats(static_cast<std::size_t>(count) + 1, -7.0f);
      std::vector<std::int64_t> integers(static_cast<std::size_t>(count) + 1, -7);
      const bool exact = mods::evaluate_line(graph, line, count, tables, floats.data());
      if (type_of(graph) == Type::integer) mods::evaluate_line(graph, line, count, tables, integers.data());
      bool small = true;
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        Point point = at;
        if (some_h) point.h = h[i];
        if (some_q) point.q = q[i];
        if (some_k) point.k = k[i];
        if (some_s) point.s = static_cast<double>(s[i]);
        const mods::Value expected = mods::evaluate(graph, point, tables);
        if (type_of(graph) == Type::integer) {
          PROPERTY_HOLDS(integers[i] == expected.i);
          small = small && expected.i >= -mods::Program::exact && expected.i <= mods::Program::exact;
        }
        const float as_float =
            type_of(graph) == Type::real ? static_cast<float>(expected.r) : static_cast<float>(expected.i);
        PROPERTY_HOLDS(same(static_cast<double>(floats[i]), static_cast<double>(as_float)));
      }
      PROPERTY_HOLDS(exact == small);
      PROPERTY_HOLDS(floats.back() == -7.0f && integers.back() == -7);
      ++seen[static_cast<std::size_t>(type_of(graph))], large += !small;
    }
  });
  for (const int graphs : seen) EXPECT_GT(graphs, 300);
  EXPECT_GT(large, 50);
}

TEST(EvaluateLine, IntegersAreExactUpToTheLimit) {
  const Graph q = mods::parse("q");
  float out = 0;
  for (const std::int64_t sign : {1, -1}) {
    EXPECT_TRUE(mods::evaluate_line(q, {{.q = sign * mods::Program::exact}}, 1, {}, &out));
    EXPECT_EQ(out, static_cast<float>(sign * mods::Program::exact));
    EXPECT_FALSE(mods::evaluate_line(q, {{.q = sign * (mods::Program::exact + 1)}}, 1, {}, &out));
  }
}

}  // namespace
}  // namespace tessera
