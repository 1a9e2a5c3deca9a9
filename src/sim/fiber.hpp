// Stacks and the switch between them.
// Must not know: what runs on them.
#pragma once
#include <cstddef>

namespace tessera::sim {

// Saves the callee-saved registers on the running stack, whose pointer goes to *save, and goes on with the stack `to`.
extern "C" void tessera_sim_switch(void** save, void* to);

// A stack on which the first switch enters `main`, which never returns. `top` is its end, 16-aligned.
void* new_stack(char* top, void (*main)());

// `count` stacks of this thread, mapped once, each with a page below it that cannot be touched.
struct Stacks {
  static constexpr std::size_t bytes = 65u << 12;  // an odd number of pages: cache sets and TLB entries differ
  char* at(std::size_t i);                         // the lowest usable byte
  static constexpr std::size_t usable = bytes - 4096;
};
Stacks& stacks(std::size_t count);

// Arenas for the shared memory of block slot `slot`: `bytes` usable, 1024-aligned, between zones that cannot be
// touched; the upper zone begins at the next multiple of 1024 behind its end.
constexpr std::size_t red_zone = 256u << 10;
char* shared_arena(std::size_t slot, std::size_t bytes);

}  // namespace tessera::sim
