#include "problem/indices.hpp"

#include <limits>
#include <optional>
#include <vector>

#include "mods/graph.hpp"
#include "mods/intervals.hpp"
#include "problem/bindings.hpp"
#include "problem/fail.hpp"

namespace tessera::problem {
namespace {

namespace intervals = mods::intervals;
using intervals::IntegerRange;
using intervals::Truth;

constexpr IntegerRange any_integer{std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};

// Of a coordinate: the values that it can take, and how many entries a tensor has that is indexed by it (of queries:
// from position 0 on, at least). Unknown where the values are data.
struct Coordinate {
  IntegerRange range;
  std::optional<std::int64_t> entries;
};
Coordinate coordinate(Op op, const Problem& p) {
  const auto counted = [](std::int64_t count) { return Coordinate{{0, count - 1}, count}; };
  switch (op) {
    case Op::batch:
      return counted(p.batch);
    case Op::head:
      return counted(p.heads_q);
    case Op::key:  // packed: of each sequence, no more than of all
      return p.keys_known() ? counted(p.tokens_kv) : Coordinate{{0, p.tokens_kv - 1}, {}};
    default:
      break;
  }
  if (p.offset_per_sequence || (!p.keys_known() && !p.q_offset)) return {any_integer, {}};
  const std::int64_t first = p.q_offset.value_or(p.tokens_kv - p.tokens_q), end = mods::add(first, p.tokens_q);
  if (p.packed) return {{first, mods::sub(end, 1)}, {}};
  return {{first, mods::sub(end, 1)}, std::max<std::int64_t>(end, 0)};
}
const char* letter(Op op) { return op == Op::batch ? "b" : op == Op::head ? "h" : op == Op::key ? "k" : "q"; }
const char* counted(Op op) {
  return op == Op::batch  ? "sequences"
         : op == Op::head ? "query heads"
         : op == Op::key  ? "keys"
                          : "positions up to the last query's";
}
bool is_coordinate(Op op) { return op == Op::batch || op == Op::head || op == Op::query || op == Op::key; }

// What is known of a node's value.
struct Known {
  IntegerRange range = any_integer;
  Truth truth = Truth::mixed;
  bool needed = false;  // some position may ask for it
};

class Check {
 public:
  Check(const char* what, const Graph& graph, const Bindings& bind, const Problem& problem, Known* known)
      : what_(what), graph_(graph), bind_(bind), problem_(problem), known_(known) {}

  void operator()() {
    const std::size_t count = graph_.nodes.size();
    for (std::size_t i = 0; i < count; ++i) know(i);
    known_[count - 1].needed = true;
    for (std::size_t i = count; i-- > 0;)
      if (known_[i].needed) need(i);
    for (std::size_t i = 0; i < count; ++i)
      if (known_[i].needed && mods::reads_capture(node(i).op)) check(i);
  }

 private:
  const Node& node(std::size_t i) const { return graph_.nodes[i]; }
  const Known& of(std::size_t i, std::size_t a) const { return known_[node(i).arg[a]]; }
  const Tensor& tensor(std::size_t slot) const { return find_binding(bind_, graph_.captures[slot])->tensor; }

  void know(std::size_t i) {
    const Node& n = node(i);
    Known& k = known_[i] = {};
    if (n.type == Type::boolean) {
      k.truth = truth(i);
    } else if (n.type == Type::integer) {
      k.range = range(i);
    }
  }
  IntegerRange range(std::size_t i) const {
    const Node& n = node(i);
    switch (n.op) {
      case Op::constant:
        return {n.value, n.value};
      case Op::param:
        return {graph_.params[n.slot].value, graph_.params[n.slot].value};
      case Op::batch:
      case Op::head:
      case Op::query:
      case Op::key:
        return coordinate(n.op, problem_).range;
      case Op::load: {
        const DType dtype = tensor(n.slot).dtype;
        using Narrow = std::numeric_limits<std::int32_t>;
        if (dtype == DType::i32) return {Narrow::min(), Narrow::max()};
        return dtype == DType::u8 ? IntegerRange{0, 255} : any_integer;
      }
      case Op::upper_bound:
        return {0, tensor(n.slot).shape[n.arg_count - 1]};
      case Op::select:
        if (of(i, 0).truth != Truth::mixed) return of(i, of(i, 0).truth == Truth::always ? 1 : 2).range;
        return intervals::hull(of(i, 1).range, of(i, 2).range);
      default:
        return intervals::of_integers(n.op, of(i, 0).range, of(i, n.arg_count > 1 ? 1 : 0).range);
    }
  }
  Truth truth(std::size_t i) const {
    const Node& n = node(i);
    switch (n.op) {
      case Op::constant:
        return n.value != 0 ? Truth::always : Truth::never;
      case Op::logical_not:
        return intervals::negated(of(i, 0).truth);
      case Op::logical_and:
      case Op::logical_or: {
        const Truth decisive = n.op == Op::logical_and ? Truth::never : Truth::always;
        if (of(i, 0).truth == decisive || of(i, 1).truth == decisive) return decisive;
        return of(i, 0).truth == of(i, 1).truth ? of(i, 0).truth : Truth::mixed;
      }
      case Op::lt:
      case Op::le:
      case Op::gt:
      case Op::ge:
      case Op::eq:
      case Op::ne:
        if (node(n.arg[0]).type != Type::integer) return Truth::mixed;
        return intervals::compared(n.op, of(i, 0).range, of(i, 1).range);
      default:
        return Truth::mixed;
    }
  }

  // Arguments of a node that some position may ask for. A branch that is never chosen, and what stands beside a part
  // that decides alone, may read where they like.
  void need(std::size_t i) {
    const Node& n = node(i);
    for (std::size_t a = 0; a < n.arg_count; ++a) {
      bool idle = false;
      if (n.op == Op::select && a > 0 && of(i, 0).truth != Truth::mixed)
        idle = (a == 1) != (of(i, 0).truth == Truth::always);
      if (n.op == Op::logical_and || n.op == Op::logical_or)
        idle = of(i, 1 - a).truth == (n.op == Op::logical_and ? Truth::never : Truth::always) &&
               of(i, a).truth != of(i, 1 - a).truth;
      if (!idle) known_[n.arg[a]].needed = true;
    }
  }

  void check(std::size_t i) const {
    const Node& n = node(i);
    const Tensor& t = tensor(n.slot);
    const std::size_t indices = n.arg_count - std::size_t{n.op == Op::upper_bound};
    for (std::size_t a = 0; a < indices; ++a) {
      const std::int64_t extent = t.shape[a];
      if (is_coordinate(node(n.arg[a]).op)) {
        if (extent != 1) check_length(n.slot, a);  // one entry serves all
        continue;
      }
      const IntegerRange r = of(i, a).range;
      if (r.lo >= extent || r.hi < 0) refuse_range(i, a, r);
    }
  }

  // The coordinate that a node which reads the tensor has as its index of an axis.
  std::optional<Op> plain_index(std::size_t i, std::size_t slot, std::size_t axis) const {
    const Node& n = node(i);
    if (!known_[i].needed || !mods::reads_capture(n.op) || n.slot != slot) return {};
    if (n.op == Op::upper_bound && axis + 1 == n.arg_count) return {};  // what is looked for
    const Op op = node(n.arg[axis]).op;
    return is_coordinate(op) ? std::optional(op) : std::nullopt;
  }

  // An axis that is indexed by coordinates as they are: exactly as many entries as they reach; where by q alone, at
  // least as many, for then it may have been made for more positions. Queries before position 0 read the first entry:
  // a chunk of a call may hold nothing else.
  void check_length(std::size_t slot, std::size_t axis) const {
    std::int64_t wanted = -1;
    std::size_t where = 0;  // the node that wants them
    bool exact = false, known = true;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const std::optional<Op> op = plain_index(i, slot, axis);
      if (!op) continue;
      const auto entries = coordinate(*op, problem_).entries;
      known = known && entries;
      exact = exact || *op != Op::query;
      if (entries && *entries > wanted) wanted = *entries, where = i;
    }
    const std::int64_t extent = tensor(slot).shape[axis];
    if (extent < wanted || (wanted >= 0 && exact && known && extent > wanted))
      refuse_length(where, axis, wanted, exact && known);
  }

  [[noreturn, gnu::cold]] void refuse_range(std::size_t i, std::size_t axis, const IntegerRange& r) const {
    const Tensor& t = tensor(node(i).slot);
    fail(Code::invalid_shape, "'", name_of(i), "' is bound to ", t, ", and the ", what_, " reads its axis ", axis,
         " from ", r.lo, " to ", r.hi, " and nowhere else: its entries are 0 to ", t.shape[axis] - 1,
         mods::pointing(graph_, i, axis));
  }
  [[noreturn, gnu::cold]] void refuse_length(std::size_t i, std::size_t axis, std::int64_t wanted, bool exact) const {
    const Tensor& t = tensor(node(i).slot);
    const Op by = node(node(i).arg[axis]).op;
    fail(Code::invalid_shape, "'", name_of(i), "' is bound to ", t, ", and the ", what_, " reads its axis ", axis,
         " at ", letter(by), ": it has ", t.shape[axis], " entries, there are ", wanted, " ", counted(by), "; it has ",
         exact ? "exactly" : "at least", " as many, or 1 that serves all", mods::pointing(graph_, i, axis));
  }
  std::string_view name_of(std::size_t i) const { return mods::name(graph_.captures[node(i).slot]); }

  const char* what_;
  const Graph& graph_;
  const Bindings& bind_;
  const Problem& problem_;
  Known* known_;
};

}  // namespace

void check_indices(const char* what, const Graph& graph, const Bindings& bind, const Problem& problem) {
  if (graph.captures.empty()) return;
  if (problem.batch == 0 || problem.tokens_q == 0 || problem.tokens_kv == 0) return;  // nothing is read
  constexpr std::size_t few = 64;
  if (graph.nodes.size() <= few) {
    Known known[few];
    return Check(what, graph, bind, problem, known)();
  }
  thread_local std::vector<Known> known;
  if (known.size() < graph.nodes.size()) known.resize(graph.nodes.size());
  Check(what, graph, bind, problem, known.data())();
}

}  // namespace tessera::problem
