// From a mask's graph to runs: query ranges that carry the key intervals in which they are not decided yet.
// Must not know: devices.
#include "tiles/runs.hpp"

#include <algorithm>
#include <array>
#include <ostream>
#include <string>
#include <utility>

#include "mods/program.hpp"
#include "tiles/decisions.hpp"

namespace tessera::tiles {
namespace {

constexpr std::int64_t stretch = 64;  // cells that are evaluated together
constexpr std::int64_t most_key_tiles = (std::int64_t{1} << 31) - 1;

void check(const Grid& grid) {
  const auto refuse = [](const std::string& text) { throw Error(Code::internal, "tile map: " + text); };
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  if (grid.queries < 0 || grid.keys < 0)
    refuse(number(grid.queries) + " queries and " + number(grid.keys) + " keys: both are 0 or more");
  if (grid.q_tile < 1 || grid.k_tile < 1)
    refuse("tiles of " + number(grid.q_tile) + " x " + number(grid.k_tile) + ": both sides are 1 or more");
  if (grid.q_offset < -mods::farthest || grid.q_offset > mods::farthest || grid.queries > mods::farthest ||
      grid.keys > mods::farthest)
    refuse(number(grid.queries) + " queries from " + number(grid.q_offset) + " on and " + number(grid.keys) +
           " keys: at most " + number(mods::farthest) + " each");
  if (grid.key_tiles() > most_key_tiles || grid.query_tiles() > most_key_tiles)
    refuse(number(grid.query_tiles()) + " x " + number(grid.key_tiles()) + " tiles: at most " + number(most_key_tiles) +
           " a side");
}

Run run(std::int64_t begin, std::int64_t end, bool full) {
  Run r;
  r.begin = static_cast<std::uint32_t>(begin), r.end = static_cast<std::uint32_t>(end) & 0x7fffffffu, r.full = full;
  return r;
}

}  // namespace

class Derivation {
 public:
  Derivation(const Graph& mask, std::span<const mods::Table> tables, std::span<const mods::Summary> summaries,
             std::int64_t b, std::int64_t h, const Grid& grid, std::size_t effort)
      : mask_(mask),
        tables_(tables.begin(), tables.end()),
        grid_(grid),
        rows_(grid.query_tiles()),
        columns_(grid.key_tiles()),
        point_{.b = b, .h = h},
        bounds_(mask, summaries, b, h, {grid.q_offset, grid.q_offset + grid.queries, 0, grid.keys}),
        effort_(effort) {
    tables_.resize(mask.captures.size());  // what is not bound is zeros
  }

  Runs operator()() {
    out_.offsets_.reserve(static_cast<std::size_t>(rows_) + 1);
    if (bounds_.distance_only() && grid_.q_tile == grid_.k_tile) {
      by_distance();
    } else {
      undecided_.push_back({0, columns_});
      split(0, rows_, 0);
    }
    out_.runs_.shrink_to_fit();
    return std::move(out_);
  }

 private:
  using Interval = std::pair<std::int64_t, std::int64_t>;  // of key tiles

  mods::Box box(std::int64_t i0, std::int64_t i1, std::int64_t j0, std::int64_t j1) const {
    return {grid_.q_offset + i0 * grid_.q_tile, grid_.q_offset + std::min(grid_.queries, i1 * grid_.q_tile),
            j0 * grid_.k_tile, std::min(grid_.keys, j1 * grid_.k_tile)};
  }
  bool spend(std::size_t evaluations = 1) {
    if (effort_ == unlimited) return true;
    const bool enough = effort_ >= evaluations;
    if (!enough) out_.exact_ = false;
    effort_ -= enough ? evaluations : effort_;
    return enough;
  }
  bool at(std::int64_t q, std::int64_t k) {
    point_.q = q, point_.k = k;
    return mods::evaluate_mask(mask_, point_, tables_);
  }

  // What settle() looks at (shared/decisions.inl).
  struct Cells {
    Derivation& of;
    bool seen_true = false, seen_false = false;
    bool sample(std::int64_t q, std::int64_t k) {
      if (!of.spend()) return true;
      (of.at(q, k) ? seen_true : seen_false) = true;
      return seen_true && seen_false;
    }
    bool line(std::int64_t q, std::int64_t k_begin, std::int64_t k_end) {
      for (std::int64_t k = k_begin; k < k_end; k += stretch) {
        const std::int64_t count = std::min(stretch, k_end - k);
        if (!of.spend(static_cast<std::size_t>(count))) return true;
        std::array<std::int64_t, stretch> keys;
        std::array<float, stretch> attends;
        for (std::int64_t i = 0; i < count; ++i) keys[static_cast<std::size_t>(i)] = k + i;
        of.point_.q = q;
        mods::evaluate_line(of.mask_, {.at = of.point_, .k = keys.data()}, count, of.tables_, attends.data());
        for (std::int64_t i = 0; i < count; ++i)
          (attends[static_cast<std::size_t>(i)] != 0 ? seen_true : seen_false) = true;
        if (seen_true && seen_false) return true;
      }
      return false;
    }
  };
  // What halve() asks of the query tile i, and where its pieces go.
  struct Row {
    Derivation& of;
    std::int64_t i;
    bool exhausted() const {
      if (of.effort_ == 0) of.out_.exact_ = false;
      return of.effort_ == 0;
    }
    Truth tile(std::int64_t j) { return of.decide(i, j); }
    Truth bounds(std::int64_t j0, std::int64_t j1) {
      of.spend();
      return of.bounds_(of.box(i, i + 1, j0, j1));
    }
    void put(std::int64_t j0, std::int64_t j1, bool full) { of.pieces_.push_back(run(j0, j1, full)); }
  };

  // One tile, by its bounds, then by samples, then by its cells.
  Truth decide(std::int64_t i, std::int64_t j) {
    const mods::Box tile = box(i, i + 1, j, j + 1);
    if (!spend()) return Truth::mixed;
    const Truth bounded = bounds_(tile);
    return bounded == Truth::mixed ? settle(tile) : bounded;
  }
  Truth settle(const mods::Box& t) {
    Cells cells{*this};
    return tiles::settle(cells, t.q_begin, t.q_end, t.k_begin, t.k_end);
  }

  // Key tiles [j0, j1) for the query tiles [i0, i1): decided pieces go to pieces_, and what is not decided and no
  // longer than the query range to undecided_.
  void refine(std::int64_t i0, std::int64_t i1, std::int64_t j0, std::int64_t j1) {
    if (i1 - i0 == 1) {
      Row row{*this, i0};
      halve(row, j0, j1);
      return;
    }
    if (effort_ == 0) {
      out_.exact_ = false;
      pieces_.push_back(run(j0, j1, false));
      return;
    }
    spend();
    const Truth t = bounds_(box(i0, i1, j0, j1));
    if (t == Truth::never) return;
    if (t == Truth::always) {
      pieces_.push_back(run(j0, j1, true));
    } else if (j1 - j0 > 1 && j1 - j0 > i1 - i0) {
      const std::int64_t middle = j0 + (j1 - j0) / 2;
      refine(i0, i1, j0, middle);
      refine(i0, i1, middle, j1);
    } else {
      undecided_.push_back({j0, j1});
    }
  }

  // Query tiles [i0, i1), whose undecided intervals stand in undecided_ from `first` on. Pieces are inherited.
  void split(std::int64_t i0, std::int64_t i1, std::size_t first) {
    if (i0 == i1) return;
    const std::size_t pieces = pieces_.size(), last = undecided_.size();
    for (std::size_t u = first; u < last; ++u) {
      const Interval keys = undecided_[u];
      if (keys.first < keys.second) refine(i0, i1, keys.first, keys.second);
    }
    if (i1 - i0 == 1) {
      emit();
    } else {
      const std::int64_t middle = i0 + (i1 - i0) / 2;
      split(i0, middle, last);
      split(middle, i1, last);
    }
    pieces_.resize(pieces), undecided_.resize(last);
  }

  void append(const Run& r) {
    if (out_.runs_.size() > out_.offsets_.back()) {
      Run& before = out_.runs_.back();
      if (before.end == r.begin && before.full == r.full) {
        before.end = r.end;
        return;
      }
    }
    out_.runs_.push_back(r);
  }
  void end_row() {
    constexpr std::size_t most_runs = std::numeric_limits<std::uint32_t>::max();
    if (out_.runs_.size() > most_runs)
      throw Error(Code::internal, "tile map: more than " + std::to_string(most_runs) + " runs");
    out_.offsets_.push_back(static_cast<std::uint32_t>(out_.runs_.size()));
  }
  void emit() {
    row_ = pieces_;
    std::sort(row_.begin(), row_.end(), [](const Run& a, const Run& b) { return a.begin < b.begin; });
    for (const Run& r : row_) append(r);
    end_row();
  }

  // Of a mask that sees only the distance: tiles on one diagonal are alike, so each diagonal is decided once, and a row
  // is a window of that list. The short tiles at the ends of the grid are decided for themselves.
  void by_distance() {
    const std::int64_t whole_rows = grid_.queries / grid_.q_tile, whole_columns = grid_.keys / grid_.k_tile;
    struct Stretch {
      std::int64_t begin, end;  // of j - i + whole_rows - 1
      bool full;
    };
    mods::Vector<Stretch> diagonals;
    if (whole_rows > 0 && whole_columns > 0)
      for (std::int64_t d = 0; d < whole_rows + whole_columns - 1; ++d) {
        const std::int64_t j = std::max(std::int64_t{0}, d - (whole_rows - 1)), i = j - d + whole_rows - 1;
        const Truth t = decide(i, j);
        if (t == Truth::never) continue;
        const bool full = t == Truth::always;
        if (!diagonals.empty() && diagonals.back().end == d && diagonals.back().full == full)
          diagonals.back().end = d + 1;
        else diagonals.push_back({d, d + 1, full});
      }
    const auto one = [&](std::int64_t i, std::int64_t j) {
      const Truth t = decide(i, j);
      if (t != Truth::never) append(run(j, j + 1, t == Truth::always));
    };
    for (std::int64_t i = 0; i < rows_; ++i) {
      if (i == whole_rows) {  // short
        for (std::int64_t j = 0; j < columns_; ++j) one(i, j);
      } else {
        const std::int64_t shift = whole_rows - 1 - i;  // d = j + shift
        auto s = std::lower_bound(diagonals.begin(), diagonals.end(), shift,
                                  [](const Stretch& stretch, std::int64_t d) { return stretch.end <= d; });
        for (; s != diagonals.end() && s->begin < whole_columns + shift; ++s)
          append(run(std::max(s->begin - shift, std::int64_t{0}), std::min(s->end - shift, whole_columns), s->full));
        if (whole_columns < columns_) one(i, whole_columns);
      }
      end_row();
    }
  }

  const Graph& mask_;
  mods::Vector<mods::Table> tables_;
  Grid grid_;
  std::int64_t rows_, columns_;  // of tiles
  mods::Point point_;
  mods::Bounds bounds_;
  std::size_t effort_;
  Runs out_;
  mods::Vector<Run> pieces_, row_;  // of the query range at hand, and of those that it lies in
  mods::Vector<Interval> undecided_;
};

std::size_t Runs::full_tiles() const {
  std::size_t n = 0;
  for (const Run& r : runs_) n += r.full ? r.end - r.begin : 0;
  return n;
}
std::size_t Runs::partial_tiles() const {
  std::size_t n = 0;
  for (const Run& r : runs_) n += r.full ? 0 : r.end - r.begin;
  return n;
}
std::size_t Runs::bytes() const { return offsets_.capacity() * sizeof(std::uint32_t) + runs_.capacity() * sizeof(Run); }

std::ostream& operator<<(std::ostream& out, const Run& run) {
  return out << (run.full ? "full [" : "partial [") << run.begin << ", " << run.end << ')';
}
std::ostream& operator<<(std::ostream& out, const Runs& runs) {
  for (std::size_t i = 0; i < runs.query_tiles(); ++i) {
    out << i << ':';
    const char* separator = runs[i].empty() ? " none" : " ";
    if (runs[i].empty()) out << separator;
    for (const Run& run : runs[i]) out << separator << run, separator = ", ";
    out << '\n';
  }
  return out;
}

Runs derive(const Graph& mask, std::span<const mods::Table> tables, std::span<const mods::Summary> summaries,
            std::int64_t b, std::int64_t h, const Grid& grid, std::size_t effort) {
  check(grid);
  if (summaries.size() != mask.captures.size())
    throw Error(Code::internal, "tile map: " + std::to_string(summaries.size()) + " summaries for " +
                                    std::to_string(mask.captures.size()) + " captured tensors");
  if (grid.queries == 0 || grid.keys == 0) return Runs(static_cast<std::size_t>(grid.query_tiles()));
  return Derivation(mask, tables, summaries, b, h, grid, effort)();
}
Runs derive(const Graph& mask, std::span<const mods::Table> tables, std::int64_t b, std::int64_t h, const Grid& grid,
            std::size_t effort) {
  return derive(mask, tables, mods::summarise(mask, tables), b, h, grid, effort);
}

}  // namespace tessera::tiles
