// The warpgroup's tensor core. A product is only noted when it is asked for: its accumulators become poison in the
// threads' registers, and it is calculated when a wait needs it, from what shared memory holds then (or, with another
// Timing, at once or at random). Each thread asks by itself; the product is the warpgroup's once all 128 have.
#include "sim/wgmma.hpp"

#include <algorithm>
#include <cstring>
#include <deque>

#include "sim/machine.hpp"

namespace tessera::sim {

namespace {

struct Accumulators {  // of one product or several in a row, as long as they are in flight
  u32 n = 0, last = 0, given_back = 0;
  float* lane[128] = {};        // the threads' registers; null: not yet, or given back
  std::vector<float> values{};  // [64][n]
};

struct Product {
  u32 n = 0, asked = 0, waited = 0;
  u64 a = 0, b = 0;
  bool a_registers = false, a_mn = false, b_mn = false, accumulate = false, done = false;
  Half type{};
  std::shared_ptr<Accumulators> d{};
  u32 fragment[128][4];
  const u32* from[128] = {};
  const void* pc = nullptr;
  // What each warp had seen: of lane 0 all, of the others what they did themselves.
  std::vector<Clock> seen[4]{};
  Clock own[128], own_fenced[128];
};

}  // namespace

struct Warpgroup {
  u32 first = 0;  // number of products[0]
  std::deque<Product> products{};
  std::vector<std::shared_ptr<Accumulators>> in_flight{};
  std::vector<Thread*> waiting{};
};

Block::Block() = default;
Block::~Block() = default;

void start_warpgroups(Block& b) {
  b.warpgroups.clear();
  for (u32 i = 0; i < m->threads / 128; ++i) b.warpgroups.push_back(std::make_unique<Warpgroup>());
}

namespace {

u32 index_of(const Thread* t) { return t->tid % 128; }

Warpgroup& warpgroup_of(Thread* t, const char* what, const void* pc) {
  if (t->tid / 128 >= t->block->warpgroups.size())
    fatal("wgmma", pc, std::string(what) + " by a warp that is in no whole warpgroup of four");
  return *t->block->warpgroups[t->tid / 128];
}

Operand need_operand(u64 descriptor, bool mn_major, const void* pc) {
  const char* wrong;
  const Operand x = decoded(descriptor, mn_major, &wrong);
  if (wrong) fatal("descriptor", pc, std::string(wrong) + " (" + hex(descriptor) + ")");
  return x;
}

void need_pieces(const Operand& x, bool mn_major, u32 rows, const char* which, const void* pc) {
  u32 last = 0;
  each_piece(x, mn_major, 0, rows, [&](u32 at, u32, u32) { last = std::max(last, at); });
  if (last + 16 > m->smem_bytes)
    fatal("out of bounds", pc,
          std::string("operand ") + which + " of a product reaches offset " + std::to_string(last + 16) + " of " +
              std::to_string(m->smem_bytes) + " bytes of shared memory");
}

// All have asked: what it reads is fixed, and is compared with what every warp has seen.
void note_reads(Block& b, u32 group, Product& p, u32 number) {
  const u32 first = group * 128;
  for (u32 w = 0; w < 4; ++w)
    for (u32 l = 0; l < 32; ++l) {
      const u32 i = w * 32 + l;
      Clock &seen = p.seen[w][first + i], &fenced = p.seen[w][m->agents + first + i];
      seen = std::max(seen, p.own[i]);
      fenced = std::max(fenced, p.own_fenced[i]);
    }
  const Clock clock = number + 1;
  const u32 core = tensor_core(group * 4);
  if (!p.a_registers) {
    const Operand x = need_operand(p.a, p.a_mn, p.pc);
    for (u32 w = 0; w < 4; ++w)  // each warp reads its own rows
      each_piece(x, p.a_mn, w * 16, 16, [&](u32 at, u32, u32) {
        shared_access_by(b, p.seen[w].data(), core + w, at, 16, clock, async, p.pc);
      });
  }
  std::vector<Clock>& all = p.seen[0];
  for (u32 w = 1; w < 4; ++w)
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = std::min(all[i], p.seen[w][i]);
  const Operand x = need_operand(p.b, p.b_mn, p.pc);
  each_piece(x, p.b_mn, 0, p.n, [&](u32 at, u32, u32) {
    shared_access_by(b, all.data(), core, at, 16, clock, async | of_warpgroup, p.pc);
  });
  for (auto& seen : p.seen) seen.clear();
}

void calculate(Product& p) {
  alignas(64) static thread_local float a[16 * 64], b[16 * 256];
  Accumulators& d = *p.d;
  if (!p.accumulate) std::fill(d.values.begin(), d.values.end(), 0.0f);
  if (p.a_registers)
    for (u32 i = 0; i < 128; ++i) scatter_fragment(p.fragment[i], i, p.type, a);
  else gather(me->smem, need_operand(p.a, p.a_mn, p.pc), p.a_mn, 64, p.type, a, 64);
  gather(me->smem, need_operand(p.b, p.b_mn, p.pc), p.b_mn, p.n, p.type, b, p.n);
  multiply_add(d.values.data(), a, b, p.n);
  p.done = true;
}

// The registers of a thread leave its hands.
void take(Thread* t, Accumulators& d, float* registers, bool accumulate, const void* pc) {
  const u32 i = index_of(t);
  const auto fenced = t->fenced_at.find(registers);
  if (t->fences == (fenced == t->fenced_at.end() ? 0 : fenced->second))
    report("wgmma", pc, "accumulators go to a product without a wgmma_fence() since they were last the thread's");
  d.lane[i] = registers;
  if (accumulate)
    for (u32 k = 0; k < d.n / 2; ++k) d.values[accumulator_place(i, k, d.n)] = registers[k];
  std::memset(registers, 0xff, d.n * 2);
  const char* begin = reinterpret_cast<const char*>(registers);
  t->in_products.push_back({begin, begin + d.n * 2, true, pc});
  ++t->flying;
}

void give_back(Thread* t, const void* registers) {
  const auto found = std::find_if(t->in_products.begin(), t->in_products.end(),
                                  [&](const Thread::Range& r) { return r.begin == registers; });
  t->in_products.erase(found);
  t->flying = u32(t->in_products.size());
  t->fenced_at[registers] = t->fences;
}

// True when the last thread has them back.
bool deliver(Thread* t, Accumulators& d, const void* pc) {
  const u32 i = index_of(t);
  float* const registers = d.lane[i];
  if (!registers) return false;
  bool touched = false;
  for (u32 k = 0; k < d.n / 2; ++k) {
    touched |= __builtin_bit_cast(u32, registers[k]) != 0xffffffffu;
    registers[k] = d.values[accumulator_place(i, k, d.n)];
  }
  if (touched) report("registers in flight", pc, "accumulators were written between their product and the wait");
  give_back(t, registers);
  d.lane[i] = nullptr;
  return ++d.given_back == 128;
}

void ask(float* d, u32 n, u64 a, const u32* fragment, u64 b, bool a_mn, bool b_mn, bool accumulate, Half type,
         const void* pc) {
  Thread* t = self();
  Block& block = *t->block;
  Warpgroup& group = warpgroup_of(t, "wgmma", pc);
  const u32 i = index_of(t), number = t->products++;
  if (number - group.first == group.products.size()) {
    Product& p = group.products.emplace_back();
    p.n = n, p.a = a, p.b = b, p.a_registers = fragment, p.a_mn = a_mn, p.b_mn = b_mn, p.accumulate = accumulate;
    p.type = type, p.pc = pc;
    for (auto& x : group.in_flight)
      if (x->lane[i] == d) p.d = x;
    if (!p.d) {
      p.d = std::make_shared<Accumulators>();
      p.d->n = n;
      p.d->values.resize(std::size_t(64) * n);
      group.in_flight.push_back(p.d);
    }
    p.d->last = number;
    need_pieces(need_operand(b, b_mn, pc), b_mn, n, "B", pc);
    if (!fragment) need_pieces(need_operand(a, a_mn, pc), a_mn, 64, "A", pc);
  }
  Product& p = group.products[number - group.first];
  if (p.n != n || p.a != a || p.b != b || p.accumulate != accumulate || p.a_registers != (fragment != nullptr) ||
      p.a_mn != a_mn || p.b_mn != b_mn || p.type != type)
    fatal("divergent warpgroup", pc,
          "the threads of a warpgroup ask for different products (descriptors " + hex(a) + " and " + hex(b) +
              ", others " + hex(p.a) + " and " + hex(p.b) + "; accumulate " + (accumulate ? "true" : "false") +
              ", others " + (p.accumulate ? "true" : "false") + "), at " + where(p.pc));
  Accumulators& acc = *p.d;
  if (acc.n != n)
    fatal("wgmma", pc, "accumulators in flight are used by a product of another width without a wait between");
  if (acc.lane[i] != d) {
    if (acc.lane[i])
      fatal("divergent warpgroup", pc, "the threads of a warpgroup chain products on different accumulators");
    take(t, acc, d, accumulate, pc);
  }
  if (fragment) {
    std::memcpy(p.fragment[i], fragment, 16);
    p.from[i] = fragment;
    const auto known = t->fenced_at.find(fragment);
    if (t->fences == (known == t->fenced_at.end() ? 0 : known->second))
      report("wgmma", pc, "A in registers goes to a product without a wgmma_fence() since it was last the thread's");
    const char* begin = reinterpret_cast<const char*>(fragment);
    t->in_products.push_back({begin, begin + 16, false, pc});
    ++t->flying;
  }
  if (m->checked) {
    if (t->lane == 0) p.seen[i / 32].assign(t->vc, t->vc + m->clocks);
    p.own[i] = now(t);
    p.own_fenced[i] = t->vc[m->agents + t->tid];
    tick(t);
  }
  if (++p.asked < 128) return;
  if (m->checked) note_reads(block, t->tid / 128, p, number);
  if (m->schedule.timing == Timing::eager) run_products(block, false);
  else maybe_progress();
}

}  // namespace

bool run_products(Block& b, bool awaited) {
  for (auto& group : b.warpgroups) {
    if (awaited && group->waiting.empty()) continue;
    for (Product& p : group->products) {
      if (p.done) continue;
      if (p.asked < 128) break;
      calculate(p);
      for (Thread* t : group->waiting) wake(t);  // who waits for a later one goes to sleep again
      group->waiting.clear();
      return true;
    }
  }
  return false;
}

std::string products_text(const void* warpgroup, u32 until) {
  const auto& group = *static_cast<const Warpgroup*>(warpgroup);
  const u32 asked = until <= group.first ? 128 : group.products[until - 1 - group.first].asked;
  return "for product " + std::to_string(until) + " of its warpgroup, for which " + std::to_string(asked) +
         " of 128 threads have asked";
}

void wgmma_ss(float* d, u32 n, u64 a, u64 b, bool a_mn, bool b_mn, bool accumulate, Half type) {
  ask(d, n, a, nullptr, b, a_mn, b_mn, accumulate, type, TESSERA_SIM_PC);
}
void wgmma_rs(float* d, u32 n, const u32* a, u64 b, bool b_mn, bool accumulate, Half type) {
  ask(d, n, 0, a, b, false, b_mn, accumulate, type, TESSERA_SIM_PC);
}

void wgmma_fence() {
  warpgroup_of(self(), "wgmma.fence", TESSERA_SIM_PC);
  ++self()->fences;
}

void wgmma_commit() {
  Thread* t = self();
  warpgroup_of(t, "wgmma.commit_group", TESSERA_SIM_PC);
  t->product_groups.push_back(t->products);
  maybe_preempt();
}

void wgmma_wait(u32 left, const float* ready, u32) {
  const void* pc = TESSERA_SIM_PC;
  Thread* t = self();
  Warpgroup& group = warpgroup_of(t, "wgmma.wait_group", pc);
  const u32 i = index_of(t);
  if (t->product_groups.size() > left) {
    const u32 until = t->product_groups[t->product_groups.size() - 1 - left];
    t->product_groups.erase(t->product_groups.begin(), t->product_groups.end() - left);
    const auto all_done = [&] { return until <= group.first || group.products[until - 1 - group.first].done; };
    while (!all_done()) {
      if (m->schedule.timing == Timing::random && m->random() & 1 && run_products(*t->block, false)) continue;
      group.waiting.push_back(t);
      block_here("wgmma.wait_group", &group, until, pc);
    }
    for (u32 number = t->products_waited; number < until; ++number) {
      Product& p = group.products[number - group.first];
      if (p.a_registers) {
        if (std::memcmp(p.from[i], p.fragment[i], 16) != 0)
          report("registers in flight", p.pc, "A in registers was written between its product and the wait");
        give_back(t, p.from[i]);
      }
      ++p.waited;
    }
    t->products_waited = until;
    if (m->checked) {
      Clock& done = t->vc[tensor_core(t->tid / 32)];
      done = std::max(done, until);
    }
    std::erase_if(group.in_flight, [&](const auto& d) { return d->last < until && deliver(t, *d, pc); });
    while (!group.products.empty() && group.products.front().waited == 128) {
      group.products.pop_front();
      ++group.first;
    }
  }
  for (const auto& d : group.in_flight)
    if (ready && d->lane[i] == ready)
      report("registers in flight", pc, "the wait leaves the accumulators on their way that it is to make readable");
  maybe_progress();
}

void on_register(const void* at, u64 bytes, bool write, const void* pc) {
  Thread* t = self();
  const char* p = static_cast<const char*>(at);
  for (const Thread::Range& r : t->in_products)
    if (p < r.end && p + bytes > r.begin && (write || r.accumulator))
      report("registers in flight", pc,
             std::string(r.accumulator ? "accumulators" : "A in registers") + " of the product at " + where(r.pc) +
                 (write ? " are written" : " are read") + " before the wait");
}

void finish_products(Thread* t) {
  if (t->products_waited == t->products) return;
  const Warpgroup& group = *t->block->warpgroups[t->tid / 128];
  report("wgmma", group.products[t->products_waited - group.first].pc,
         "a product was not waited for before its thread ended");
}

}  // namespace tessera::sim
