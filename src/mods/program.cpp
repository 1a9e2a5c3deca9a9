// From a graph to slots and steps.
#include "mods/program.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace tessera::mods {
namespace {

enum : unsigned { on_query = 1, on_key = 2, on_distance = 4, on_score = 8 };

constexpr int not_exact = 1 << 20;

struct Known {
  unsigned depends = 0;
  bool sees_head = false;
  // Of an integer that is c + coef_q * q + coef_k * k with c the same everywhere.
  bool affine = false;
  std::int64_t coef_q = 0, coef_k = 0;
  // Of an integer that depends on the pair: how many times Program::exact it may reach.
  int growth = 1;
};

class Compiler {
 public:
  // wide: no step reads an integer.
  Compiler(const Graph& graph, bool one_head, bool wide)
      : graph_(graph),
        one_head_(one_head),
        wide_(wide),
        is_mask_(graph.nodes[graph.nodes.size() - 1].type == Type::boolean),
        known_(graph.nodes.size()) {}

  Program compile() {
    const std::size_t count = graph_.nodes.size();
    for (std::size_t i = 0; i < count; ++i) known_[i] = know(i);
    placed_.assign(count, {});
    is_placed_.assign(count, false);
    program_.result = place(count - 1);
    allocate();
    return std::move(program_);
  }

 private:
  const Node& node(std::size_t i) const { return graph_.nodes[i]; }
  std::size_t arg(std::size_t i, std::size_t a) const { return node(i).arg[a]; }

  Known know(std::size_t i) const {
    const Node& n = node(i);
    Known k;
    for (std::size_t a = 0; a < n.arg_count; ++a)
      k.depends |= known_[n.arg[a]].depends, k.sees_head |= known_[n.arg[a]].sees_head;
    switch (n.op) {
      case Op::constant:
        k.affine = n.type == Type::integer && far_from_the_ends(n.value);
        return k;
      case Op::param:
        k.affine = n.type == Type::integer && far_from_the_ends(graph_.params[n.slot].value);
        return k;
      case Op::batch:
        k.affine = true;
        return k;
      case Op::head:
        k.sees_head = true, k.affine = true;
        return k;
      case Op::query:
        k.depends = on_query, k.affine = true, k.coef_q = 1;
        return k;
      case Op::key:
        k.depends = on_key, k.affine = true, k.coef_k = 1;
        return k;
      case Op::score:
        k.depends = on_score;
        return k;
      default:
        break;
    }
    if (n.type == Type::integer) combine(n, k);
    const bool compares = n.op >= Op::lt && n.op <= Op::ne;
    if (compares && node(n.arg[0]).type == Type::integer) {
      const Known &a = known_[n.arg[0]], &b = known_[n.arg[1]];
      const std::int64_t q = a.coef_q - b.coef_q, key = a.coef_k - b.coef_k;
      if (a.affine && b.affine && q == -key) k.depends = q == 0 ? 0 : unsigned{on_distance};
    }
    if (axis_of(k.depends) != Axis::pair) k.growth = 1;
    return k;
  }
  // Sums of coordinates: q - k is the distance, and small ones stay exact.
  void combine(const Node& n, Known& k) const {
    const Known &a = known_[n.arg[0]], &b = known_[n.arg[n.arg_count > 1 ? 1 : 0]];
    const auto small = [](std::int64_t x) { return x > -1000 && x < 1000; };
    const int sign = n.op == Op::sub ? -1 : 1;
    k.growth = not_exact;
    switch (n.op) {
      case Op::add:
      case Op::sub:
        k.affine = a.affine && b.affine && small(a.coef_q) && small(a.coef_k) && small(b.coef_q) && small(b.coef_k);
        k.coef_q = a.coef_q + sign * b.coef_q, k.coef_k = a.coef_k + sign * b.coef_k;
        k.growth = std::min(not_exact, a.growth + b.growth);
        break;
      case Op::neg:
        k.affine = a.affine, k.coef_q = -a.coef_q, k.coef_k = -a.coef_k, k.growth = a.growth;
        break;
      case Op::abs:
        k.growth = a.growth;
        break;
      case Op::sign:
        k.growth = 1;
        break;
      case Op::min:
      case Op::max:
        k.growth = std::max(a.growth, b.growth);
        break;
      case Op::select:
        k.growth = std::max(known_[n.arg[1]].growth, known_[n.arg[2]].growth);
        break;
      default:
        break;
    }
    if (k.affine && k.coef_q == -k.coef_k) k.depends = k.coef_q == 0 ? 0 : unsigned{on_distance};
  }

  // Sums that saturate are no longer functions of the distance alone.
  static bool far_from_the_ends(std::int64_t x) {
    constexpr std::int64_t far = std::int64_t{1} << 60;
    return x > -far && x < far;
  }

  // By what a value varies within one head. What is a slot and what is a step must not depend on how heads and queries
  // are cut into items: slots and steps round differently.
  Axis axis(std::size_t i) const { return axis_of(known_[i].depends); }
  static Axis axis_of(unsigned depends) {
    switch (depends) {
      case 0:
        return Axis::uniform;
      case on_query:
        return Axis::row;
      case on_key:
        return Axis::key;
      case on_distance:
        return Axis::distance;
      default:
        return Axis::pair;
    }
  }
  // How a slot is filled: where an item holds several heads, its rows are not neighbouring queries.
  Axis filled_along(std::size_t i) const {
    const Axis within = axis(i);
    if (one_head_ || within == Axis::row || within == Axis::pair) return within;
    if (within == Axis::distance) return Axis::pair;
    if (!known_[i].sees_head) return within;
    return within == Axis::uniform ? Axis::row : Axis::pair;
  }

  // Whether a step can do this operation on floats.
  bool by_step(std::size_t i) const {
    const Node& n = node(i);
    if (reads_capture(n.op) || n.op == Op::floor_div || n.op == Op::mod) return false;
    constexpr int most = (1 << 24) / static_cast<int>(Program::exact);
    for (std::size_t a = 0; a < n.arg_count; ++a) {
      if (is_mask_ && node(n.arg[a]).type == Type::real) return false;
      if (node(n.arg[a]).type == Type::integer) {
        if (wide_) return false;
        const int growth = axis(n.arg[a]) == Axis::pair ? known_[n.arg[a]].growth : 1;
        if (growth > most || (axis(n.arg[a]) == Axis::pair && !by_step(n.arg[a]))) return false;
      }
    }
    if (n.type == Type::integer) return known_[i].growth <= most;
    return true;
  }

  Operand place(std::size_t i) {
    if (is_placed_[i]) return placed_[i];
    const Node& n = node(i);
    Operand here;
    if (n.op == Op::score) {
      here = {Operand::Kind::score, 0, 0};
    } else if (n.op == Op::constant && n.type != Type::integer) {
      here.number =
          n.type == Type::boolean ? static_cast<float>(n.value) : static_cast<float>(std::bit_cast<double>(n.value));
    } else if (axis(i) != Axis::pair || !by_step(i)) {
      here = {Operand::Kind::slot, static_cast<std::uint16_t>(program_.slots.size()), 0};
      program_.slots.push_back(slot(i));
    } else {
      Step step{n.op, {}, 0};
      for (std::size_t a = 0; a < n.arg_count; ++a) step.arg[a] = place(n.arg[a]);
      if (n.op == Op::neg && n.type == Type::integer)  // 0 - x: no -0 for an integer 0
        step.op = Op::sub, step.arg[1] = step.arg[0], step.arg[0] = Operand{};
      here = {Operand::Kind::step, static_cast<std::uint16_t>(program_.steps.size()), 0};
      program_.steps.push_back(step);
    }
    placed_[i] = here, is_placed_[i] = true;
    return here;
  }

  Slot slot(std::size_t i) const {
    Slot slot{filled_along(i), part(i), {}, node(i).slot, false, axis(i)};
    slot.by_rows = slot.axis == Axis::pair && axis(i) != Axis::pair;
    if (slot.axis != Axis::pair || node(i).op != Op::load || node(i).type == Type::integer) return slot;
    for (std::size_t a = 0; a < node(i).arg_count; ++a) {
      const Axis axis = filled_along(arg(i, a));
      if (axis == Axis::pair || axis == Axis::distance) return slot.indices.clear(), slot;
      slot.indices.push_back({axis, part(arg(i, a))});
    }
    slot.by_rows = false;
    return slot;
  }

  // The sub-graph of a node.
  Graph part(std::size_t root) const {
    std::vector<bool> used(root + 1);
    used[root] = true;
    for (std::size_t i = root + 1; i-- > 0;)
      for (std::size_t a = 0; used[i] && a < node(i).arg_count; ++a) used[arg(i, a)] = true;
    std::vector<Node> kept;
    std::vector<std::uint16_t> at(root + 1);
    for (std::size_t i = 0; i <= root; ++i) {
      if (!used[i]) continue;
      Node n = node(i);
      for (std::size_t a = 0; a < n.arg_count; ++a) n.arg[a] = at[n.arg[a]];
      at[i] = static_cast<std::uint16_t>(kept.size());
      kept.push_back(n);
    }
    Graph graph = graph_;
    graph.nodes = decltype(graph.nodes)(kept);
    return graph;
  }

  // Buffers for the steps: one is free again after the last step that reads it. A step may write where it reads.
  void allocate() {
    std::vector<Step>& steps = program_.steps;
    std::vector<std::size_t> last(steps.size(), 0);
    for (std::size_t i = 0; i < steps.size(); ++i)
      for (const Operand& a : steps[i].arg)
        if (a.kind == Operand::Kind::step) last[a.index] = i;
    if (program_.result.kind == Operand::Kind::step) last[program_.result.index] = steps.size();
    std::vector<std::uint16_t> free, home(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto& arg = steps[i].arg;
      const std::array<Operand, 3> read{arg[0], arg[1], arg[2]};
      for (Operand& a : steps[i].arg)
        if (a.kind == Operand::Kind::step) a.index = home[a.index];
      for (std::size_t a = 0; a < read.size(); ++a) {
        const bool again = std::find(read.begin(), read.begin() + static_cast<std::ptrdiff_t>(a), read[a]) !=
                           read.begin() + static_cast<std::ptrdiff_t>(a);
        if (read[a].kind == Operand::Kind::step && last[read[a].index] == i && !again)
          free.push_back(home[read[a].index]);
      }
      if (free.empty()) free.push_back(static_cast<std::uint16_t>(program_.buffers++));
      home[i] = steps[i].buffer = free.back(), free.pop_back();
    }
    if (program_.result.kind == Operand::Kind::step) program_.result.index = home[program_.result.index];
  }

  const Graph& graph_;
  bool one_head_, wide_;
  bool is_mask_;  // a mask's reals are compared in fp64, as its tiles are: at a near tie both must decide alike
  std::vector<Known> known_;
  std::vector<Operand> placed_;
  std::vector<bool> is_placed_;
  Program program_;
};

}  // namespace

Program compile(const Graph& graph, bool one_head) {
  Program program = Compiler(graph, one_head, false).compile();
  const bool reads_integers = std::any_of(program.slots.begin(), program.slots.end(), [](const Slot& slot) {
    return slot.graph.nodes[slot.graph.nodes.size() - 1].type == Type::integer;
  });
  if (reads_integers) program.wide.push_back(Compiler(graph, one_head, true).compile());
  return program;
}

}  // namespace tessera::mods
