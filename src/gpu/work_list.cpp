#include "gpu/work_list.hpp"

#include <limits>
#include <string>

#include "mods/bounds.hpp"
#include "mods/kept.hpp"

namespace tessera::gpu {
namespace {

constexpr unsigned full_bit = 1u << 31;

void add(std::span<const tiles::Run> runs, WorkList& list) {
  const auto begin = static_cast<unsigned>(list.runs.size());
  for (const tiles::Run& run : runs) list.runs.push_back({run.begin, run.end | (run.full ? full_bit : 0)});
  if (list.runs.size() > std::numeric_limits<unsigned>::max())
    throw Error(Code::internal,
                "the mask has " + std::to_string(list.runs.size()) + " runs of key tiles: 2^32 - 1 are allowed");
  list.ranges.push_back({begin, static_cast<unsigned>(list.runs.size())});
}

void add_all(const tiles::Runs& runs, WorkList& list) {
  for (std::size_t tile = 0; tile < runs.query_tiles(); ++tile) add(runs[tile], list);
}

// Of positions beyond what bounds are exact for: the mask looks at every tile.
void add_undecided(const tiles::Grid& grid, WorkList& list) {
  const tiles::Run everything{0, static_cast<std::uint32_t>(grid.key_tiles()) & ~full_bit, 0};
  for (std::int64_t tile = 0; tile < grid.query_tiles(); ++tile)
    add({&everything, grid.keys > 0 ? std::size_t{1} : std::size_t{0}}, list);
}

bool is_far(std::int64_t offset) { return offset > mods::farthest / 2 || offset < -mods::farthest / 2; }

}  // namespace

void fixed_work_list(const Problem& p, const Decision& d, WorkList& list) {
  const mods::Dependence sees = mods::dependence(p.mask.graph());
  list.clear();
  const std::int64_t batches = sees.batch ? p.batch : 1, heads = sees.head ? p.heads_q : 1;
  for (std::int64_t b = 0; b < batches; ++b)
    for (std::int64_t h = 0; h < heads; ++h) add_all(d.runs->at(b, h), list);
  list.batch = sees.batch ? heads : 0, list.head = sees.head ? 1 : 0;
  list.tiles = static_cast<std::int64_t>(d.runs->at(0, 0).query_tiles());
}

void work_list_of(const Problem& p, const Decision& d, std::span<const Extent> sequences,
                  std::span<const mods::Table> tables, WorkList& list) {
  list.clear();
  const mods::Dependence sees = mods::dependence(p.mask.graph());
  const std::int64_t heads = sees.head ? p.heads_q : 1;
  const mods::Keeping keeping;  // of the maps: the thread's own memory
  const mods::Keeping::Use kept(keeping);
  mods::Vector<tiles::Grid> grids;
  bool far = false;
  std::int64_t tiles = 0;
  for (const Extent& e : sequences) {
    grids.push_back({e.q_offset, e.queries, e.keys, d.queries, d.spec.k_tile});
    far |= is_far(e.q_offset), tiles += grids.back().query_tiles();
  }
  list.head = sees.head ? 1 : 0;
  list.batch = p.packed ? 0 : heads;
  list.tiles = p.packed || grids.empty() ? tiles : grids[0].query_tiles();
  const tiles::RunMaps maps = far ? tiles::RunMaps() : tiles::RunMaps(p.mask.graph(), tables, grids, p.heads_q);
  const auto add_map = [&](std::int64_t b, std::int64_t h) {
    if (far) add_undecided(grids[static_cast<std::size_t>(b)], list);
    else add_all(maps.at(b, h), list);
  };
  if (p.packed) {
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t b = 0; b < p.batch; ++b) add_map(b, h);
  } else {
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < heads; ++h) add_map(b, h);
  }
}

}  // namespace tessera::gpu
