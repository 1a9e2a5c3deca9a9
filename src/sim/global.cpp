// Global memory: the regions that a kernel may touch, their history in a checked build, and what orders blocks: fences,
// atomic operations, loads that acquire and stores that release.
#include <sys/mman.h>

#include <algorithm>
#include <unordered_map>

#include "sim/machine.hpp"
#include "sim/shadow.hpp"

namespace tessera::sim {
namespace {

// The history of a region, one for each thread of the host that launches; pages come when they are touched.
struct Histories {
  struct One {
    GlobalCell* cells = nullptr;
    std::size_t bytes = 0;
  };
  std::unordered_map<u64, One> of;  // by the region's id
  static void drop(const One& x) { munmap(x.cells, x.bytes); }
  ~Histories() {
    for (const auto& [id, x] : of) drop(x);
  }
};
thread_local Histories histories;

u64 base_of(const RegionInfo& r) { return reinterpret_cast<u64>(r.begin) & ~u64{3}; }

GlobalCell* cells_of(const RegionInfo& r) {
  GlobalCell*& known = m->global[std::size_t(&r - m->regions->data())];
  if (known) return known;
  const auto [found, fresh] = histories.of.try_emplace(r.id);
  if (fresh) {
    const std::size_t bytes = (std::size_t(r.end - r.begin) / 4 + 2) * sizeof(GlobalCell);
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    found->second = {static_cast<GlobalCell*>(at), bytes};
  }
  return known = found->second.cells;
}

// The region of an access. Null: nothing is registered.
const RegionInfo* need_region(const void* p, u64 bytes, const char* what, const void* pc) {
  const char* at = static_cast<const char*>(p);
  const RegionInfo* r = m->region;
  if (r && at >= r->begin && at + bytes <= r->end) [[likely]]
    return r;
  if (m->regions->empty()) return nullptr;
  r = region_at(*m->regions, p);
  if (!r || at + bytes > r->end)
    fatal("out of bounds", pc,
          std::string(what) + " of " + std::to_string(bytes) + " bytes: " + near_text(*m->regions, p));
  return m->region = r;
}

std::string name_of(const RegionInfo& r, u64 word) {
  return "'" + r.name + "' at byte " + std::to_string(i64(base_of(r) + word * 4 - reinterpret_cast<u64>(r.begin)));
}

constexpr u32 looks_for_writes = 4;  // beside Flag: the access is ld.global.nc

Flagword& flagword(const void* p) { return m->flagwords[p]; }

void need_word(const void* p, const char* what, const void* pc) {
  if (reinterpret_cast<u64>(p) % 4)
    fatal("alignment", pc, std::string(what) + " needs an address that is a multiple of 4");
  if (in_smem(p, 1))
    fatal("out of bounds", pc, std::string(what) + " of shared memory: it is an instruction on global memory");
}

// A loop that waits: others run first. When every thread only waits, that is a deadlock.
void waiting_for(const void* p, u32 value, const void* pc) {
  Thread* t = self();
  if (t->spin_at != p || t->spin_value != value) {
    t->spin_at = p;
    t->spin_value = value;
    m->spins = 0;
    maybe_preempt();
    return;
  }
  t->wait = {"a word of global memory", p, value, pc};
  u64 threads = 0;
  for (const auto& b : m->blocks) threads += b->live;
  if (++m->spins > threads && progress()) m->spins = 0;  // the others may wait for a copy
  if (m->spins > 1000 + 64 * threads) fatal("deadlock", pc, deadlock_text());
  let_others_run();
  t->wait.what = nullptr;
}

void publish(u32* p, bool release, bool adds) {
  m->spins = 0;
  self()->spin_at = nullptr;
  if (!m->checked) return;
  Thread* t = self();
  Flagword& f = flagword(p);
  const Seen mine = release ? stamp(t) : t->fenced;
  f.released = adds ? merged(f.released, mine) : mine;
  if (release) tick(t);
}
void observe(const u32* p, bool acquire) {
  if (!m->checked) return;
  const Seen& seen = flagword(p).released;
  if (!seen) return;
  if (acquire) join_seen(self(), seen);
  else self()->unfenced = merged(self()->unfenced, seen);
}

template <class T, class F>
T read_modify_write(T* p, const char* what, F&& change, const void* pc) {
  need_word(p, what, pc);
  if (m->checked) global_access(p, 4, now(self()), writes | atomic, what, pc);
  u32* word = reinterpret_cast<u32*>(p);
  observe(word, false);
  const T old = *p;
  *p = change(old);
  if (__builtin_memcmp(&old, p, 4) == 0) {
    waiting_for(p, *word, pc);  // may be how it waits: an exchange that changes nothing
    return old;
  }
  publish(word, false, true);
  maybe_preempt();
  return old;
}

}  // namespace

void global_access(const void* p, u64 bytes, Clock clock, u32 flags, const char* what, const void* pc) {
  global_access_by(self()->tid, p, bytes, clock, flags, what, pc);
}

void global_access_by(u32 who, const void* p, u64 bytes, Clock clock, u32 flags, const char* what, const void* pc) {
  const RegionInfo* r = need_region(p, bytes, what, pc);
  if (!r) return;
  if (r->content == Content::constant) {
    if (flags & writes) report("write to an input", pc, "'" + r->name + "' is not to be written");
    return;
  }
  Thread* t = self();
  const u64 at = reinterpret_cast<u64>(p) - base_of(*r);
  GlobalCell* cells = cells_of(*r);
  for (u64 word = at / 4, last = (at + bytes - 1) / 4; word <= last; ++word) {
    const u8 mask = bytes_of_word(at, bytes, word);
    if (u8* written = r->written.get()) {
      if (flags & writes) {
        written[word] |= mask;
      } else if ((written[word] & mask) != mask) {
        report("uninitialised", pc, name_of(*r, word) + " is read and was never written");
        written[word] |= mask;
      }
    }
    const Entry entry{clock, t->block->serial, pc_offset(pc), u16(who), mask, u8(flags & (writes | atomic))};
    if (flags & looks_for_writes) {
      for (const Entry& x : cells[word].e)
        if (x.mask & mask && x.block >= m->first_serial && x.flags & writes)
          report("read-only load", pc,
                 name_of(*r, word) + " is read by ld.global.nc and was written in this launch at " +
                     where(m->code.text_begin + x.pc));
      continue;
    }
    touch(
        cells[word].e, entry, m->first_serial, [&](const Entry& x) { return ordered(x, t); },
        [&](const Entry& x) { race(x, entry, name_of(*r, word), pc); });
  }
}

void global_land(const void* p, u64 bytes, const Thread* by) { global_land(p, bytes, by, by->tid, not_yet, now(by)); }

void global_land(const void* p, u64 bytes, const Thread* by, u32 who, Clock number, Clock clock) {
  const RegionInfo* r = need_region(p, bytes, "asynchronous copy", nullptr);
  if (!r || r->content == Content::constant) return;
  const u64 at = reinterpret_cast<u64>(p) - base_of(*r);
  GlobalCell* cells = cells_of(*r);
  for (u64 word = at / 4, last = (at + bytes - 1) / 4; word <= last; ++word)
    for (Entry& x : cells[word].e)
      if (x.block == by->block->serial && x.who == who && x.clock == number) x.clock = clock;
}

void bad_global(const void* p, u32 bytes) {
  if (reinterpret_cast<u64>(p) % bytes)
    fatal("alignment", TESSERA_SIM_PC,
          "an access of " + std::to_string(bytes) + " bytes at " + near_text(*m->regions, p) +
              ", which is no multiple of its width");
  fatal("out of bounds", TESSERA_SIM_PC, "an instruction on global memory has an address in shared memory");
}

void read_only(const void* p, u32 bytes) {
  global_access(p, bytes, now(self()), looks_for_writes, "ld.global.nc", TESSERA_SIM_PC);
}

u32 load_sync(const u32* p, bool acquire) {
  need_word(p, "load", TESSERA_SIM_PC);
  if (m->checked) global_access(p, 4, now(self()), atomic, "load", TESSERA_SIM_PC);
  waiting_for(p, *p, TESSERA_SIM_PC);
  const u32 x = *p;  // after the others ran
  observe(p, acquire);
  return x;
}

void store_sync(u32* p, u32 x, bool release) {
  need_word(p, "store", TESSERA_SIM_PC);
  if (m->checked) global_access(p, 4, now(self()), writes | atomic, "store", TESSERA_SIM_PC);
  *p = x;
  publish(p, release, false);
  maybe_preempt();
}

void threadfence() {
  if (!m->checked) return;
  Thread* t = self();
  join_seen(t, t->unfenced);
  t->unfenced = nullptr;
  t->fenced = stamp(t);
  tick(t);
}

u32 atomic_add(u32* p, u32 x) {
  return read_modify_write(
      p, "atomic add", [&](u32 old) { return old + x; }, TESSERA_SIM_PC);
}
u32 atomic_or(u32* p, u32 x) {
  return read_modify_write(
      p, "atomic or", [&](u32 old) { return old | x; }, TESSERA_SIM_PC);
}
u32 atomic_max(u32* p, u32 x) {
  return read_modify_write(
      p, "atomic max", [&](u32 old) { return std::max(old, x); }, TESSERA_SIM_PC);
}
float atomic_add(float* p, float x) {
  return read_modify_write(
      p, "atomic add", [&](float old) { return old + x; }, TESSERA_SIM_PC);
}

// Histories of regions that are gone.
void forget_histories(const Regions& regions) {
  std::erase_if(histories.of, [&](const auto& item) {
    const bool gone = std::none_of(regions.begin(), regions.end(), [&](const auto& r) { return r.id == item.first; });
    if (gone) Histories::drop(item.second);
    return gone;
  });
}

}  // namespace tessera::sim
