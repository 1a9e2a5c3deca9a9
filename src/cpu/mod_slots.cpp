#include "cpu/mod_slots.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "cpu/kernels.hpp"
#include "mods/arithmetic.hpp"

namespace tessera::cpu {
namespace {

using mods::Axis;

std::span<const mods::Table> tables_of(const Mod& mod) {
  return {mod.tables, static_cast<std::size_t>(mod.table_count)};
}

// Coordinates of a stretch of points, kept for their capacity.
struct Coordinates {
  std::vector<std::int64_t> h, q, k;
  std::vector<float> s, out;
};
Coordinates& coordinates() {
  thread_local Coordinates all;
  return all;
}

mods::Point origin(const Tile& tile) {
  mods::Point at;
  at.b = tile.batch, at.h = tile.first_head, at.q = tile.q_position;
  return at;
}

void coordinates_of_row(const Tile& tile, std::int64_t row, std::int64_t& h, std::int64_t& q) {
  row = std::min(row, tile.rows() - 1);  // lanes past the last row repeat it
  h = tile.first_head + row / tile.queries, q = tile.q_position + row % tile.queries;
}

// For each row of the panel, its keys: out[i * panel + lane]. Whether all integers were small enough for the steps.
bool evaluate_graph(const Tile& tile, const Mod& mod, const Graph& graph, std::int64_t first_row, std::int64_t panel,
                    std::int64_t key, std::int64_t keys, const float* s, float* out) {
  Coordinates& c = coordinates();
  const auto n = static_cast<std::size_t>(keys);
  c.k.resize(n), c.s.resize(n), c.out.resize(n);
  for (std::int64_t i = 0; i < keys; ++i) c.k[static_cast<std::size_t>(i)] = key + i;
  bool exact = true;
  for (std::int64_t lane = 0; lane < panel; ++lane) {
    if (first_row + lane >= tile.rows()) {  // lanes past the last row repeat it
      for (std::int64_t i = 0; i < keys; ++i) out[i * panel + lane] = out[i * panel + lane - 1];
      continue;
    }
    mods::Line line{origin(tile), nullptr, nullptr, c.k.data(), nullptr};
    coordinates_of_row(tile, first_row + lane, line.at.h, line.at.q);
    if (s) {
      for (std::int64_t i = 0; i < keys; ++i) c.s[static_cast<std::size_t>(i)] = s[i * panel + lane];
      line.s = c.s.data();
    }
    exact &= mods::evaluate_line(graph, line, keys, tables_of(mod), c.out.data());
    for (std::int64_t i = 0; i < keys; ++i) out[i * panel + lane] = c.out[static_cast<std::size_t>(i)];
  }
  return exact;
}

// The parts of a gathering slot's addresses.
std::int64_t* row_parts(const Slots& slots, std::int64_t slot, std::int64_t panel) {
  return reinterpret_cast<std::int64_t*>(slots.at + slot * slots.stride + strip_keys * panel);
}
std::int64_t* key_parts(const Slots& slots, std::int64_t slot, std::int64_t panel, std::int64_t padded_rows) {
  return row_parts(slots, slot, panel) + padded_rows;
}
// Adds the clamped indices of one axis, times their stride.
void add_index(const Mod& mod, const mods::Slot& slot, std::size_t axis, const mods::Line& line, std::int64_t count,
               std::int64_t* parts) {
  thread_local std::vector<std::int64_t> index;
  index.resize(static_cast<std::size_t>(count));
  const mods::Table& table = mod.tables[slot.capture];
  mods::evaluate_line(slot.indices[axis].graph, line, count, tables_of(mod), index.data());
  for (std::int64_t i = 0; i < count; ++i)
    parts[i] +=
        std::clamp<std::int64_t>(index[static_cast<std::size_t>(i)], 0, table.extent[axis] - 1) * table.stride[axis];
}
template <class T, class Convert>
void gather(const mods::Table& table, const std::int64_t* rows, const std::int64_t* keys, std::int64_t panel,
            std::int64_t count, float* out, Convert convert) {
  const T* data = static_cast<const T*>(table.data);
  for (std::int64_t lane = 0; lane < panel; ++lane)  // along a row of the table, which lies side by side
    for (std::int64_t i = 0; i < count; ++i) out[i * panel + lane] = convert(data[rows[lane] + keys[i]]);
}
// Rows of floats side by side, as a bias has them, by vectors: 57 -> 70 % of causal at d 64, AVX-512.
bool transposed(const mods::Table& table, const std::int64_t* rows, const std::int64_t* keys, std::int64_t panel,
                std::int64_t count, Transpose transpose, float* out) {
  std::array<const float*, 64> from;
  if (panel > std::ssize(from)) return false;
  for (std::int64_t i = 1; i < count; ++i)
    if (keys[i] != keys[0] + i) return false;  // an axis of one element, or an index that is clamped
  for (std::int64_t lane = 0; lane < panel; ++lane)
    from[static_cast<std::size_t>(lane)] = static_cast<const float*>(table.data) + rows[lane] + keys[0];
  transpose(from.data(), count, 1, out);
  return true;
}
void gather(const mods::Table& table, const std::int64_t* rows, const std::int64_t* keys, std::int64_t panel,
            std::int64_t count, Transpose transpose, float* out) {
  const auto plain = [](auto x) { return static_cast<float>(x); };
  switch (table.dtype) {
    case DType::f32:
      if (transposed(table, rows, keys, panel, count, transpose, out)) return;
      return gather<float>(table, rows, keys, panel, count, out, plain);
    case DType::bf16:
      return gather<BFloat16>(table, rows, keys, panel, count, out, plain);
    case DType::f16:
      return gather<Float16>(table, rows, keys, panel, count, out, plain);
    case DType::b8:
      return gather<std::uint8_t>(table, rows, keys, panel, count, out,
                                  [](std::uint8_t x) { return x != 0 ? 1.0f : 0.0f; });
    default:
      return;  // integers are never gathered
  }
}
}  // namespace

Mod bind(const mods::Program* program, const mods::Table* tables, std::int64_t table_count) {
  Mod mod;
  if (!program) return mod;
  mod.program = program, mod.tables = tables, mod.table_count = table_count;
  mod.slots = program->slots.data(), mod.slot_count = static_cast<std::int64_t>(program->slots.size());
  mod.steps = program->steps.data(), mod.step_count = static_cast<std::int64_t>(program->steps.size());
  mod.buffers = program->buffers, mod.result = program->result;
  mod.wide = program->wide.empty() ? nullptr : program->wide.data();
  for (const mods::Slot& slot : program->slots) mod.by_rows |= slot.by_rows;
  return mod;
}

std::int64_t mod_floats(const Mod& mod, std::int64_t padded_rows, std::int64_t k_block, std::int64_t panel) {
  if (!mod) return 0;
  const Mod wide = bind(mod.wide, mod.tables, mod.table_count);
  return mod.slot_count * slot_stride(mod, padded_rows, k_block, panel) +
         wide.slot_count * slot_stride(wide, padded_rows, k_block, panel) +
         (std::max(mod.buffers, wide.buffers) + 1) * strip_keys * panel;
}

void fill_rows(const Tile& tile, const Mod& mod, std::int64_t padded_rows, std::int64_t panel, Slots& slots) {
  Coordinates& c = coordinates();
  const auto n = static_cast<std::size_t>(padded_rows);
  c.h.resize(n), c.q.resize(n);
  for (std::size_t i = 0; i < n; ++i) coordinates_of_row(tile, static_cast<std::int64_t>(i), c.h[i], c.q[i]);
  slots.rows_exact = true, slots.next_key = -1;
  for (std::int64_t i = 0; i < mod.slot_count; ++i) {
    const mods::Slot& slot = mod.slots[i];
    float* at = slots.at + i * slots.stride;
    if (slot.axis == Axis::uniform)
      slots.rows_exact &= mods::evaluate_line(slot.graph, {origin(tile)}, 1, tables_of(mod), at);
    else if (slot.axis == Axis::row)
      slots.rows_exact &=
          mods::evaluate_line(slot.graph, {origin(tile), c.h.data(), c.q.data()}, padded_rows, tables_of(mod), at);
    if (slot.indices.empty()) continue;
    std::int64_t* parts = row_parts(slots, i, panel);
    std::fill_n(parts, padded_rows, 0);
    for (std::size_t axis = 0; axis < slot.indices.size(); ++axis)
      if (slot.indices[axis].axis != Axis::key)
        add_index(mod, slot, axis, {origin(tile), c.h.data(), c.q.data()}, padded_rows, parts);
  }
}

void fill_keys(const Tile& tile, const Mod& mod, std::int64_t padded_rows, std::int64_t panel, std::int64_t key,
               std::int64_t keys, Slots& slots) {
  Coordinates& c = coordinates();
  slots.exact = slots.rows_exact;
  const auto n = static_cast<std::size_t>(padded_rows + keys);
  c.k.resize(n), c.q.resize(n);
  for (std::size_t i = 0; i < static_cast<std::size_t>(keys); ++i) c.k[i] = key + static_cast<std::int64_t>(i);
  // Distances from (first query - last key) on, as queries seen from the last key. Those of the block before stand
  // `keys` places further: they move, the new ones come before them.
  const bool moves = slots.next_key == key;
  const std::int64_t all = padded_rows + keys - 1, fresh = moves ? std::min(keys, all) : all;
  for (std::size_t i = 0; i < static_cast<std::size_t>(fresh); ++i)
    c.q[i] = tile.q_position + static_cast<std::int64_t>(i);
  mods::Point last = origin(tile);
  last.k = key + keys - 1;
  for (std::int64_t i = 0; i < mod.slot_count; ++i) {
    const mods::Slot& slot = mod.slots[i];
    float* at = slots.at + i * slots.stride;
    if (slot.axis == Axis::key) {
      slots.exact &=
          mods::evaluate_line(slot.graph, {origin(tile), nullptr, nullptr, c.k.data()}, keys, tables_of(mod), at);
    } else if (slot.axis == Axis::distance) {
      if (moves) std::copy_backward(at, at + (all - fresh), at + all);
      slots.exact &= mods::evaluate_line(slot.graph, {last, nullptr, c.q.data()}, fresh, tables_of(mod), at);
    }
    if (slot.indices.empty()) continue;
    std::int64_t* parts = key_parts(slots, i, panel, padded_rows);
    std::fill_n(parts, keys, 0);
    for (std::size_t axis = 0; axis < slot.indices.size(); ++axis)
      if (slot.indices[axis].axis == Axis::key)
        add_index(mod, slot, axis, {origin(tile), nullptr, nullptr, c.k.data()}, keys, parts);
  }
  slots.first_key = key, slots.next_key = key + keys;
}

void fill_by_rows(const Tile& tile, const Mod& mod, std::int64_t first_row, std::int64_t panel, std::int64_t key,
                  std::int64_t keys, Slots& slots) {
  Coordinates& c = coordinates();
  // As fill_keys() has them: distances are queries seen from the last key.
  const std::int64_t distances = tile.queries + keys - 1;
  c.k.resize(static_cast<std::size_t>(keys)), c.q.resize(static_cast<std::size_t>(distances));
  c.out.resize(static_cast<std::size_t>(distances));
  for (std::size_t i = 0; i < c.k.size(); ++i) c.k[i] = key + static_cast<std::int64_t>(i);
  for (std::size_t i = 0; i < c.q.size(); ++i) c.q[i] = tile.q_position + static_cast<std::int64_t>(i);
  const float* values = c.out.data();
  const std::int64_t last = std::min(first_row + panel, tile.rows()) - 1;
  slots.by_rows_exact = true;
  for (std::int64_t i = 0; i < mod.slot_count; ++i) {
    const mods::Slot& slot = mod.slots[i];
    if (!slot.by_rows) continue;
    float* at = slots.at + i * slots.stride;
    const auto evaluate = [&](std::int64_t head) {
      mods::Line line{origin(tile)};
      line.at.h = tile.first_head + head, line.at.k = key + keys - 1;
      std::int64_t count = 1;
      if (slot.within == Axis::key) line.k = c.k.data(), count = keys;
      if (slot.within == Axis::distance) line.q = c.q.data(), count = distances;
      slots.by_rows_exact &= mods::evaluate_line(slot.graph, line, count, tables_of(mod), c.out.data());
    };
    for (std::int64_t lane = 0; lane < panel; ++lane) {
      const std::int64_t row = std::min(first_row + lane, last);  // lanes past the last row repeat it
      if (lane == 0 || (row % tile.queries == 0 && first_row + lane == row)) evaluate(row / tile.queries);
      const std::int64_t query = row % tile.queries;
      for (std::int64_t j = 0; j < keys; ++j)
        at[j * panel + lane] = values[slot.within == Axis::distance ? query + keys - 1 - j
                                      : slot.within == Axis::key    ? j
                                                                    : 0];
    }
  }
}

bool fill_pairs(const Tile& tile, const Mod& mod, std::int64_t padded_rows, std::int64_t first_row, std::int64_t panel,
                std::int64_t key, std::int64_t keys, const float* s, Transpose transpose, Slots& slots) {
  bool exact = true;
  for (std::int64_t i = 0; i < mod.slot_count; ++i) {
    const mods::Slot& slot = mod.slots[i];
    float* at = slots.at + i * slots.stride;
    if (slot.axis != Axis::pair || slot.by_rows) continue;
    if (slot.indices.empty()) exact &= evaluate_graph(tile, mod, slot.graph, first_row, panel, key, keys, s, at);
    else
      gather(mod.tables[slot.capture], row_parts(slots, i, panel) + first_row,
             key_parts(slots, i, panel, padded_rows) + key - slots.first_key, panel, keys, transpose, at);
  }
  return exact;
}

void apply_each(Op op, const float* a, const float* b, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const mods::Value x{0, static_cast<double>(a[i])}, y{0, static_cast<double>(b[i])};
    out[i] = static_cast<float>(mods::compute(op, Type::real, x, y, y).r);
  }
}

}  // namespace tessera::cpu
