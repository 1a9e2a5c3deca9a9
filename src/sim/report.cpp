// What the machine says: who, at which line of the kernel, what, and once for each line.
#include <cstdio>
#include <map>
#include <mutex>

#include "sim/machine.hpp"
#include "sim/shadow.hpp"

namespace tessera::sim {

std::string hex(u64 x) {
  char s[24];
  std::snprintf(s, sizeof s, "0x%llx", x);
  return s;
}

namespace {

// addr2line prints the places from the innermost inlined function outwards. The first that is no instruction's wrapper
// is where a kernel uses it (compile.cpp names the files so).
std::string ask_addr2line(const std::string& file, u64 at) {
  const std::string command = "addr2line -i -e '" + file + "' " + hex(at) + " 2>/dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return "";
  char line[4096];
  std::string result;
  while (std::fgets(line, sizeof line, pipe)) {
    std::string place = line;
    place = place.substr(0, place.find_first_of(" \r\n"));
    if (!result.empty() || place.find("/ptx/") != std::string::npos || place.find("/ptx:") != std::string::npos ||
        place.find("/builtins:") != std::string::npos)
      continue;
    result = place.substr(place.rfind('/') + 1);
  }
  pclose(pipe);
  return result.find('?') == std::string::npos ? result : "";
}

}  // namespace

std::string where(const void* pc) {
  if (!pc) return "";
  static std::mutex mutex;
  static std::map<std::pair<std::string, u64>, std::string> known;
  const u64 at = u64(static_cast<const char*>(pc) - m->code.text_begin) - 1;  // of the call, not of what follows
  const std::lock_guard lock(mutex);
  const auto [found, fresh] = known.try_emplace({m->code.file, at});
  if (fresh) {
    found->second = ask_addr2line(m->code.file, at);
    if (found->second.empty()) found->second = "kernel + " + hex(at);
  }
  return found->second;
}

void report(const char* kind, const void* pc, const std::string& text) {
  const Thread* t = self();
  constexpr std::size_t enough = 20;
  const std::string at = pc ? "[" + where(pc) + "] " : "";
  for (Report& r : m->result.reports)
    if (r.kind == kind && (at.empty() || r.text.find(at) != std::string::npos)) {
      ++r.times;
      return;
    }
  if (m->result.reports.size() >= enough) {
    ++m->result.reports.back().times;
    return;
  }
  const std::string who = "block " + std::to_string(t->block->index) + " thread " + std::to_string(t->tid) + " (warp " +
                          std::to_string(t->tid / 32) + " lane " + std::to_string(t->lane) + ") ";
  m->result.reports.push_back({kind, who + at + text});
}

std::string actor(u32 who) {
  const std::string warp = std::to_string(who / 32);
  if (who < m->threads)
    return "thread " + std::to_string(who) + " (warp " + warp + " lane " + std::to_string(who % 32) + ")";
  if (who < m->threads * 33 / 32) return "the tensor core of warp " + std::to_string(who - m->threads);
  return "copies of mbarrier " + std::to_string(who - m->threads * 33 / 32);
}

void race(const Entry& before, const Entry& now, const std::string& place, const void* pc) {
  const auto verb = [](const Entry& x) {
    if (x.clock >= in_flight)
      return std::string("asynchronous ") + (x.flags & writes ? "write" : "read") + " (not waited for)";
    return std::string(x.flags & atomic ? "atomic " : "") + (x.flags & writes ? "write" : "read");
  };
  std::string text = place + ": " + verb(now) + " is not ordered after the " + verb(before) + " by ";
  if (before.block != now.block)
    text += "block " + std::to_string(i64(before.block) - i64(m->first_serial)) + " (in the order of starting) ";
  text +=
      (before.flags & of_warpgroup ? "the tensor cores of warpgroup " + std::to_string((before.who - m->threads) / 4)
                                   : actor(before.who)) +
      " at " + where(m->code.text_begin + before.pc);
  if (now.who >= m->threads) text += ", now of " + actor(now.who);
  report("race", pc, text);
}

std::string deadlock_text() {
  std::string out = "every thread waits";
  for (const auto& b : m->blocks) {
    if (b->live == 0) continue;
    for (const Warp& w : b->warps) {
      std::map<std::string, u32> groups;  // what lanes wait for, and which
      for (const Thread* t : w.lanes) {
        std::string s;
        if (t->done) {
          s = "ended";
        } else if (!t->wait.what) {
          s = "could run";
        } else {
          s = t->wait.what;
          if (s == "barrier") {
            const auto* bar = static_cast<const NamedBarrier*>(t->wait.object);
            s += " " + std::to_string(bar - b->bars) + " (" + std::to_string(bar->arrived) + " of " +
                 std::to_string(bar->expected) + " threads arrived)";
          } else if (s == "mbarrier") {
            s += " " + text_of(*static_cast<const MBar*>(t->wait.object)) + ", for parity " +
                 std::to_string(t->wait.number);
          } else if (s == "wgmma.wait_group") {
            s += " " + products_text(t->wait.object, t->wait.number);
          } else if (s == "setmaxnreg") {
            s += " to " + std::to_string(t->wait.number) + " registers, the block has " +
                 std::to_string(b->registers / 32) + " times 32 left for its warp";
          } else if (t->wait.object) {
            s += ": " + near_text(*m->regions, t->wait.object) + ", which holds " + std::to_string(t->wait.number);
          }
          s += " at " + where(t->wait.pc);
        }
        groups[s] |= 1u << t->lane;
      }
      for (const auto& [s, lanes] : groups)
        out += "\n    block " + std::to_string(b->index) + " warp " + std::to_string(w.index) + " lanes " + hex(lanes) +
               ": " + s;
    }
  }
  return out;
}

std::string text_of(const Result& result) {
  std::string out;
  for (const Report& r : result.reports) {
    out += r.kind + ": " + r.text;
    if (r.times > 1) out += " (" + std::to_string(r.times) + " times)";
    out += "\n";
  }
  return out;
}

}  // namespace tessera::sim
