// mbarriers: phases that end when all arrivals have come and all bytes have landed, and the threads that wait for one.
// The word in shared memory holds only which barrier it is, so that one that was never made, or was written over, is
// found.
#include <algorithm>
#include <cstring>

#include "sim/machine.hpp"

namespace tessera::sim {
namespace {

constexpr u64 mark = 0x6d62617272000000u;  // the low bytes hold the place in the block's list

MBar* known_at(const Block& b, const void* word) {
  u64 x = 0;
  std::memcpy(&x, word, 8);
  const u64 index = x ^ mark;
  if (index >= b.mbars.size()) return nullptr;
  MBar& bar = const_cast<MBar&>(b.mbars[index]);
  return bar.live && bar.offset == offset(word) ? &bar : nullptr;
}

void end_phase(MBar& bar) {
  ++bar.phase;
  bar.pending = bar.count;
  if (m->checked) {
    bar.gathered[bar.agent] = bar.phase;  // what was copied in this phase
    bar.ended = bar.gathered;
    std::fill(bar.gathered.begin(), bar.gathered.end(), 0);
    bar.ended_seen = std::move(bar.gathered_seen);
    bar.gathered_seen = nullptr;
  }
  for (Thread* t : bar.waiting) wake(t);
  bar.waiting.clear();
}

void settle(MBar& bar) {
  if (bar.pending == 0 && bar.bytes == 0) end_phase(bar);
}

bool has_ended(const MBar& bar, u32 parity) { return (bar.phase & 1) != parity; }

void acquire(Thread* t, const MBar& bar) {
  if (!m->checked || bar.phase == 0) return;
  join(t->vc, bar.ended.data());
  if (bar.ended_seen) join_seen(t, bar.ended_seen);
}

std::string bytes_text(const MBar& bar) {
  if (bar.bytes >= 0) return std::to_string(bar.bytes) + " bytes have not landed";
  return std::to_string(-bar.bytes) + " bytes more than expected have landed";
}

}  // namespace

std::string text_of(const MBar& bar) {
  return "at shared memory + " + hex(bar.offset) + " (made at " + where(bar.pc) + "; in phase " +
         std::to_string(bar.phase) + " " + std::to_string(bar.pending) + " of " + std::to_string(bar.count) +
         " arrivals are missing, " + bytes_text(bar) + ")";
}

MBar& mbar_at(void* word, const char* what, const void* pc) {
  need_smem(word, 8, 8, what, pc);
  Thread* t = self();
  MBar* bar = known_at(*t->block, word);
  if (!bar)
    fatal("mbarrier", pc,
          std::string(what) + " at shared memory + " + hex(offset(word)) +
              ", where no mbarrier is: it was not initialised, or something was written over it");
  if (m->checked && bar->since > t->vc[bar->by])
    report("race", pc,
           std::string(what) + " is not ordered after the initialisation of its mbarrier by " + actor(bar->by) +
               " at " + where(bar->pc));
  return *bar;
}

void mbarrier_init(void* word, u32 arrivals) {
  const void* pc = TESSERA_SIM_PC;
  Thread* t = self();
  Block& b = *t->block;
  need_smem(word, 8, 8, "mbarrier.init", pc);
  if (arrivals < 1 || arrivals > (1u << 20) - 1)
    fatal("mbarrier", pc, "an mbarrier for " + std::to_string(arrivals) + " arrivals: 1 to 2^20 - 1 are possible");
  if (known_at(b, word)) fatal("mbarrier", pc, "an mbarrier is initialised again without mbarrier.inval");
  if (b.mbars.size() == most_mbarriers)
    fatal("mbarrier", pc, "more than " + std::to_string(most_mbarriers) + " mbarriers of a block are not emulated");
  if (m->checked) shared_access(offset(word), 8, now(t), writes, pc);
  const u64 x = mark ^ b.mbars.size();
  std::memcpy(word, &x, 8);
  MBar bar;
  bar.offset = offset(word);
  bar.count = bar.pending = arrivals;
  bar.agent = m->threads * 33 / 32 + u32(b.mbars.size());
  bar.live = true;
  bar.by = t->tid;
  bar.pc = pc;
  if (m->checked) {
    bar.since = now(t);
    bar.gathered.assign(m->clocks, 0);
    bar.ended.assign(m->clocks, 0);
  }
  b.mbars.push_back(std::move(bar));
}

void mbarrier_init_fence() {
  Thread* t = self();
  for (MBar& bar : t->block->mbars) bar.fenced |= bar.by == t->tid;
}

void mbarrier_invalidate(void* word) {
  const void* pc = TESSERA_SIM_PC;
  MBar& bar = mbar_at(word, "mbarrier.inval", pc);
  if (bar.bytes != 0 || !bar.waiting.empty()) fatal("mbarrier", pc, "mbarrier.inval of one in use, " + text_of(bar));
  if (m->checked) shared_access(bar.offset, 8, now(self()), writes, pc);
  bar.live = false;
  std::memset(word, 0xff, 8);
}

void arrive(MBar& bar, u32 arrivals, i64 bytes, const Clock* clocks, const Seen& seen, const void* pc) {
  if (arrivals > bar.pending) fatal("mbarrier", pc, "more arrivals than the mbarrier was made for, " + text_of(bar));
  bar.bytes += bytes;
  if (bar.bytes > (1 << 20) - 1)
    fatal("mbarrier", pc, "more than 2^20 - 1 bytes are expected by the mbarrier " + text_of(bar));
  bar.pending -= arrivals;
  if (m->checked && arrivals) {
    join(bar.gathered.data(), clocks);
    if (seen) bar.gathered_seen = merged(bar.gathered_seen, seen);
  }
  settle(bar);
}

void landed(Block& b, u32 barrier, u32 bytes) {
  MBar& bar = b.mbars[barrier];
  bar.bytes -= bytes;
  settle(bar);
}

void mbarrier_arrive(void* word, u32 arrivals, u32 bytes) {
  const void* pc = TESSERA_SIM_PC;
  Thread* t = self();
  MBar& bar = mbar_at(word, "mbarrier.arrive", pc);
  arrive(bar, arrivals, bytes, t->vc, t->seen, pc);
  if (m->checked) tick(t);
  maybe_progress();
  maybe_preempt();
}

void mbarrier_wait(void* word, u32 parity) {
  const void* pc = TESSERA_SIM_PC;
  Thread* t = self();
  if (parity > 1) fatal("mbarrier", pc, "a wait for parity " + std::to_string(parity) + ": it is 0 or 1");
  maybe_progress();
  // The list of barriers may grow while this thread sleeps, and the phase may end twice before it runs again.
  while (!has_ended(mbar_at(word, "mbarrier.try_wait", pc), parity)) {
    MBar& bar = mbar_at(word, "mbarrier.try_wait", pc);
    bar.waiting.push_back(t);
    block_here("mbarrier", &bar, parity, pc);
  }
  acquire(t, mbar_at(word, "mbarrier.try_wait", pc));
}

bool mbarrier_test(void* word, u32 parity) {
  const void* pc = TESSERA_SIM_PC;
  Thread* t = self();
  MBar& bar = mbar_at(word, "mbarrier.test_wait", pc);
  if (!has_ended(bar, parity)) {
    t->wait = {"mbarrier", &bar, parity, pc};
    u64 threads = 0;
    for (const auto& b : m->blocks) threads += b->live;
    if (!progress() && ++m->spins > 1000 + 64 * threads) fatal("deadlock", pc, deadlock_text());
    let_others_run();
    t->wait.what = nullptr;
  }
  MBar& after = mbar_at(word, "mbarrier.test_wait", pc);
  if (!has_ended(after, parity)) return false;
  acquire(t, after);
  return true;
}

}  // namespace tessera::sim
