// What a mod's program reads while the kernel walks an item: the slots, filled here in code without an instruction set
// of its own. Measurements: docs/kernels/cpu.md.
// Must not know: plans, threads.
#pragma once
#include <cstdint>

#include "mods/program.hpp"

namespace tessera::cpu {

struct Tile;

// A program bound to its tensors. Plain pointers: the kernels' code must not use the standard library.
struct Mod {
  const mods::Program* program = nullptr;  // null: there is none
  const mods::Table* tables = nullptr;
  std::int64_t table_count = 0;
  const mods::Slot* slots = nullptr;
  std::int64_t slot_count = 0;
  const mods::Step* steps = nullptr;
  std::int64_t step_count = 0, buffers = 0;
  bool by_rows = false;  // some slot is
  mods::Operand result;
  const mods::Program* wide = nullptr;  // what stands in where integers are too large; may be null

  explicit operator bool() const { return program != nullptr; }
};
// program: may be null. It and the tables outlive the mod.
Mod bind(const mods::Program* program, const mods::Table* tables, std::int64_t table_count);

// Keys that the steps work on at a time: a value of a strip, and some more, stay in L1.
inline constexpr std::int64_t strip_keys = 16;

// Slots of one item, side by side at `stride` floats: of a row [rows], of a key [keys of the block], of the distance
// [rows + keys of the block - 1] from the farthest key on, of pairs [keys of the strip][panel], behind which the parts
// of the addresses lie: int64 [rows], int64 [keys of the block]. Of pairs by rows: [keys of the block][panel].
struct Slots {
  float* at = nullptr;
  std::int64_t stride = 0;
  // Whether the integers among the slots are small enough for the steps.
  bool rows_exact = true, exact = true, by_rows_exact = true;
  std::int64_t first_key = 0, next_key = -1;  // of the block that is filled; the distances of the next follow on
};
inline std::int64_t slot_stride(const Mod& mod, std::int64_t padded_rows, std::int64_t k_block, std::int64_t panel) {
  const std::int64_t floats = strip_keys * panel + 2 * (padded_rows + k_block), by_rows = k_block * panel;
  return ((mod.by_rows && by_rows > floats ? by_rows : floats) + 15) / 16 * 16;
}

// Of scratch: the slots, those of the wide program, the steps' buffers, and the values of a strip.
std::int64_t mod_floats(const Mod& mod, std::int64_t padded_rows, std::int64_t k_block, std::int64_t panel);

// Once an item, then once a block of keys [key, key + keys) in ascending order.
void fill_rows(const Tile& tile, const Mod& mod, std::int64_t padded_rows, std::int64_t panel, Slots& slots);
void fill_keys(const Tile& tile, const Mod& mod, std::int64_t padded_rows, std::int64_t panel, std::int64_t key,
               std::int64_t keys, Slots& slots);
// Once a panel and block: the slots of pairs by rows. first_row: of the panel.
void fill_by_rows(const Tile& tile, const Mod& mod, std::int64_t first_row, std::int64_t panel, std::int64_t key,
                  std::int64_t keys, Slots& slots);
// out [count][panel] = scale * rows[panel][count], of one instruction set.
using Transpose = void (*)(const float* const* rows, std::int64_t count, float scale, float* out);
// Whether the integers among the slots of pairs are small enough for the steps, and these slots for rows [first_row,
// first_row + panel) and keys [key, key + keys); s: their scores [keys][panel].
bool fill_pairs(const Tile& tile, const Mod& mod, std::int64_t padded_rows, std::int64_t first_row, std::int64_t panel,
                std::int64_t key, std::int64_t keys, const float* s, Transpose transpose, Slots& slots);
// Operations without a vector form: out[i] = op(a[i], b[i]).
void apply_each(Op op, const float* a, const float* b, std::int64_t count, float* out);

}  // namespace tessera::cpu
