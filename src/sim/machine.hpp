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

namespace tessera::sim {

// Every asynchronous or concurrent actor counts its own time. So far the actors are the threads of a block; a tensor
// core that reads shared memory by itself becomes another one.
using Clock = u32;
constexpr Clock not_yet = 0xffffffffu;  // of a read or a write that is on its way

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
  bool done;
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
  const void* spin_at = nullptr;   // what it read last to wait for, and what was there
  u32 spin_value = 0;
  bool vote = false;  // the answer of its last voting barrier
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
  std::vector<std::unique_ptr<Gathering>> gatherings;
  Scratch scratch[2];
};

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
enum Flag : u8 { writes = 1, atomic = 2 };
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
  u32 agents = 0, first_serial = 0, smem_bytes = 0, threads = 0;
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
void shared_land(u32 at, u32 bytes, const Thread* by);                          // what was not_yet done is
void global_access(const void* p, u64 bytes, Clock clock, u32 flags, const char* what, const void* pc);
void global_land(const void* p, u64 bytes, const Thread* by);
void reset_shadow(Block& b);

// --- order.cpp: the running thread's clocks
void join(Clock* into, const Clock* from);
void tick(Thread* t);
inline Clock now(const Thread* t) { return t->vc[t->tid]; }
Seen stamp(const Thread* t);  // all that t has done and seen
void join_seen(Thread* t, const Seen& seen);
bool ordered_across(const Entry& x, const Thread* t);
inline bool ordered(const Entry& x, const Thread* t) {  // x happened before what t does now
  return x.block == t->block->serial ? x.clock <= t->vc[x.who] : ordered_across(x, t);
}

// --- cp_async.cpp
void finish_copies(Thread* t);  // reports what was not waited for

}  // namespace tessera::sim
