// The ready-made masks that read tensors or divide positions, each a line of the user's own language, and the table of
// all ready-made mods.
#include "mods/ready_made.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "mods/graph.hpp"

namespace tessera {

void mods::require(std::string_view mod, std::string_view what, std::int64_t value, std::int64_t least,
                   std::int64_t most) {
  if (value >= least && value <= most) return;
  const std::string range = most == std::numeric_limits<std::int64_t>::max()
                                ? std::to_string(least) + " or more"
                                : "from " + std::to_string(least) + " to " + std::to_string(most);
  throw Error(Code::invalid_option,
              std::string(mod) + ": " + std::string(what) + " is " + std::to_string(value) + ": it is " + range);
}

Expr mods::last_axes(Captured captured, int rank, const std::array<Expr, 4>& axes) {
  for (int i = 4 - rank; i < 4; ++i) captured = captured[axes[static_cast<std::size_t>(i)]];
  return captured;
}

inline namespace TESSERA_API_NAMESPACE {
namespace {
constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
using mods::require;
}  // namespace

Mask prefix_lm(std::string_view length) {
  return mask_mod([&](Expr b, Expr, Expr q, Expr k) { return (k <= q) | (k < capture(length, i32, 1)[b]); });
}
Mask key_lengths(std::string_view length) {
  return mask_mod([&](Expr b, Expr, Expr, Expr k) { return k < capture(length, i32, 1)[b]; });
}

Mask documents(std::string_view ids, int rank) {
  if (rank != 1 && rank != 2)
    throw Error(Code::invalid_option,
                "documents: the ids have " + std::to_string(rank) + " axes: they have 1, [token], or 2, [b][token]");
  return mask_mod([&](Expr b, Expr, Expr q, Expr k) {
    const Captured all = capture(ids, i32, rank), here = rank == 2 ? all[b] : all;
    return here[q] == here[k];
  });
}

Mask documents_from_offsets(std::string_view offsets, int rank) {
  if (rank != 1 && rank != 2)
    throw Error(Code::invalid_option, "documents_from_offsets: the offsets have " + std::to_string(rank) +
                                          " axes: they have 1, [document], or 2, [b][document]");
  return mask_mod([&](Expr b, Expr, Expr q, Expr k) {
    const Captured all = capture(offsets, i32, rank), here = rank == 2 ? all[b] : all;
    return upper_bound(here, q) == upper_bound(here, k);
  });
}

Mask chunked(std::int64_t size) {
  require("chunked", "the size", size, 1, any);
  return mask_mod([&](Expr, Expr, Expr q, Expr k) {
    const Expr n = param(size);
    return floor_div(q, n) == floor_div(k, n);
  });
}
Mask sinks(std::int64_t count) {
  require("sinks", "the count", count, 0, any);
  return mask_mod([&](Expr, Expr, Expr, Expr k) { return k < param(count); });
}
Mask dilated(std::int64_t step) {
  require("dilated", "the step", step, 1, any);
  return mask_mod([&](Expr, Expr, Expr q, Expr k) { return (q - k) % param(step) == 0; });
}

Mask neighborhood_2d(std::int64_t grid_rows, std::int64_t grid_columns, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t most = std::int64_t{1} << 31;
  require("neighborhood_2d", "grid_rows", grid_rows, 1, most);
  require("neighborhood_2d", "grid_columns", grid_columns, 1, most);
  require("neighborhood_2d", "rows", rows, 1, grid_rows);
  require("neighborhood_2d", "columns", columns, 1, grid_columns);
  return mask_mod([&](Expr, Expr, Expr q, Expr k) {
    const Expr width = param(grid_columns);
    // One axis: `size` cells of `grid`, the first of them half of the size before the query.
    const auto near = [](Expr from, Expr to, std::int64_t grid, std::int64_t size) {
      const Expr count = param(size), first = min(max(from - floor_div(count, 2), 0), param(grid) - count);
      return (first <= to) & (to < first + count);
    };
    return near(floor_div(q, width), floor_div(k, width), grid_rows, rows) &
           near(q % width, k % width, grid_columns, columns);
  });
}

Mask tree(std::string_view parents, int depth) {
  require("tree", "the depth", depth, 1, 64);
  return mask_mod([&](Expr, Expr, Expr q, Expr k) {
    const Captured parent = capture(parents, i32, 1);
    Expr ancestor = q, sees = q == k;
    for (int i = 0; i < depth; ++i) ancestor = parent[ancestor], sees |= ancestor == k;
    return sees;
  });
}

Mask mask_tensor(std::string_view name, int rank) {
  return mask_mod([&](Expr b, Expr h, Expr q, Expr k) {
    return mods::last_axes(capture(name, b8, rank), rank, {b, h, q, k});
  });
}
Mask block_sparse(std::string_view layout, std::int64_t q_block, std::int64_t k_block, int rank) {
  require("block_sparse", "q_block", q_block, 1, any), require("block_sparse", "k_block", k_block, 1, any);
  require("block_sparse", "the rank of the layout", rank, 2, 4);
  return mask_mod([&](Expr b, Expr h, Expr q, Expr k) {
    return mods::last_axes(capture(layout, b8, rank), rank,
                           {b, h, floor_div(q, param(q_block)), floor_div(k, param(k_block))});
  });
}

}  // namespace TESSERA_API_NAMESPACE

namespace {
// Beyond int: its nearest end, which is allowed nowhere.
int narrow(std::int64_t wanted) {
  using Limits = std::numeric_limits<int>;
  return static_cast<int>(std::clamp<std::int64_t>(wanted, Limits::min(), Limits::max()));
}
int rank(const mods::Arguments& given, std::size_t i, int otherwise) { return narrow(given.integer_or(i, otherwise)); }
}  // namespace

std::span<const mods::ReadyMade> mods::ready_made() {
  using A = const Arguments&;
  static const ReadyMade table[] = {
      {"full", "", false, [](A) { return full().graph(); }},
      {"causal", "", false, [](A) { return causal().graph(); }},
      {"window", "ii", false, [](A a) { return window(a.integer[0], a.integer[1]).graph(); }},
      {"prefix_lm", "t", false, [](A a) { return prefix_lm(a.tensor).graph(); }},
      {"key_lengths", "t", false, [](A a) { return key_lengths(a.tensor).graph(); }},
      {"documents", "tI", false, [](A a) { return documents(a.tensor, rank(a, 0, 1)).graph(); }},
      {"documents_from_offsets", "tI", false,
       [](A a) { return documents_from_offsets(a.tensor, rank(a, 0, 1)).graph(); }},
      {"chunked", "i", false, [](A a) { return chunked(a.integer[0]).graph(); }},
      {"sinks", "i", false, [](A a) { return sinks(a.integer[0]).graph(); }},
      {"dilated", "i", false, [](A a) { return dilated(a.integer[0]).graph(); }},
      {"neighborhood_2d", "iiii", false,
       [](A a) { return neighborhood_2d(a.integer[0], a.integer[1], a.integer[2], a.integer[3]).graph(); }},
      {"tree", "ti", false, [](A a) { return tree(a.tensor, narrow(a.integer[0])).graph(); }},
      {"mask_tensor", "tI", false, [](A a) { return mask_tensor(a.tensor, rank(a, 0, 2)).graph(); }},
      {"block_sparse", "tiiI", false,
       [](A a) { return block_sparse(a.tensor, a.integer[0], a.integer[1], rank(a, 2, 2)).graph(); }},
      {"softcap", "r", true, [](A a) { return softcap(a.real).graph(); }},
      {"alibi", "t", true, [](A a) { return alibi(a.tensor).graph(); }},
      {"relative_bias", "tIIB", true,
       [](A a) {
         return relative_bias(a.tensor, a.integer_or(0, 32), a.integer_or(1, 128), a.integer_or(2, 1) != 0).graph();
       }},
      {"bias_tensor", "tI", true, [](A a) { return bias_tensor(a.tensor, rank(a, 0, 2)).graph(); }},
  };
  return table;
}

}  // namespace tessera
