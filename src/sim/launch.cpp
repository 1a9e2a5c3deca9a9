// A launch from its first block to its last report. Accesses that the host's memory management refuses (red zones,
// guard pages) come in as a signal and leave as a report.
#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>
#include <iterator>
#include <mutex>
#include <numeric>

#include "sim/machine.hpp"

namespace tessera::sim {

void forget_histories(const Regions& regions);

namespace {

constexpr int watched[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
struct sigaction previous_actions[std::size(watched)];

void on_fault(int signal, siginfo_t* info, void* context) {
  if (!m || !me) {  // not ours
    for (std::size_t i = 0; i < std::size(watched); ++i)
      if (watched[i] == signal) sigaction(signal, &previous_actions[i], nullptr);
    return;  // to the same instruction, with the action of before
  }
  const auto* pc = reinterpret_cast<const char*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]) + 1;
  if (pc < m->code.text_begin || pc >= m->code.text_end) pc = static_cast<const char*>(m->copy_pc);
  if (signal == SIGILL) fatal("out of bounds", pc, "an index beyond its array");
  if (signal == SIGFPE) fatal("arithmetic", pc, "an integer is divided by zero");
  const char* at = static_cast<const char*>(info->si_addr);
  if (at >= me->stack - 4096 && at < me->stack) fatal("stack overflow", pc, "of a thread");
  const i64 off = at - me->smem;
  std::string text = near_text(*m->regions, at);
  if (off >= -i64(red_zone) && off < i64(me->smem_bytes + red_zone))
    text = "shared memory at offset " + std::to_string(off) + " of " + std::to_string(me->smem_bytes) + " bytes";
  fatal("out of bounds", pc, "memory that is not there: " + text);
}

void watch_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (std::size_t i = 0; i < std::size(watched); ++i) sigaction(watched[i], &action, &previous_actions[i]);
  });
}

// The handler must not run on the stack that overflowed.
struct SignalStack {
  stack_t before{};
  static constexpr std::size_t bytes = 256u << 10;
  std::unique_ptr<char[]> memory{new char[bytes]};
  SignalStack() {
    stack_t now{};
    now.ss_sp = memory.get();
    now.ss_size = bytes;
    sigaltstack(&now, &before);
  }
  ~SignalStack() { sigaltstack(&before, nullptr); }
};

// In which order blocks start: a walk through all of them with a stride that divides nothing.
struct Order {
  i64 count, stride = 1, shift = 0;
  explicit Order(i64 n) : count(n) {
    if (!m->schedule.seed || n < 3) return;
    stride = 1 + i64(m->random() % u64(n - 1));
    while (std::gcd(stride, n) != 1) stride = stride % (n - 1) + 1;
    shift = i64(m->random() % u64(n));
  }
  i64 at(i64 i) const { return i64((__int128(i) * stride + shift) % count); }
};

void start(Block& b, i64 index, u32 serial) {
  const u32 threads = m->threads;
  b.index = index;
  b.serial = serial;
  b.live = threads;
  for (NamedBarrier& bar : b.bars) {
    bar.arrived = bar.expected = 0;
    bar.any = false;
    bar.waiting.clear();
    bar.seen = nullptr;
    std::fill(bar.clocks.begin(), bar.clocks.end(), 0);
  }
  std::memset(b.smem, 0xff, m->smem_bytes);
  if (m->checked) {
    b.clocks.assign(std::size_t(m->clocks) * threads, 0);
    reset_shadow(b);
  }
  Stacks& all = stacks(std::size_t(m->threads) * m->blocks.size());
  for (u32 i = 0; i < threads; ++i) {
    Thread& t = b.threads[i];
    t.copies.clear();
    t.copy_groups.clear();
    t.copies_gone = t.products = t.products_waited = t.fences = 0;
    t.product_groups.clear();
    t.in_products.clear();
    t.fenced_at.clear();
    static_cast<Me&>(t) = Me{{i, 0, 0}, {u32(index), 0, 0}, {threads, 1, 1}, {u32(m->block_count), 1, 1}};
    t.smem = b.smem;
    t.smem_bytes = m->smem_bytes;
    t.warp = &b.warps[i / 32];
    t.block = &b;
    t.tid = i;
    t.lane = i % 32;
    t.meets = 0;
    t.done = t.vote = false;
    t.wait = {};
    t.seen = t.fenced = t.unfenced = nullptr;
    t.spin_at = nullptr;
    t.vc = m->checked ? &b.clocks[std::size_t(i) * m->clocks] : nullptr;
    if (t.vc) t.vc[i] = 1;
    t.stack = all.at(std::size_t(b.slot) * threads + i);
    t.stack_bytes = Stacks::usable;
    constexpr std::size_t spread = 1024 + 64;  // staggered, so that the tops do not share cache sets
    char* const top = t.stack + t.stack_bytes - i % 16 * spread - 64;
    constexpr std::size_t registers = 6u << 10;  // where its local arrays will be: what nobody writes there is NaN
    if (m->checked) std::memset(top - registers, 0xff, registers);
    t.warp->sp[t.lane] = new_stack(top, thread_main);
  }
  for (u32 w = 0; w < threads / 32; ++w) {
    Warp& x = b.warps[w];
    x.block = &b;
    x.index = w;
    x.ready = ~0u;
    x.arrived = x.next_lane = 0;
    x.what = nullptr;
    x.gatherings.clear();
    x.leader = m->schedule.seed ? m->random() & 31 : 0;
    x.settings = 0;
    for (u32 l = 0; l < 32; ++l) x.lanes[l] = &b.threads[w * 32 + l];
  }
  b.mbars.clear();
  b.mbars.reserve(most_mbarriers);  // threads that wait hold on to them
  start_warpgroups(b);
  start_registers(b);
  b.ready_warps = (u64{1} << (threads / 32)) - 1;
  m->ready_blocks |= u64{1} << b.slot;
  m->spins = 0;
}

void finish(Block& b) {
  me = &b.threads[0];
  for (u32 id = 0; id < 16; ++id)
    if (b.bars[id].arrived)
      report("barrier", nullptr,
             std::to_string(b.bars[id].arrived) + " arrivals are left at barrier " + std::to_string(id) +
                 " when the block ends");
  const bool any = drop_events(b);
  for (const MBar& bar : b.mbars)
    if (bar.live && bar.bytes != 0 && !any)
      report("mbarrier", bar.pc, "an mbarrier ends with bytes that do not add up, " + text_of(bar));
  finish_registers(b);
  me = nullptr;
}

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

void run_blocks() {
  const Order order(m->block_count);
  i64 started = 0;
  for (auto& b : m->blocks) {
    start(*b, order.at(started), m->first_serial + u32(started));
    ++started;
  }
  while (!m->stopped) {
    Thread* first = first_thread();
    if (!first) {  // a block that ended has left others that wait for ever
      for (auto& b : m->blocks)
        if (b->live && m->result.reports.empty()) {
          me = &b->threads[0];
          report("deadlock", nullptr, deadlock_text());
          me = nullptr;
        }
      break;
    }
    m->finished = nullptr;
    me = first;
    tessera_sim_switch(&m->main_sp, first->warp->sp[first->lane]);  // back when a block is done, or nothing can run
    me = nullptr;
    if (m->stopped || !m->finished) break;
    finish(*m->finished);
    if (started < m->block_count) {
      start(*m->finished, order.at(started), m->first_serial + u32(started));
      ++started;
    }
  }
}

// Serial numbers of blocks are never used twice by a thread of the host: histories stay valid from launch to launch.
thread_local u32 next_serial = 1;

}  // namespace

Result launch(const LoadedCode& code, std::int64_t blocks, int threads, std::size_t smem_bytes, const void* params,
              const Schedule& schedule) {
  Machine machine;
  std::string fault;
  if (threads < 32 || threads > 1024 || threads % 32)
    fault = std::to_string(threads) + " threads: a block has 32 to 1024, a multiple of 32";
  if (blocks < 1 || blocks > 0x7fffffff) fault = std::to_string(blocks) + " blocks: a grid has 1 to 2^31 - 1";
  if (smem_bytes > 256u << 10) fault = std::to_string(smem_bytes) + " bytes of shared memory";
  if (!fault.empty()) {
    machine.result.reports.push_back({"launch", fault});
    return std::move(machine.result);
  }
  watch_faults();
  const SignalStack signal_stack;
  const double begin = processor_seconds();
  m = &machine;
  machine.code = code;
  machine.schedule = schedule;
  machine.checked = code.checked;
  machine.params = params;
  machine.rng = schedule.seed * 0x9e3779b97f4a7c15u + 88172645463325252u;
  machine.block_count = blocks;
  machine.threads = u32(threads);
  machine.smem_bytes = u32(smem_bytes);
  machine.agents = machine.threads;
  if (code.asynchronous) machine.agents += machine.threads / 32 + most_mbarriers;
  machine.agents = (machine.agents + 15) / 16 * 16;
  machine.clocks = machine.agents * (code.asynchronous ? 2 : 1);
  machine.regions = regions();
  machine.global.resize(machine.regions->size());
  if (machine.checked) forget_histories(*machine.regions);
  machine.first_serial = next_serial;
  next_serial += u32(blocks);
  const i64 resident = std::max<i64>(1, std::min<i64>({schedule.resident, blocks, 64}));
  for (i64 i = 0; i < resident; ++i) {
    auto b = std::make_unique<Block>();
    b->slot = u32(i);
    b->threads.resize(machine.threads);
    b->warps.resize(machine.threads / 32);
    b->smem = shared_arena(b->slot, smem_bytes);
    machine.blocks.push_back(std::move(b));
  }
  run_blocks();
  m = nullptr;
  machine.result.seconds = processor_seconds() - begin;
  return std::move(machine.result);
}

}  // namespace tessera::sim
