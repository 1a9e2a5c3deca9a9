// Inside the emulated GPU: a fiber per CUDA thread, all on the launching thread of the host. Threads run until they
// meet at an instruction of the warp, wait at a barrier or for a word in memory; the schedule chooses who runs next.
// Must not know: how kernels are compiled.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/device.hpp"
#include "sim/fiber.hpp"
#include "sim/launch.hpp"
#include "sim/region.hpp"
#include "sim/tensor_map.hpp"

namespace tessera::sim {

// Every asynchronous or concurrent actor counts its own time. The actors of a block are its threads and, in kernels for
// sm_90, the tensor core of each warp (its clock counts products) and the copies of each mbarrier (its phases).
using Clock = u32;
constexpr Clock not_yet = 0xffffffffu;    // of a read or a write that is on its way ...
constexpr Clock in_flight = 0xf0000000u;  // ... and from here on, of one of several: each has a number of its own
constexpr u32 most_mbarriers = 96;

// What other blocks had done when this was written down: their clocks, by the serial number of the block. Shared, never
// changed; blocks that share nothing have none.
using Seen = std::shared_ptr<const std::map<u32, std::shared_ptr<const std::vector<Clock>>>>;
Seen merged(const Seen& a, const Seen& b);

struct Warp;
struct Block;

struct Wait {
  const char* what = nullptr;  // null: the thread can run
  const void* object = nullptr;
  u32 number = 0;
  const void* pc = nullptr;
};
struct Copy {  // one cp.async
  char* dst;
  const char* src;
  u32 bytes, src_bytes;
  const void* pc;
  bool done, counted;  // counted: an mbarrier waits for it
};

// A copy in bulk, either way: boxes of a tensor, or bytes.
struct Bulk {
  EncodedMap map{};  // of the tensor; mark 0: of bytes
  i32 at[5] = {};
  char *shared = nullptr, *global = nullptr;  // global: of bytes
  u32 bytes = 0;                              // of shared memory
  Clock number = 0;                           // in_flight and later
  const void* pc = nullptr;
  bool read = false, written = false, waited = false;  // a store's source; its destination; a wait for the source
  std::vector<char> held{};                            // what a store has read and not written yet
  u32 rows() const { return map.mark ? map.rows() : 1; }
  u32 row_bytes() const { return map.mark ? map.row_bytes() : bytes; }
};

struct alignas(64) Thread : Me {  // what a switch touches is in the first lines
  Warp* warp = nullptr;
  Block* block = nullptr;
  u32 tid = 0, lane = 0, meets = 0;
  bool done = false;
  Wait wait{};
  Clock* vc = nullptr;             // of the actors of this block, as far as this thread has seen them
  Seen seen{};                     // of other blocks
  Seen fenced{}, unfenced{};       // what a relaxed store publishes; what relaxed loads saw since the last fence
  std::vector<Copy> copies{};      // oldest first
  std::vector<u32> copy_groups{};  // copies in each committed group
  u32 copies_gone = 0;             // older ones that are done
  const void* spin_at = nullptr;   // what it read last to wait for, and what was there
  u32 spin_value = 0;
  bool vote = false;  // the answer of its last voting barrier

  std::vector<Bulk> stores{};                         // in bulk, oldest first
  std::vector<u32> store_groups{};                    // stores in each committed group
  u32 products = 0, products_waited = 0, fences = 0;  // wgmma asked for, and waited for; wgmma.fence so far
  std::vector<u32> product_groups{};                  // how many had been asked for when each was committed
  struct Range {
    const char *begin, *end;
    bool accumulator;
    const void* pc;
  };
  std::vector<Range> in_products{};        // arrays that products own
  std::map<const void*, u32> fenced_at{};  // of arrays that products gave back: `fences` then
};

// Where the lanes of a warp lay down their operands and find their results. Two alternate, so that a lane may be one
// instruction ahead of another that has not picked up its result.
struct alignas(64) Scratch {
  u32 a[32][4], b[8][8];
  float c[16][8];
  u32 r[32][4];
  const char* row[32];
  u32 value[32];
};
struct Gathering {  // an instruction of some lanes
  u32 lanes, arrived, left, number;
  const char* what;
  u32 value[32];
};
struct Warp {
  void* sp[32];
  Thread* lanes[32];  // side by side: a switch reads both
  Block* block;
  u32 index, ready, arrived, number;  // ready, arrived: bits of lanes
  const char* what;                   // the instruction that `arrived` wait at
  u32 next_lane;
  u32 leader, registers, settings;  // who is elected; of each thread; setmaxnreg so far
  Clock products_done;              // of its tensor core: products that a wait has covered
  std::vector<std::unique_ptr<Gathering>> gatherings;
  Scratch scratch[2];
};

struct MBar {  // an mbarrier; its word in shared memory holds its place in the block's list
  u32 offset = 0, count = 0, pending = 0, agent = 0;
  i64 bytes = 0;  // expected and not landed
  u32 phase = 0;  // phases that have ended
  bool live = false, fenced = false;
  u32 by = 0;  // who initialised it, and when
  Clock since = 0;
  const void* pc = nullptr;
  std::vector<Clock> gathered{}, ended{};
  Seen gathered_seen{}, ended_seen{};
  std::vector<Thread*> waiting{};
};

// A load in bulk that is on its way, or an arrival that waits for the first `counted` cp.async copies of its thread.
struct Event {
  Bulk copy{};
  Thread* by = nullptr;
  bool is_arrival = false;
  u32 barrier = 0, row = 0, counted = 0;
  std::vector<Clock> clocks{};  // of an arrival
  Seen seen{};
};

struct Warpgroup;  // wgmma.cpp

struct NamedBarrier {
  u32 arrived = 0, expected = 0;
  bool any = false, votes = false;
  std::vector<Clock> clocks{};
  Seen seen{};
  std::vector<Thread*> waiting{};
};

// One access to some bytes of a word. `block` tells old entries from live ones, so that nothing is ever cleared.
struct Entry {
  Clock clock;
  u32 block;
  u32 pc;  // from the begin of the code
  u16 who;
  u8 mask, flags;
};
enum Flag : u8 { writes = 1, atomic = 2, async = 8, of_warpgroup = 16 };  // async: by the asynchronous proxy
struct SharedCell {
  Entry e[8];
};
struct GlobalCell {
  Entry e[4];
};

struct Block {
  u32 slot = 0, serial = 0, live = 0;
  i64 index = 0;
  u64 ready_warps = 0;
  std::vector<Thread> threads{};
  std::vector<Warp> warps{};
  NamedBarrier bars[16];
  char* smem = nullptr;
  std::vector<Clock> clocks{};
  std::vector<SharedCell> shadow{};
  std::vector<u8> written{};  // of each word of shared memory: bytes written in this block
  std::vector<MBar> mbars{};
  std::vector<std::unique_ptr<Warpgroup>> warpgroups{};
  i64 registers = 0;  // that nobody has
  std::vector<Thread*> want_registers{};
  Block();
  ~Block();
};

struct Flagword {  // a word of global memory that was accessed atomically
  Seen released{};
};

struct Machine {
  LoadedCode code{};
  Schedule schedule{};
  bool checked = false;
  const void* params = nullptr;
  Result result{};
  std::vector<std::unique_ptr<Block>> blocks{};
  u64 ready_blocks = 0, rng = 1, spins = 0;
  i64 block_count = 0;
  void* main_sp = nullptr;
  bool stopped = false;           // an error that nothing can run after
  const void* copy_pc = nullptr;  // of the copy that is being made
  Block* finished = nullptr;      // the block whose last thread has just left
  // Words of a vector of clocks: one for each actor and, in kernels for sm_90, another one for each: what the
  // asynchronous proxy has seen of it (fence.proxy.async).
  u32 clocks = 0, agents = 0;
  u32 first_serial = 0, smem_bytes = 0, threads = 0;
  std::vector<Event> events{};
  Clock last_number = in_flight;
  std::shared_ptr<const Regions> regions{};
  std::vector<GlobalCell*> global{};   // shadow of each region, made at its first use
  const RegionInfo* region = nullptr;  // the last one used
  std::map<const void*, Flagword> flagwords{};
  u64 random() {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng;
  }
  bool chance(u32 one_in) { return schedule.seed != 0 && random() % one_in == 0; }
};
extern constinit thread_local Machine* m;

inline Thread* self() { return static_cast<Thread*>(me); }
#define TESSERA_SIM_PC __builtin_return_address(0)

// --- schedule.cpp
void block_here(const char* what, const void* object, u32 number, const void* pc);  // sleeps until woken
void wake(Thread* t);
void maybe_preempt();    // after a release: under a seed, others sometimes go first
void let_others_run();   // this thread stays ready
Thread* first_thread();  // for the launch
[[noreturn]] void thread_main();
void sleep_bit(Thread* t);
void go_to(Thread* next);

// --- mbarrier.cpp, bulk.cpp: what happens by itself
bool progress();             // lets a part of something that is on its way happen; false: nothing is
void maybe_progress();       // with Timing::random
bool drop_events(Block& b);  // true: there were some
void arrive(MBar& bar, u32 arrivals, i64 bytes, const Clock* clocks, const Seen& seen, const void* pc);
void landed(Block& b, u32 barrier, u32 bytes);
MBar& mbar_at(void* word, const char* what, const void* pc);
std::string text_of(const MBar& bar);
Clock new_number();
void land_store(Thread* t, Bulk& store, bool read_only);  // as far as it is not yet
bool land_load(Event& e);                                 // a part of it; true: that was the last
void finish_stores(Thread* t);                            // reports what was not waited for
// --- wgmma.cpp, registers.cpp
void start_warpgroups(Block& b);
void finish_products(Thread* t);
bool run_products(Block& b, bool awaited);  // one that all have asked for; false: there is none
std::string products_text(const void* warpgroup, u32 until);
void start_registers(Block& b);
void finish_registers(Block& b);

// --- warp.cpp: all 32 lanes meet. True for the last, which does the work for all and calls release_warp(); the others
// return when it has.
bool meet(const char* what, u32 number, const void* pc);
void release_warp();
inline Scratch& meet_scratch() {
  Thread* t = self();
  return t->warp->scratch[t->meets & 1];
}

// --- report.cpp
std::string where(const void* pc);
void report(const char* kind, const void* pc, const std::string& text);
[[noreturn]] void fatal(const char* kind, const void* pc, const std::string& text);
std::string deadlock_text();
std::string hex(u64 x);

// --- shared.cpp, global.cpp: bounds, alignment, and with `checked` what happened before what
inline u32 offset(const void* p) { return u32(static_cast<const char*>(p) - me->smem); }
inline bool in_smem(const void* p, u64 bytes) {
  const u64 at = u64(static_cast<const char*>(p) - me->smem);
  return at < me->smem_bytes && at + bytes <= me->smem_bytes;
}
[[noreturn]] void bad_smem(const void* p, u32 bytes, u32 align, const char* what, const void* pc);
inline void need_smem(const void* p, u32 bytes, u32 align, const char* what, const void* pc) {
  if (!in_smem(p, bytes) || offset(p) % align) [[unlikely]]
    bad_smem(p, bytes, align, what, pc);
}
void shared_access(u32 at, u32 bytes, Clock clock, u32 flags, const void* pc);  // by the running thread
// By another actor, with what it has seen. of_warpgroup: `who` is the first of four actors who do it together.
void shared_access_by(Block& b, const Clock* seen, u32 who, u32 at, u32 bytes, Clock clock, u32 flags, const void* pc);
void shared_land(u32 at, u32 bytes, const Thread* by);  // what was not_yet done is
void shared_land(Block& b, u32 at, u32 bytes, u32 who, Clock number, Clock clock);
void global_access(const void* p, u64 bytes, Clock clock, u32 flags, const char* what, const void* pc);
void global_access_by(u32 who, const void* p, u64 bytes, Clock clock, u32 flags, const char* what, const void* pc);
void global_land(const void* p, u64 bytes, const Thread* by);
void global_land(const void* p, u64 bytes, const Thread* by, u32 who, Clock number, Clock clock);
void reset_shadow(Block& b);

// --- order.cpp: the running thread's clocks
void join(Clock* into, const Clock* from);
void tick(Thread* t);
inline Clock now(const Thread* t) { return t->vc[t->tid]; }
Seen stamp(const Thread* t);  // all that t has done and seen
void join_seen(Thread* t, const Seen& seen);
bool ordered_across(const Entry& x, const Thread* t);
inline bool before(const Entry& x, const Clock* seen) {  // within a block
  if (x.flags & of_warpgroup)
    for (u32 i = 1; i < 4; ++i)
      if (x.clock > seen[x.who + i]) return false;
  return x.clock <= seen[x.who];
}
inline bool ordered(const Entry& x, const Thread* t) {  // x happened before what t does now
  return x.block == t->block->serial ? before(x, t->vc) : ordered_across(x, t);
}
inline u32 tensor_core(u32 warp) { return m->threads + warp; }  // actors
std::string actor(u32 who);

// --- cp_async.cpp
void land_copies(Event& e);     // those that an arrival waits for
void finish_copies(Thread* t);  // reports what was not waited for

}  // namespace tessera::sim
