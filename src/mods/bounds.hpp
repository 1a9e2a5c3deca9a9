// What a mask can be on a box of queries and keys: nowhere, everywhere, or it cannot be told from the bounds.
// Intervals are sound for the interpreter's own arithmetic (arithmetic.hpp), saturation and rounding included
// (shared/intervals.inl).
// Must not know: tiles, backends.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "mods/bounds_summary.hpp"
#include "mods/graph.hpp"
#include "mods/intervals.hpp"

namespace tessera::mods {

// Which coordinates a graph reads: masks that do not read b (or h) have one answer for all batches (or heads).
struct Dependence {
  bool batch = false, head = false, query = false, key = false, score = false;
  bool operator==(const Dependence&) const = default;
};
Dependence dependence(const Graph& graph);

using intervals::IntegerRange;
using intervals::RealRange;
using intervals::Truth;

// Queries [q_begin, q_end) and keys [k_begin, k_end), not empty.
struct Box {
  std::int64_t q_begin = 0, q_end = 1, k_begin = 0, k_end = 1;
  bool operator==(const Box&) const = default;
};

// Bounds of one mask for one (batch, head). Integers are sums c + factor * atom + ..., so that `q - k` is one term and
// what stands twice cancels; an atom is a coordinate or what is not a sum: a division, a load, a minimum, ...
// A sum is used only where no step on its way can saturate anywhere in `whole`.
class Bounds {
 public:
  // The graph of a mask. `summaries`: of its captures, in order; they are kept by reference and must outlive this.
  Bounds(const Graph& graph, std::span<const Summary> summaries, std::int64_t b, std::int64_t h, const Box& whole);
  // For a box inside `whole`. Remembers what depends on the queries (or keys) alone while they stay the same, hence not
  // const: one Bounds a thread.
  Truth operator()(const Box& box);
  // Everything sees q and k through their distance alone: the answer for a box is that of the box moved by (n, n).
  bool distance_only() const { return distance_only_; }

 private:
  using Wide = __int128;
  // Of an atom: the step that computes it and its factor.
  struct Term {
    std::uint32_t step = 0;
    std::int64_t factor = 0;
    bool operator==(const Term&) const = default;
  };
  struct Sum {
    std::int64_t constant = 0;
    Vector<Term> terms;  // sorted by step
    bool operator==(const Sum&) const = default;
  };
  static constexpr std::uint32_t absent = ~std::uint32_t{0};
  // One operation of the analysis. Integer operands are sums (by number), booleans and reals are steps.
  struct Step {
    Op op{};
    Type type{};             // of the result
    Type operands{};         // compared or chosen between
    std::uint8_t depends{};  // query_bit | key_bit
    std::uint8_t slot{};     // of a load
    std::uint8_t arg_count{};
    std::array<std::uint32_t, 4> arg{absent, absent, absent, absent};
    std::uint32_t difference = absent;  // the sum arg[0] - arg[1] of a comparison
    std::uint32_t cost = 1;             // of its bounds, about: the steps below, loads several times
    std::int64_t value = 0;             // the bits of a constant
  };
  // A sum laid out for evaluation. `other`: the same integer written without remainders, another bound of it. `plain`:
  // the sum is this step and nothing else, which is most of them.
  struct Flat {
    std::int64_t constant = 0;
    std::uint32_t first = 0, count = 0, other = absent, plain = absent;
    std::uint8_t depends = 0;
    std::uint32_t cost = 0;
  };
  static constexpr std::uint8_t query_bit = 1, key_bit = 2;
  static constexpr std::uint32_t query_step = 0, key_step = 1;  // the first two

  // Translation (bounds_build.cpp).
  void translate(const Graph& graph, std::int64_t b, std::int64_t h);
  bool combine(const Sum& a, const Sum& b, Wide factor, Sum& result) const;  // a + factor * b; false: may not be used
  std::uint32_t use(const Sum& sum, bool expand = true);
  bool without_remainders(const Sum& sum, Sum& result);
  std::uint32_t add(const Step& step);
  Sum integer_step(Op op, std::span<const Sum> arg, std::uint8_t slot = 0);
  Sum atom(std::uint32_t step) const;
  std::uint32_t compare(Op op, const Sum& a, const Sum& b);

  // Evaluation (bounds.cpp), from the result down: what an `and` or a choice does not need is not computed.
  void compute(std::uint32_t step);
  void refresh(std::uint32_t step) {
    if (stale_[step] != 0) compute(step);
  }
  Truth truth(std::uint32_t step) { return refresh(step), truths_[step]; }
  const RealRange& real(std::uint32_t step) { return refresh(step), reals_[step]; }
  IntegerRange range(std::uint32_t sum);
  IntegerRange integer_of(const Step& step);
  RealRange real_of(const Step& step);
  Truth truth_of(const Step& step);
  Truth compared(const Step& step);
  Summary::Entry load(const Step& step);
  IntegerRange search(const Step& step);
  std::uint64_t signature(std::uint32_t sum);

  std::span<const Summary> summaries_;
  Vector<Step> steps_;
  Vector<Flat> sums_;
  Vector<Term> terms_;
  Vector<Sum> divided_;  // of steps that are divisions or remainders: what they divide, else empty
  std::uint32_t root_ = 0;
  bool distance_only_ = true;
  Box box_;
  // What is known of each step: on box_ where it is not stale, else on a box before.
  Vector<std::uint8_t> stale_;
  Vector<IntegerRange> integers_;
  Vector<RealRange> reals_;
  Vector<Truth> truths_;
  Vector<std::uint64_t> signatures_;
};

}  // namespace tessera::mods
