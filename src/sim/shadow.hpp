// The history of one word of memory: a few recent accesses, and what a new one means beside them.
// Must not know: which memory it is.
#pragma once
#include "sim/machine.hpp"

namespace tessera::sim {

inline u32 pc_offset(const void* pc) { return u32(static_cast<const char*>(pc) - m->code.text_begin); }

// Which bytes of word number `word` an access of `bytes` bytes at byte `at` touches.
inline u8 bytes_of_word(u64 at, u64 bytes, u64 word) {
  u32 mask = 15;
  if (word == at / 4) mask &= 15u << (at & 3);
  if (word == (at + bytes - 1) / 4) mask &= 15u >> (3 - ((at + bytes - 1) & 3));
  return u8(mask);
}

void race(const Entry& before, const Entry& now, const std::string& place, const void* pc);

// Compares `now` with the history, then notes it. happened(x): x happened before. Entries of blocks before
// `first_block` are of the past. An entry that happened before and is no stronger is replaced; when all slots are
// taken, a random one goes, a read rather than a write.
template <int N, class Happened, class Race>
inline void touch(Entry (&history)[N], const Entry& now, u32 first_block, Happened&& happened, Race&& on_race) {
  Entry* slot = nullptr;
  for (Entry& x : history) {
    if (!x.mask || x.block < first_block) {
      x.mask = 0;
      if (!slot) slot = &x;
      continue;
    }
    if (!(x.mask & now.mask)) continue;
    const bool before = happened(x), conflict = ((x.flags | now.flags) & writes) && !(x.flags & now.flags & atomic);
    if (!before && conflict) on_race(x);
    if (before && (now.flags & writes || !(x.flags & writes))) {
      x.mask &= u8(~now.mask);
      if (!x.mask) slot = &x;
    }
  }
  if (!slot) {
    slot = &history[m->random() % N];
    for (Entry& x : history)
      if (slot->flags & writes && !(x.flags & writes)) slot = &x;
  }
  *slot = now;
}

}  // namespace tessera::sim
