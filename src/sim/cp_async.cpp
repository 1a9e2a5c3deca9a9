// Asynchronous copies. Until its wait, what a copy writes is poison, and the bytes are fetched as late as the wait (or
// at once, or either at random: Timing).
#include <cstring>

#include "sim/machine.hpp"

namespace tessera::sim {
namespace {

void move(const Copy& c) {
  m->copy_pc = c.pc;  // should the source not be there
  std::memcpy(c.dst, c.src, c.src_bytes);
  std::memset(c.dst + c.src_bytes, 0, c.bytes - c.src_bytes);
  m->copy_pc = nullptr;
}

}  // namespace

void cp_async(void* dst, const void* src, u32 bytes, u32 src_bytes) {
  Thread* t = self();
  const void* pc = TESSERA_SIM_PC;
  need_smem(dst, bytes, bytes, "cp.async", pc);
  if (reinterpret_cast<u64>(src) % bytes)
    fatal("alignment", pc,
          "cp.async of " + std::to_string(bytes) + " bytes from " + near_text(*m->regions, src) +
              ", which is no multiple of that");
  if (src_bytes > bytes)
    fatal("cp.async", pc, "asked to read " + std::to_string(src_bytes) + " of " + std::to_string(bytes) + " bytes");
  if (src_bytes && in_smem(src, 1)) fatal("out of bounds", pc, "cp.async reads shared memory");
  if (m->checked) {
    if (src_bytes) global_access(src, src_bytes, not_yet, 0, "cp.async read", pc);
    shared_access(offset(dst), bytes, not_yet, writes, pc);
  }
  Copy c{static_cast<char*>(dst), static_cast<const char*>(src), bytes, src_bytes, pc, false, false};
  if (m->schedule.timing == Timing::eager || (m->schedule.timing == Timing::random && m->random() & 1)) {
    move(c);
    c.done = true;
  } else {
    std::memset(c.dst, 0xff, bytes);
  }
  t->copies.push_back(c);
}

void cp_async_commit() {
  Thread* t = self();
  u32 grouped = 0;
  for (const u32 n : t->copy_groups) grouped += n;
  t->copy_groups.push_back(u32(t->copies.size()) - grouped);
}

// An arrival of its own when all copies so far have landed, which is some time later.
void cp_async_mbarrier_arrive(void* word) {
  Thread* t = self();
  const void* pc = TESSERA_SIM_PC;
  MBar& bar = mbar_at(word, "cp.async.mbarrier.arrive", pc);
  for (Copy& c : t->copies) c.counted = true;
  Event e;
  e.by = t;
  e.barrier = u32(&bar - t->block->mbars.data());
  e.counted = t->copies_gone + u32(t->copies.size());
  e.copy.pc = pc;
  e.is_arrival = true;
  if (m->checked) {
    e.clocks.assign(t->vc, t->vc + m->clocks);
    e.seen = t->seen;
    tick(t);
  }
  m->events.push_back(std::move(e));
}

void land_copies(Event& e) {
  Thread* t = e.by;
  for (u32 i = 0; t->copies_gone + i < e.counted && i < t->copies.size(); ++i) {
    Copy& c = t->copies[i];
    if (!c.done) move(c);
    c.done = true;
    if (!m->checked) continue;
    const Clock clock = e.clocks[t->tid];
    shared_land(*t->block, offset(c.dst), c.bytes, t->tid, not_yet, clock);
    if (c.src_bytes) global_land(c.src, c.src_bytes, t, t->tid, not_yet, clock);
  }
  while (t->copy_groups.empty() && !t->copies.empty() && t->copies.front().done && t->copies.front().counted) {
    t->copies.erase(t->copies.begin());
    ++t->copies_gone;
  }
}

void cp_async_wait(u32 left) {
  Thread* t = self();
  if (t->copy_groups.size() <= left) return;
  const std::size_t groups = t->copy_groups.size() - left;
  u32 n = 0;
  for (std::size_t i = 0; i < groups; ++i) n += t->copy_groups[i];
  for (u32 i = 0; i < n; ++i) {
    const Copy& c = t->copies[i];
    if (!c.done) move(c);
    if (!m->checked) continue;
    shared_land(offset(c.dst), c.bytes, t);
    if (c.src_bytes) global_land(c.src, c.src_bytes, t);
  }
  t->copies.erase(t->copies.begin(), t->copies.begin() + n);
  t->copies_gone += n;
  t->copy_groups.erase(t->copy_groups.begin(), t->copy_groups.begin() + i64(groups));
}

void finish_copies(Thread* t) {
  for (const Copy& c : t->copies)
    if (!c.counted) return report("cp.async", c.pc, "a copy was not waited for before its thread ended");
}

}  // namespace tessera::sim
