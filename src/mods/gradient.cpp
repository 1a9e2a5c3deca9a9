// Derivatives, node by node in evaluation order (forward mode): there is one score, and many nodes do not depend on it.
#include "mods/gradient.hpp"

#include <array>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "mods/graph.hpp"

namespace tessera::mods {
namespace {

// A node, or nothing: zero. Keeps what does not depend on the score out of the graph.
using Slope = std::optional<std::uint16_t>;

class Differentiation {
 public:
  explicit Differentiation(Builder& builder) : builder_(builder), one_(builder.constant(1.0)) {}

  std::uint16_t one() const { return one_; }
  // Of the node `y` = node.op of `x`, whose arguments have the slopes `dx`.
  Slope of(const Node& node, std::uint16_t y, const std::uint16_t* x, const Slope* dx) {
    const auto real = [&](double value) { return builder_.constant(value); };
    switch (node.op) {
      case Op::add:
        return sum(dx[0], dx[1]);
      case Op::sub:
        return sum(dx[0], negative(dx[1]));
      case Op::mul:
        return sum(times(dx[0], x[1]), times(dx[1], x[0]));
      case Op::div:  // (dx0 - y dx1) / x1
        return over(sum(dx[0], negative(times(dx[1], y))), x[1]);
      case Op::min:
      case Op::max: {  // the second where it is taken: smaller (greater), or beside a NaN
        if (!dx[0] && !dx[1]) return {};
        const std::uint16_t beyond = builder_.apply(node.op == Op::min ? Op::lt : Op::gt, x[1], x[0]);
        const std::uint16_t second = builder_.apply(Op::logical_or, beyond, builder_.apply(Op::ne, x[0], x[0]));
        return chosen(second, dx[1], dx[0]);
      }
      case Op::neg:
        return negative(dx[0]);
      case Op::abs:
        return dx[0] ? times(dx[0], builder_.apply(Op::sign, x[0])) : Slope();
      case Op::select:
        return chosen(x[0], dx[1], dx[2]);
      case Op::exp:
        return times(dx[0], y);
      case Op::exp2:
        return times(times(dx[0], y), real(std::numbers::ln2));
      case Op::log:
        return over(dx[0], x[0]);
      case Op::tanh:  // 1 - y^2
        return dx[0] ? times(dx[0], builder_.apply(Op::sub, one_, product(y, y))) : Slope();
      case Op::sigmoid:  // y (1 - y)
        return dx[0] ? times(dx[0], product(y, builder_.apply(Op::sub, one_, y))) : Slope();
      case Op::sqrt:
        return over(times(dx[0], real(0.5)), y);
      case Op::rsqrt:  // -1/2 y^3
        return dx[0] ? times(times(dx[0], real(-0.5)), product(y, product(y, y))) : Slope();
      case Op::erf: {
        if (!dx[0]) return {};
        const std::uint16_t bell = builder_.apply(Op::exp, builder_.apply(Op::neg, product(x[0], x[0])));
        return times(times(dx[0], bell), real(2 * std::numbers::inv_sqrtpi));
      }
      case Op::pow: {  // what is 0 whatever the other factor is, is 0: no 0 * inf
        Slope base, exponent;
        if (dx[0]) {
          const std::uint16_t less = builder_.apply(Op::pow, x[0], builder_.apply(Op::sub, x[1], one_));
          base = times(dx[0], unless_zero(x[1], product(x[1], less)));
        }
        if (dx[1]) exponent = times(dx[1], unless_zero(y, product(y, builder_.apply(Op::log, x[0]))));
        return sum(base, exponent);
      }
      default:
        return {};  // leaves, integers, conditions, and sign: constant between their jumps
    }
  }

 private:
  std::uint16_t product(std::uint16_t a, std::uint16_t b) { return builder_.apply(Op::mul, a, b); }
  std::uint16_t unless_zero(std::uint16_t factor, std::uint16_t whole) {
    const std::uint16_t zero = builder_.constant(0.0);
    return builder_.apply(Op::select, builder_.apply(Op::eq, factor, zero), zero, whole);
  }
  Slope sum(Slope a, Slope b) {
    if (!a || !b) return a ? a : b;
    return builder_.apply(Op::add, *a, *b);
  }
  Slope negative(Slope a) { return a ? Slope(builder_.apply(Op::neg, *a)) : Slope(); }
  Slope times(Slope a, std::uint16_t b) {
    if (!a) return {};
    return *a == one_ ? b : product(*a, b);
  }
  Slope over(Slope a, std::uint16_t b) { return a ? Slope(builder_.apply(Op::div, *a, b)) : Slope(); }
  Slope chosen(std::uint16_t condition, Slope a, Slope b) {
    if (!a && !b) return {};
    const std::uint16_t zero = builder_.constant(0.0);
    return builder_.apply(Op::select, condition, a.value_or(zero), b.value_or(zero));
  }

  Builder& builder_;
  std::uint16_t one_;
};

template <class IsVariable>
Graph derivative_by(const Graph& graph, IsVariable is_variable) {
  Builder builder;
  builder.import(graph);
  const std::vector<std::uint16_t> here(builder.imported().begin(), builder.imported().end());
  Differentiation differentiation(builder);
  std::vector<Slope> slope;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    std::array<std::uint16_t, 4> x{};
    std::array<Slope, 4> dx;
    for (std::size_t a = 0; a < node.arg_count; ++a) x[a] = here[node.arg[a]], dx[a] = slope[node.arg[a]];
    if (is_variable(i)) slope.push_back(differentiation.one());
    else if (node.type != Type::real) slope.emplace_back();
    else slope.push_back(differentiation.of(node, here[i], x.data(), dx.data()));
  }
  return builder.finish(slope.back().value_or(builder.constant(0.0)));
}

}  // namespace

Graph derivative(const Graph& score) {
  if (score.nodes.empty()) {
    Builder builder;
    return builder.finish(builder.constant(1.0));
  }
  return derivative_by(score, [&](std::size_t i) { return score.nodes[i].op == Op::score; });
}

Graph derivative(const Graph& score, std::size_t node) {
  if (node >= score.nodes.size() || score.nodes[node].type != Type::real)
    throw Error(Code::invalid_mod, "there is no derivative by node " + std::to_string(node) + " of a graph of " +
                                       std::to_string(score.nodes.size()) + ": it is a real that the graph has");
  return derivative_by(score, [&](std::size_t i) { return i == node; });
}

}  // namespace tessera::mods
