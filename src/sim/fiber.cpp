// x86-64 only: the emulated GPU is a tool of the developers.
#include "sim/fiber.hpp"

#include <sys/mman.h>

#include <deque>
#include <new>
#include <vector>

asm(R"(
.text
.globl tessera_sim_switch
.hidden tessera_sim_switch
.type tessera_sim_switch,@function
tessera_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tessera_sim_switch,.-tessera_sim_switch
)");

namespace tessera::sim {
namespace {

constexpr std::size_t page = 4096, group = 256;  // stacks mapped at a time

char* map(std::size_t bytes, int protection) {
  void* at = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  return static_cast<char*>(at);
}

struct Groups {
  std::vector<char*> begin;
  ~Groups() {
    for (char* x : begin) munmap(x, group * Stacks::bytes);
  }
};
thread_local Groups groups;

struct Arenas {
  struct One {
    char* map = nullptr;
    std::size_t bytes = 0;  // of the usable part, whole pages
  };
  std::deque<One> slots;
  static void drop(const One& x) {
    if (x.map) munmap(x.map, 2 * red_zone + x.bytes);
  }
  ~Arenas() {
    for (const One& x : slots) drop(x);
  }
};
thread_local Arenas arenas;

}  // namespace

void* new_stack(char* top, void (*main)()) {
  void** sp = reinterpret_cast<void**>(top);
  *--sp = nullptr;                              // where `main` would return to: `ret` enters it with an aligned stack
  *--sp = reinterpret_cast<void*>(main);        // what the switch returns to
  for (int i = 0; i < 6; ++i) *--sp = nullptr;  // registers
  return sp;
}

char* Stacks::at(std::size_t i) { return groups.begin[i / group] + i % group * bytes + page; }

Stacks& stacks(std::size_t count) {
  static Stacks it;
  while (groups.begin.size() * group < count) {
    char* at = map(group * Stacks::bytes, PROT_READ | PROT_WRITE);
    for (std::size_t i = 0; i < group; ++i) mprotect(at + i * Stacks::bytes, page, PROT_NONE);
    groups.begin.push_back(at);
  }
  return it;
}

char* shared_arena(std::size_t slot, std::size_t bytes) {
  const std::size_t whole = (bytes + 1023) / 1024 * 1024, pages = (whole + page - 1) / page * page;
  while (arenas.slots.size() <= slot) arenas.slots.emplace_back();
  Arenas::One& x = arenas.slots[slot];
  if (!x.map || x.bytes != pages) {
    Arenas::drop(x);
    x = {};
    char* at = map(2 * red_zone + pages, PROT_NONE);
    mprotect(at + red_zone, pages, PROT_READ | PROT_WRITE);
    x = {at, pages};
  }
  return x.map + red_zone + x.bytes - whole;
}

}  // namespace tessera::sim
