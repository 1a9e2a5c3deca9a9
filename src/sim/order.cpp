// What happened before what: a vector of clocks for the actors of a block, and what a thread has seen of other blocks.
#include <algorithm>

#include "sim/machine.hpp"

namespace tessera::sim {

void join(Clock* into, const Clock* from) {
  for (u32 i = 0, n = m->clocks; i < n; ++i) into[i] = std::max(into[i], from[i]);
}

void tick(Thread* t) { ++t->vc[t->tid]; }

Seen merged(const Seen& a, const Seen& b) {
  if (!a || a == b) return b;
  if (!b) return a;
  auto both = std::make_shared<std::map<u32, std::shared_ptr<const std::vector<Clock>>>>(*a);
  for (const auto& [serial, clocks] : *b) {
    auto& mine = (*both)[serial];
    if (!mine) {
      mine = clocks;
    } else if (mine != clocks) {
      auto most = std::make_shared<std::vector<Clock>>(*mine);
      for (std::size_t i = 0; i < most->size(); ++i) (*most)[i] = std::max((*most)[i], (*clocks)[i]);
      mine = std::move(most);
    }
  }
  return both;
}

Seen stamp(const Thread* t) {
  auto all = t->seen ? std::make_shared<std::map<u32, std::shared_ptr<const std::vector<Clock>>>>(*t->seen)
                     : std::make_shared<std::map<u32, std::shared_ptr<const std::vector<Clock>>>>();
  (*all)[t->block->serial] = std::make_shared<std::vector<Clock>>(t->vc, t->vc + m->clocks);
  return all;
}

void join_seen(Thread* t, const Seen& seen) {
  if (!seen) return;
  t->seen = merged(t->seen, seen);
  const auto own = seen->find(t->block->serial);
  if (own != seen->end()) join(t->vc, own->second->data());
}

bool ordered_across(const Entry& x, const Thread* t) {
  if (x.clock == not_yet || !t->seen) return false;
  const auto found = t->seen->find(x.block);
  return found != t->seen->end() && x.clock <= (*found->second)[x.who];
}

}  // namespace tessera::sim
