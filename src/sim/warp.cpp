// Instructions of a warp: a meeting of its lanes. Each lays down its operands, the last one does the work for all.
#include <algorithm>
#include <bit>

#include "sim/machine.hpp"

namespace tessera::sim {
namespace {

[[noreturn, gnu::noinline]] void divergent(const char* what, u32 number, const Warp& w, const void* pc) {
  std::string text = std::string("this lane is at ") + what + ", others of its warp wait at " + w.what;
  if (w.what == what) text += " with " + std::to_string(w.number) + " where this one has " + std::to_string(number);
  fatal("divergent warp", pc, text);
}

void synchronise(const Warp& w, u32 lanes) {
  if (!m->checked) return;
  Thread* first = w.lanes[std::countr_zero(lanes)];
  for (Thread* x : w.lanes)
    if (lanes >> x->lane & 1 && x != first) {
      join(first->vc, x->vc);
      if (x->seen) first->seen = merged(first->seen, x->seen);
    }
  for (Thread* x : w.lanes)
    if (lanes >> x->lane & 1) {
      if (x != first) {
        join(x->vc, first->vc);
        x->seen = first->seen;
      }
      tick(x);
    }
}

// Some lanes meet: those of `lanes`. Returns what they brought; `drop` when it was read.
Gathering& gather(const char* what, u32 number, u32 lanes, u32 value, const void* pc) {
  Thread* t = self();
  Warp& w = *t->warp;
  if (!(lanes >> t->lane & 1))
    fatal("divergent warp", pc, std::string(what) + " by a lane that its mask does not name");
  auto found = std::find_if(w.gatherings.begin(), w.gatherings.end(),
                            [&](const auto& g) { return g->lanes == lanes && g->arrived != lanes; });
  if (found == w.gatherings.end()) {
    for (const auto& g : w.gatherings)
      if (g->arrived != g->lanes && g->lanes & lanes)
        fatal("divergent warp", pc,
              std::string(what) + " for lanes " + hex(lanes) + ", others wait at " + g->what + " for lanes " +
                  hex(g->lanes));
    w.gatherings.push_back(std::make_unique<Gathering>(Gathering{lanes, 0, lanes, number, what, {}}));
    found = w.gatherings.end() - 1;
  }
  Gathering& g = **found;
  if (g.what != what || g.number != number)
    fatal("divergent warp", pc, std::string("this lane is at ") + what + ", others of its mask wait at " + g.what);
  g.value[t->lane] = value;
  g.arrived |= 1u << t->lane;
  if (g.arrived != lanes) {
    block_here(what, nullptr, number, pc);
  } else {
    ++m->result.meetings;
    for (Thread* x : w.lanes)
      if (lanes >> x->lane & 1 && x != t) wake(x);
  }
  return g;
}
void drop(Gathering& g) {
  Thread* t = self();
  g.left &= ~(1u << t->lane);
  if (g.left == 0) std::erase_if(t->warp->gatherings, [&](const auto& x) { return x.get() == &g; });
}

}  // namespace

bool meet(const char* what, u32 number, const void* pc) {
  Thread* t = self();
  Warp& w = *t->warp;
  ++t->meets;
  if (w.arrived == 0) {
    w.what = what;
    w.number = number;
  } else if (w.what != what || w.number != number) {
    divergent(what, number, w, pc);
  }
  w.arrived |= 1u << t->lane;
  if (w.arrived == ~0u) {
    ++m->result.meetings;
    return true;
  }
  if (!m->schedule.seed && w.ready & (w.ready - 1)) [[likely]] {  // the common step: the next lane of this warp
    t->wait = {what, nullptr, number, pc};
    w.ready &= ~(1u << t->lane);
    const u32 above = w.ready >> w.next_lane << w.next_lane;
    const u32 lane = u32(std::countr_zero(above ? above : w.ready));
    w.next_lane = (lane + 1) & 31;
    const u32 soon = (lane + 2) & 31;
    __builtin_prefetch(&w.lanes[soon]->warp);
    for (int i = 0; i < 6; ++i) __builtin_prefetch(static_cast<const char*>(w.sp[soon]) + i * 64);
    go_to(w.lanes[lane]);
  } else {
    block_here(what, nullptr, number, pc);
  }
  return false;
}

void release_warp() {
  Warp& w = *self()->warp;
  w.arrived = 0;
  w.ready = ~0u;
  w.block->ready_warps |= u64{1} << w.index;
  m->ready_blocks |= u64{1} << w.block->slot;
  m->spins = 0;
}

void syncwarp(u32 lanes) {
  if (lanes != ~0u) {
    Gathering& g = gather("__syncwarp", 0, lanes, 0, TESSERA_SIM_PC);
    // The last one to arrive joins for all: it is the first to come here.
    if (g.left == g.lanes) synchronise(*self()->warp, lanes);
    drop(g);
    return;
  }
  if (meet("__syncwarp", 0, TESSERA_SIM_PC)) {
    synchronise(*self()->warp, lanes);
    release_warp();
  }
}

u32 shfl(u32 value, u32 number, bool is_xor, u32 lanes) {
  const u32 lane = self()->lane;
  const u32 from = is_xor ? (lane ^ number) & 31 : number & 31;  // bits above are ignored, as the instruction does
  const char* what = is_xor ? "shfl.xor" : "shfl.idx";
  if (lanes != ~0u) {
    if (!(lanes >> from & 1)) fatal("divergent warp", TESSERA_SIM_PC, "shfl from a lane that its mask does not name");
    Gathering& g = gather(what, is_xor ? number : 0, lanes, value, TESSERA_SIM_PC);
    const u32 result = g.value[from];
    drop(g);
    return result;
  }
  Scratch& s = self()->warp->scratch[self()->meets & 1];
  s.value[lane] = value;
  if (meet(what, is_xor ? number : 0, TESSERA_SIM_PC)) release_warp();
  return s.value[from];
}

u32 ballot(bool x, u32 lanes) {
  const u32 lane = self()->lane;
  u32 bits = 0;
  if (lanes != ~0u) {
    Gathering& g = gather("vote", 0, lanes, x, TESSERA_SIM_PC);
    for (u32 i = 0; i < 32; ++i)
      if (lanes >> i & 1) bits |= g.value[i] << i;
    drop(g);
    return bits;
  }
  Scratch& s = self()->warp->scratch[self()->meets & 1];
  s.value[lane] = x;
  if (meet("vote", 0, TESSERA_SIM_PC)) release_warp();
  for (u32 i = 0; i < 32; ++i) bits |= s.value[i] << i;
  return bits;
}

}  // namespace tessera::sim
