#include "cli/attended_pairs.hpp"

#include <algorithm>
#include <random>

#include "mods/bounds.hpp"
#include "tessera/tile_map.hpp"
#include "tiles/run_maps.hpp"

namespace tessera::cli {
namespace {

constexpr double most_counted = 1 << 26;  // pairs of a head: some seconds
constexpr std::size_t sampled_tiles = 512;
constexpr int sampled_pairs = 4096;  // of each of them

struct Box {
  std::int64_t q_begin, q_end, k_begin, k_end;
  double pairs() const { return static_cast<double>(q_end - q_begin) * static_cast<double>(k_end - k_begin); }
};

// One mask for one sequence and one head.
struct Head {
  const Graph& mask;
  std::span<const mods::Table> tables;
  std::int64_t b, h;

  bool at(std::int64_t q, std::int64_t k) const { return mods::evaluate_mask(mask, {b, h, q, k, 0}, tables); }
  double count(const Box& box) const {
    std::int64_t attended = 0;
    for (std::int64_t q = box.q_begin; q < box.q_end; ++q)
      for (std::int64_t k = box.k_begin; k < box.k_end; ++k) attended += at(q, k);
    return static_cast<double>(attended);
  }
  double sample(const Box& box, std::mt19937_64& random) const {
    int attended = 0;
    const auto within = [&](std::int64_t begin, std::int64_t end) {
      return begin + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end - begin));
    };
    for (int i = 0; i < sampled_pairs; ++i) {
      const std::int64_t q = within(box.q_begin, box.q_end);
      attended += at(q, within(box.k_begin, box.k_end));
    }
    return box.pairs() * attended / sampled_pairs;
  }

  Pairs count(const tiles::Runs& runs, const tiles::Grid& grid) const {
    Pairs all;
    std::vector<Box> split;
    double undecided = 0;
    for (std::size_t i = 0; i < runs.query_tiles(); ++i) {
      const std::int64_t first = static_cast<std::int64_t>(i) * grid.q_tile;
      const std::int64_t q_begin = grid.q_offset + first;
      const std::int64_t q_end = grid.q_offset + std::min(grid.queries, first + grid.q_tile);
      for (const tiles::Run& run : runs[i]) {
        const auto box = [&](std::int64_t begin, std::int64_t end) {
          return Box{q_begin, q_end, begin * grid.k_tile, std::min(grid.keys, end * grid.k_tile)};
        };
        if (run.full) {
          all.count += box(run.begin, run.end).pairs();
          continue;
        }
        for (std::int64_t j = run.begin; j < std::int64_t{run.end}; ++j) {
          split.push_back(box(j, j + 1));
          undecided += split.back().pairs();
        }
      }
    }
    if (undecided <= most_counted) {
      for (const Box& box : split) all.count += count(box);
      return all;
    }
    // An estimate: what share of some of these tiles, evenly spread, is attended to.
    all.exact = false;
    std::mt19937_64 random(1);
    double attended = 0, looked_at = 0;
    const std::size_t step = (split.size() + sampled_tiles - 1) / sampled_tiles;
    for (std::size_t i = step / 2; i < split.size(); i += step)
      attended += sample(split[i], random), looked_at += split[i].pairs();
    all.count += undecided * attended / looked_at;
    return all;
  }
};

}  // namespace

MaskTables::MaskTables(const Shape& shape) {
  for (const Capture& capture : shape.mask.graph().captures) {
    mods::Table& table = tables_[count_++];
    for (const BoundTensor& bound : *shape.bound) {
      if (bound.name != mods::name(capture)) continue;
      const Tensor& t = bound.tensor;
      table.data = t.data, table.dtype = t.dtype;
      std::copy_n(t.shape.begin(), t.rank, table.extent.begin());
      std::copy_n(t.stride.begin(), t.rank, table.stride.begin());
    }
  }
}

bool is_near(const Extent& e) { return e.q_offset >= -mods::farthest / 2 && e.q_offset <= mods::farthest / 2; }

Extents extents_of(const Shape& s, bool told_apart) {
  Extents all;
  const auto add = [&](std::int64_t queries, std::int64_t keys) {
    all.each.push_back({s.q_offset.value_or(keys - queries), queries, keys});
  };
  for (const SequenceLengths& l : s.packed) add(l.q, l.k);
  if (!s.packed.empty()) return all;
  if (!told_apart) all.times = static_cast<double>(s.b);
  for (std::int64_t i = 0; i < (told_apart ? s.b : std::min<std::int64_t>(s.b, 1)); ++i) add(s.sq, s.sk);
  return all;
}

Pairs attended_pairs(const Shape& s) {
  const TileMap bands(s.mask);
  const Graph& mask = s.mask.graph();
  const mods::Dependence sees = mods::dependence(mask);
  const Extents extents = extents_of(s, sees.batch);
  const auto heads = static_cast<double>(s.hq);
  Pairs all;
  if (bands.decided()) {
    for (const Extent& e : extents.each)
      if (e.queries > 0 && e.keys > 0) all.count += bands.pairs(e.q_offset, e.q_offset + e.queries, e.keys);
    all.count *= extents.times * heads;
    return all;
  }
  std::vector<tiles::Grid> grids;
  for (const Extent& e : extents.each) {
    if (is_near(e)) continue;
    // Beyond the positions that tile maps know the kernels ask for every pair, and so does this.
    for (const Extent& f : extents.each) all.count += static_cast<double>(f.queries) * static_cast<double>(f.keys);
    all.count *= extents.times * heads, all.exact = false;
    return all;
  }
  for (const Extent& e : extents.each) grids.push_back({e.q_offset, e.queries, e.keys});
  const MaskTables tables(s);
  const tiles::RunMaps maps(mask, tables.all(), grids, s.hq);
  for (std::size_t i = 0; i < grids.size(); ++i) {
    const std::int64_t told_apart = maps.per_head() ? s.hq : 1;
    for (std::int64_t h = 0; h < told_apart; ++h) {
      const auto b = static_cast<std::int64_t>(i);
      const Pairs one = Head{mask, tables.all(), b, h}.count(maps.at(b, h), grids[i]);
      all.count += one.count * extents.times * heads / static_cast<double>(told_apart);
      all.exact = all.exact && one.exact;
    }
  }
  return all;
}

}  // namespace tessera::cli
