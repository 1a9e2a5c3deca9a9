// Barriers of the block: __syncthreads, bar.sync, bar.arrive, bar.red.
#include <algorithm>

#include "sim/machine.hpp"

namespace tessera::sim {
namespace {

void arrive(u32 id, u32 threads, bool wait, bool votes, bool x, const void* pc) {
  Thread* t = self();
  Block& b = *t->block;
  if (threads == 0) threads = t->block_dim.x;
  if (id > 15 || threads % 32 || threads > t->block_dim.x)
    fatal("barrier", pc,
          "barrier " + std::to_string(id) + " for " + std::to_string(threads) +
              " threads: ids are 0 to 15, threads multiples of 32 up to the block's " + std::to_string(t->block_dim.x));
  NamedBarrier& bar = b.bars[id];
  if (bar.arrived == 0) {
    bar.expected = threads;
    bar.votes = votes;
  } else if (bar.expected != threads || bar.votes != votes) {
    fatal("barrier", pc,
          "barrier " + std::to_string(id) + " is used with " + std::to_string(threads) + " threads" +
              (votes ? " and a vote" : "") + " while " + std::to_string(bar.expected) + " threads" +
              (bar.votes ? " and a vote" : "") + " are expected");
  }
  bar.any |= x;
  if (m->checked) {
    bar.clocks.resize(m->clocks);
    join(bar.clocks.data(), t->vc);
    if (t->seen) bar.seen = merged(bar.seen, t->seen);
    tick(t);
  }
  if (wait) bar.waiting.push_back(t);
  if (++bar.arrived < bar.expected) {
    if (wait) block_here("barrier", &bar, threads, pc);
    else maybe_preempt();
    return;
  }
  for (Thread* other : bar.waiting) {
    if (m->checked) {
      join(other->vc, bar.clocks.data());
      if (bar.seen) join_seen(other, bar.seen);
    }
    other->vote = bar.any;
    wake(other);
  }
  bar.arrived = 0;
  bar.any = false;
  bar.waiting.clear();
  bar.seen = nullptr;
  std::fill(bar.clocks.begin(), bar.clocks.end(), 0);
  maybe_preempt();
}

}  // namespace

void barrier(u32 id, u32 threads, bool wait) { arrive(id, threads, wait, false, false, TESSERA_SIM_PC); }

bool barrier_or(u32 id, u32 threads, bool x) {
  arrive(id, threads, true, true, x, TESSERA_SIM_PC);
  return self()->vote;
}

}  // namespace tessera::sim
