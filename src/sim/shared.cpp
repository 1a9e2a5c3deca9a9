// Shared memory: bounds and alignment, and in a checked build who may have touched what at the same time.
#include <algorithm>

#include "sim/machine.hpp"
#include "sim/shadow.hpp"

namespace tessera::sim {

void* shared_memory(u64 bytes) {
  if (bytes > me->smem_bytes)
    fatal("out of bounds", TESSERA_SIM_PC,
          "the kernel's shared memory is a struct of " + std::to_string(bytes) + " bytes, the launch gives " +
              std::to_string(me->smem_bytes));
  return me->smem;
}

u32 smem_offset(const void* p) {
  need_smem(p, 1, 1, "shared address", TESSERA_SIM_PC);
  return offset(p);
}

void trap() { fatal("trap", TESSERA_SIM_PC, "the kernel gave up"); }

void bad_smem(const void* p, u32 bytes, u32 align, const char* what, const void* pc) {
  const i64 at = static_cast<const char*>(p) - me->smem;
  if (!in_smem(p, bytes))
    fatal("out of bounds", pc,
          std::string(what) + " of " + std::to_string(bytes) + " bytes at offset " + std::to_string(at) + " of " +
              std::to_string(me->smem_bytes) + " bytes of shared memory");
  fatal("alignment", pc,
        std::string(what) + " at offset " + std::to_string(at) + " of shared memory: a multiple of " +
            std::to_string(align) + " is needed");
}

void reset_shadow(Block& b) {
  b.shadow.resize((m->smem_bytes + 3) / 4);  // old entries carry an old serial number
  b.written.assign(b.shadow.size(), 0);
}

void shared_access(u32 at, u32 bytes, Clock clock, u32 flags, const void* pc) {
  Thread* t = self();
  shared_access_by(*t->block, t->vc, t->tid, at, bytes, clock, flags, pc);
}

void shared_access_by(Block& b, const Clock* seen, u32 who, u32 at, u32 bytes, Clock clock, u32 flags, const void* pc) {
  const auto name = [](u32 word) { return "shared memory + " + hex(word * 4); };
  for (u32 word = at / 4, last = (at + bytes - 1) / 4; word <= last; ++word) {
    const u8 mask = bytes_of_word(at, bytes, word);
    if (flags & writes) {
      b.written[word] |= mask;
    } else if ((b.written[word] & mask) != mask) {
      report("uninitialised", pc, name(word) + " is read and was never written");
      b.written[word] |= mask;
    }
    const Entry entry{clock, b.serial, pc_offset(pc), u16(who), mask, u8(flags)};
    const auto happened = [&](const Entry& x) {
      if (!before(x, seen)) return false;
      if (flags & async && !(x.flags & async) && x.flags & writes && x.clock > seen[m->agents + x.who])
        report("proxy", pc,
               name(word) + ", written by " + actor(x.who) + " at " + where(m->code.text_begin + x.pc) + ", is " +
                   (flags & writes ? "overwritten" : "read") +
                   " by the asynchronous proxy without a fence_async() between");
      return true;
    };
    touch(b.shadow[word].e, entry, b.serial, happened, [&](const Entry& x) { race(x, entry, name(word), pc); });
  }
}

void shared_land(u32 at, u32 bytes, const Thread* by) { shared_land(*by->block, at, bytes, by->tid, not_yet, now(by)); }

void shared_land(Block& b, u32 at, u32 bytes, u32 who, Clock number, Clock clock) {
  for (u32 word = at / 4; word < (at + bytes) / 4; ++word)
    for (Entry& x : b.shadow[word].e)
      if (x.block == b.serial && x.who == who && x.clock == number) x.clock = clock;
}

void on_access(const void* p, u64 bytes, bool write, const void* pc) {
  if (in_smem(p, 1)) {
    need_smem(p, u32(bytes), 1, write ? "write" : "read", pc);
    shared_access(offset(p), u32(bytes), now(self()), write ? writes : 0, pc);
    return;
  }
  const char* at = static_cast<const char*>(p);
  if (at >= me->smem - red_zone && at < me->smem + me->smem_bytes + red_zone)
    bad_smem(p, u32(bytes), 1, write ? "write" : "read", pc);
  if (at >= m->code.text_begin && at < m->code.text_end) return;  // constants
  const char* params = static_cast<const char*>(m->params);
  if (at >= params && at < params + m->code.params_bytes) return;
  global_access(p, bytes, now(self()), write ? writes : 0, write ? "write" : "read", pc);
}

}  // namespace tessera::sim
