#include "cli/tile_picture.hpp"

#include <algorithm>

#include "cli/interleave.hpp"
#include "cli/tile_count.hpp"
#include "mods/bounds.hpp"

namespace tessera::cli {
namespace {

char drawn(double full, double partial, double all) { return full == all ? '#' : full + partial == 0 ? '.' : '+'; }

}  // namespace

ShapeTiles::ShapeTiles(const Shape& shape, std::int64_t q_tile, std::int64_t k_tile)
    : bands_(shape.mask), q_tile_(q_tile), k_tile_(k_tile) {
  const Graph& mask = shape.mask.graph();
  extents_ = extents_of(shape, !bands_.decided() && mods::dependence(mask).batch);
  if (bands_.decided()) {
    bytes_ = sizeof(TileMap);
    build_ms_ = 1e3 * seconds_of([&] { bands_ = TileMap(shape.mask); });
    return;
  }
  const auto& each = extents_.each;
  if (!std::all_of(each.begin(), each.end(), is_near)) {
    exact_ = false;
    return;
  }
  for (const Extent& e : each) grids_.push_back({e.q_offset, e.queries, e.keys, q_tile, k_tile});
  const MaskTables tables(shape);
  build_ms_ = 1e3 * seconds_of([&] { maps_ = tiles::RunMaps(mask, tables.all(), grids_, shape.hq); });
  heads_ = maps_.per_head() ? shape.hq : 1;
  std::set<const tiles::Runs*> different;
  for (std::size_t i = 0; i < grids_.size(); ++i)
    for (std::int64_t h = 0; h < heads_; ++h) different.insert(&maps_.at(static_cast<std::int64_t>(i), h));
  for (const tiles::Runs* runs : different) bytes_ += runs->bytes(), exact_ = exact_ && runs->exact();
}

TileCount ShapeTiles::count() const {
  TileCount all;
  for (std::size_t i = 0; i < extents_.each.size(); ++i) {
    const Extent& e = extents_.each[i];
    if (!has_runs()) {
      const TileCount one = count_tiles(bands_, e.q_offset, e.q_offset + e.queries, q_tile_, e.keys, k_tile_);
      all.full += one.full, all.partial += one.partial, all.empty += one.empty;
      continue;
    }
    const double tiles = static_cast<double>(grids_[i].query_tiles()) * static_cast<double>(grids_[i].key_tiles());
    for (std::int64_t h = 0; h < heads_; ++h) {
      const tiles::Runs& runs = maps_.at(static_cast<std::int64_t>(i), h);
      const double full = static_cast<double>(runs.full_tiles()), partial = static_cast<double>(runs.partial_tiles());
      const auto heads = static_cast<double>(heads_);
      all.full += full / heads, all.partial += partial / heads, all.empty += (tiles - full - partial) / heads;
    }
  }
  all.full *= extents_.times, all.partial *= extents_.times, all.empty *= extents_.times;
  return all;
}

ShapeTiles::Picture ShapeTiles::picture(std::int64_t most_lines, std::int64_t most_columns) const {
  Picture made;
  if (extents_.each.empty() || extents_.each[0].queries == 0 || extents_.each[0].keys == 0) return made;
  const Extent& e = extents_.each[0];
  const std::int64_t rows = ceil_div(e.queries, q_tile_), columns = ceil_div(e.keys, k_tile_);
  made.q_tiles = ceil_div(rows, most_lines), made.k_tiles = ceil_div(columns, most_columns);
  const std::int64_t width = ceil_div(columns, made.k_tiles);
  const auto tiles_of = [](std::int64_t place, std::int64_t tiles, std::int64_t all) {
    return static_cast<double>(std::min(all, (place + 1) * tiles) - place * tiles);
  };
  std::vector<double> full(static_cast<std::size_t>(width)), partial(full);
  for (std::int64_t row = 0; row * made.q_tiles < rows; ++row) {
    const std::int64_t begin = row * made.q_tiles, end = std::min(rows, begin + made.q_tiles);
    std::fill(full.begin(), full.end(), 0), std::fill(partial.begin(), partial.end(), 0);
    for (std::int64_t i = begin; has_runs() && i < end; ++i)
      for (const tiles::Run& run : maps_.at(0, 0)[static_cast<std::size_t>(i)])
        for (std::int64_t at = run.begin, next = 0; at < std::int64_t{run.end}; at = next) {
          const std::int64_t c = at / made.k_tiles;
          next = std::min<std::int64_t>(run.end, (c + 1) * made.k_tiles);
          (run.full ? full : partial)[static_cast<std::size_t>(c)] += static_cast<double>(next - at);
        }
    std::string& line = made.lines.emplace_back();
    for (std::int64_t c = 0; c < width; ++c) {
      const double all = static_cast<double>(end - begin) * tiles_of(c, made.k_tiles, columns);
      if (has_runs()) {
        line += drawn(full[static_cast<std::size_t>(c)], partial[static_cast<std::size_t>(c)], all);
        continue;
      }
      const std::int64_t first_key = c * made.k_tiles * k_tile_;
      const std::int64_t last_key = std::min(e.keys, first_key + made.k_tiles * k_tile_);
      const Cover cover = bands_.cover(e.q_offset + begin * q_tile_, e.q_offset + std::min(e.queries, end * q_tile_),
                                       first_key, last_key);
      const bool whole = cover.coverage == Coverage::full && cover.k_begin <= first_key && cover.k_end >= last_key;
      line += whole ? '#' : cover.coverage == Coverage::empty ? '.' : '+';
    }
  }
  return made;
}

}  // namespace tessera::cli
