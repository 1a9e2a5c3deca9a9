// Who runs next. With seed 0, the lanes of a warp one after another, then the next warp, then the next block; with
// another, a random choice, and now and then a thread that could go on has to wait.
#include <bit>

#include "sim/machine.hpp"

namespace tessera::sim {

constinit thread_local Me* me = nullptr;
constinit thread_local Machine* m = nullptr;

void go_to(Thread* next) {
  Thread* t = self();
  if (next == t) return;
  ++m->result.switches;
  me = next;
  tessera_sim_switch(&t->warp->sp[t->lane], next->warp->sp[next->lane]);
}

namespace {

[[noreturn]] void leave() {
  void* nowhere = nullptr;
  tessera_sim_switch(&nowhere, m->main_sp);
  __builtin_unreachable();
}

// The bits from `from` on, or all of them where there are none.
template <class Bits>
Bits from(Bits bits, u32 at) {
  const Bits above = at < sizeof(Bits) * 8 ? bits >> at << at : 0;
  return above ? above : bits;
}

Thread* take(Warp& w) {
  const u32 lane = u32(std::countr_zero(from(w.ready, w.next_lane)));
  w.next_lane = (lane + 1) & 31;
  return w.lanes[lane];
}

template <class Bits>
u32 random_bit(Bits bits) {
  for (u64 skip = m->random() % u64(std::popcount(bits)); skip--;) bits &= bits - 1;
  return u32(std::countr_zero(bits));
}

// The next warp that can run, behind `w` if there is one. Null: there is none.
Warp* next_warp(const Warp* w) {
  if (!m->ready_blocks) return nullptr;
  if (m->schedule.seed) {
    Block& b = *m->blocks[random_bit(m->ready_blocks)];
    Warp& chosen = b.warps[random_bit(b.ready_warps)];
    chosen.next_lane = m->random() & 31;
    return &chosen;
  }
  if (w) {
    Block& b = *w->block;
    const u64 above = w->index < 63 ? b.ready_warps >> (w->index + 1) << (w->index + 1) : 0;
    if (above) return &b.warps[u32(std::countr_zero(above))];
  }
  Block& b = *m->blocks[u32(std::countr_zero(from(m->ready_blocks, w ? w->block->slot + 1 : 0)))];
  return &b.warps[u32(std::countr_zero(b.ready_warps))];
}

Thread* pick(bool other_warp) {
  Warp& w = *self()->warp;
  if (w.ready && !other_warp && !m->chance(32)) return take(w);
  Warp* next = next_warp(&w);
  while (!next) {
    if (!progress()) fatal("deadlock", nullptr, deadlock_text());
    next = next_warp(&w);
  }
  return take(*next);
}

}  // namespace

Thread* first_thread() {
  Warp* w = next_warp(nullptr);
  return w ? take(*w) : nullptr;
}

void wake(Thread* t) {
  t->wait.what = nullptr;
  t->warp->ready |= 1u << t->lane;
  t->block->ready_warps |= u64{1} << t->warp->index;
  m->ready_blocks |= u64{1} << t->block->slot;
  m->spins = 0;
}

void sleep_bit(Thread* t) {
  Warp& w = *t->warp;
  Block& b = *t->block;
  w.ready &= ~(1u << t->lane);
  if (w.ready) return;
  b.ready_warps &= ~(u64{1} << w.index);
  if (!b.ready_warps) m->ready_blocks &= ~(u64{1} << b.slot);
}

void block_here(const char* what, const void* object, u32 number, const void* pc) {
  Thread* t = self();
  t->wait = {what, object, number, pc};
  sleep_bit(t);
  go_to(pick(false));
}

void maybe_preempt() {
  if (m->chance(4)) go_to(pick(true));
}

void let_others_run() { go_to(pick(true)); }

void thread_main() {
  m->code.run(m->params);
  Thread* t = self();
  finish_copies(t);
  finish_stores(t);
  finish_products(t);
  t->done = true;
  m->spins = 0;
  sleep_bit(t);
  maybe_progress();
  if (--t->block->live == 0) {
    while (!m->ready_blocks && progress()) {  // the others may all wait for a copy
    }
    m->finished = t->block;
    leave();
  }
  go_to(pick(false));
  __builtin_unreachable();
}

void fatal(const char* kind, const void* pc, const std::string& text) {
  report(kind, pc, text);
  m->stopped = true;
  leave();
}

}  // namespace tessera::sim
