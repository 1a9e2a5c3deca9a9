// setmaxnreg: registers that warps hand to each other, out of what the block was launched with; and the elected lane.
#include <algorithm>

#include "sim/machine.hpp"

namespace tessera::sim {
namespace {

// What ptxas gives a thread of a kernel that uses setmaxnreg: as many as the launch bounds leave.
u32 registers_at_launch() { return std::min(65536 / (m->threads * u32(m->code.blocks_per_sm)) / 8 * 8, 256u); }

}  // namespace

void start_registers(Block& b) {
  b.registers = 0;
  b.want_registers.clear();
  for (Warp& w : b.warps) w.registers = registers_at_launch();
}

void setmaxnreg(u32 registers, bool raise) {
  const void* pc = TESSERA_SIM_PC;
  Thread* t = self();
  Block& b = *t->block;
  Warp& w = *t->warp;
  if (!meet(raise ? "setmaxnreg.inc" : "setmaxnreg.dec", registers, pc)) return;
  // The last lane waits for all of them.
  if (registers < 24 || registers > 256 || registers % 8)
    fatal("setmaxnreg", pc, std::to_string(registers) + " registers: multiples of 8 from 24 to 256 are possible");
  if (raise ? registers < w.registers : registers > w.registers)
    fatal("setmaxnreg", pc,
          std::string(raise ? "inc" : "dec") + " to " + std::to_string(registers) + " registers by a warp that has " +
              std::to_string(w.registers));
  const i64 more = i64{32} * (i64{registers} - i64{w.registers});
  while (more > b.registers) {
    b.want_registers.push_back(t);
    block_here("setmaxnreg", &b, registers, pc);
  }
  b.registers -= more;
  w.registers = registers;
  ++w.settings;
  if (more < 0) {
    for (Thread* x : b.want_registers) wake(x);
    b.want_registers.clear();
  }
  release_warp();
}

void finish_registers(Block& b) {
  for (u32 w = 0; w + 4 <= b.warps.size(); w += 4)
    for (u32 i = 1; i < 4; ++i)
      if (b.warps[w].settings != b.warps[w + i].settings || b.warps[w].registers != b.warps[w + i].registers)
        return report("setmaxnreg", nullptr,
                      "the warps of warpgroup " + std::to_string(w / 4) + " have set different numbers of registers");
}

bool elect() {
  if (meet("elect", 0, TESSERA_SIM_PC)) release_warp();
  return self()->lane == self()->warp->leader;
}

}  // namespace tessera::sim
