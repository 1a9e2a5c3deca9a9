// Copies in bulk: boxes of tensors and runs of bytes, by the asynchronous proxy. A load makes its destination poison at
// once and lands in two pieces, each of which counts its bytes on the mbarrier: when nobody else can run
// (Timing::late), at once, or at random. A store reads its source as late as the wait for that, and writes as late as
// the wait for that.
#include <algorithm>
#include <cstring>
#include <utility>

#include "sim/machine.hpp"

namespace tessera::sim {
namespace {

u32 swizzled(u32 at, u32 span) { return at ^ (at >> 7 & (span / 16 - 1)) << 4; }
u32 place(const Bulk& c, u32 row, u32 byte) {  // in shared memory
  const u32 at = offset(c.shared) + row * c.row_bytes() + byte;
  return c.map.mark && c.map.swizzle ? swizzled(at, c.map.swizzle) : at;
}

struct Row {        // of a box, in the tensor
  char* begin;      // of its first element inside
  u32 skip, bytes;  // bytes of the row before that; bytes inside
};
Row row_of(const Bulk& c, u32 row) {
  if (!c.map.mark) return {c.global, 0, c.bytes};
  const EncodedMap& map = c.map;
  char* at = map.data;
  for (u32 i = 1; i < 5; ++i) {
    const i64 x = i64{c.at[i]} + row % map.box[i];
    row /= map.box[i];
    if (x < 0 || u64(x) >= map.dims[i]) return {nullptr, 0, 0};
    at += u64(x) * map.strides[i];
  }
  const i64 begin = std::max<i64>(c.at[0], 0), end = std::min<i64>(i64{c.at[0]} + map.box[0], i64(map.dims[0]));
  if (begin >= end) return {nullptr, 0, 0};
  return {at + begin * map.element_bytes, u32(begin - c.at[0]) * map.element_bytes,
          u32(end - begin) * map.element_bytes};
}

// Between a row of logical bytes and shared memory, in pieces of 16, which a swizzle leaves together.
void from_shared(const Bulk& c, u32 row, char* out) {
  for (u32 b = 0; b < c.row_bytes(); b += 16) std::memcpy(out + b, me->smem + place(c, row, b), 16);
}
void to_shared(const Bulk& c, u32 row, const char* in) {
  for (u32 b = 0; b < c.row_bytes(); b += 16) std::memcpy(me->smem + place(c, row, b), in + b, 16);
}

// A copy as it is asked for: what is wrong with it is wrong at once.
Bulk tensor_copy(const void* map, const void* shared, u32 rank, const i32* at, const char* what, const void* pc) {
  Bulk c;
  if (reinterpret_cast<u64>(map) % 64) fatal("alignment", pc, "a tensor map has an address that is no multiple of 64");
  std::memcpy(static_cast<void*>(&c.map), map, sizeof c.map);
  if (c.map.mark != EncodedMap::is_one)
    fatal("tensor map", pc, "these 128 bytes are no tensor map: gpu::Engine::tensor_map() makes them");
  if (c.map.rank != rank)
    fatal("tensor map", pc,
          "coordinates of " + std::to_string(rank) + " dimensions for a map of " + std::to_string(c.map.rank));
  if (std::int64_t{at[0]} * c.map.element_bytes % 16)
    fatal("alignment", pc,
          std::string(what) + " from element " + std::to_string(at[0]) +
              " of a row on, which is no multiple of 16 bytes");
  std::copy_n(at, 5, c.at);
  c.bytes = c.map.bytes();
  c.shared = static_cast<char*>(const_cast<void*>(shared));
  need_smem(shared, c.bytes, c.map.swizzle ? 8 * c.map.swizzle : 128, what, pc);
  c.pc = pc;
  return c;
}
Bulk byte_copy(const void* global, const void* shared, u32 bytes, const char* what, const void* pc) {
  Bulk c;
  need_smem(shared, bytes, 16, what, pc);
  if (reinterpret_cast<u64>(global) % 16)
    fatal("alignment", pc, std::string(what) + ": " + near_text(*m->regions, global) + ", which is no multiple of 16");
  if (bytes == 0 || bytes % 16)
    fatal("alignment", pc, std::string(what) + " of " + std::to_string(bytes) + " bytes: a multiple of 16 is needed");
  if (in_smem(global, 1)) fatal("out of bounds", pc, std::string(what) + ": its global address is in shared memory");
  c.bytes = bytes;
  c.shared = static_cast<char*>(const_cast<void*>(shared));
  c.global = static_cast<char*>(const_cast<void*>(global));
  c.pc = pc;
  return c;
}

void note_global(const Bulk& c, u32 who, u32 flags, const char* what) {
  for (u32 r = 0; r < c.rows(); ++r)
    if (const Row row = row_of(c, r); row.bytes)
      global_access_by(who, row.begin, row.bytes, c.number, flags, what, c.pc);
}

void load(Bulk c, void* word, const char* what) {
  Thread* t = self();
  MBar& bar = mbar_at(word, what, c.pc);
  c.number = new_number();
  if (!bar.fenced)
    report(
        "proxy", c.pc,
        "a copy counts on an mbarrier whose initialisation was not followed by mbarrier_init_fence(), " + text_of(bar));
  if (m->checked) {
    shared_access_by(*t->block, t->vc, bar.agent, offset(c.shared), c.bytes, c.number, writes | async, c.pc);
    note_global(c, bar.agent, 0, what);
    tick(t);
  }
  std::memset(c.shared, 0xff, c.bytes);  // may be written over from now on
  Event e;
  e.copy = std::move(c);
  e.by = t;
  e.barrier = u32(&bar - t->block->mbars.data());
  if (m->schedule.timing == Timing::eager) {
    while (!land_load(e)) {
    }
    return;
  }
  m->events.push_back(std::move(e));
  maybe_progress();
}

void read_source(Bulk& c) {
  c.held.resize(c.bytes);
  for (u32 r = 0; r < c.rows(); ++r) from_shared(c, r, c.held.data() + r * c.row_bytes());
  c.read = true;
}
void write_destination(Bulk& c) {
  m->copy_pc = c.pc;
  for (u32 r = 0; r < c.rows(); ++r)
    if (const Row row = row_of(c, r); row.bytes)
      std::memcpy(row.begin, c.held.data() + r * c.row_bytes() + row.skip, row.bytes);
  m->copy_pc = nullptr;
  c.held.clear();
  c.written = true;
}

// What lies outside of the tensor goes nowhere, and may be anything.
void note_source(const Bulk& c, Thread* t) {
  for (u32 r = 0; r < c.rows(); ++r) {
    const Row row = row_of(c, r);
    for (u32 at = row.skip, end = row.skip + row.bytes; at < end; at = at / 16 * 16 + 16)
      shared_access_by(*t->block, t->vc, t->tid, place(c, r, at), std::min(end, at / 16 * 16 + 16) - at, c.number,
                       async, c.pc);
  }
}

void store(Bulk c, const char* what) {
  Thread* t = self();
  c.number = new_number();
  if (m->checked) {
    note_source(c, t);
    note_global(c, t->tid, writes, what);
    tick(t);
  }
  const bool now = m->schedule.timing == Timing::eager, maybe = m->schedule.timing == Timing::random;
  if (now || (maybe && m->random() & 1)) read_source(c);
  if (c.read && (now || m->random() & 1)) write_destination(c);
  t->stores.push_back(std::move(c));
}

// As one of its threads: what is reported is of the block.
bool run_in(Block& b, bool awaited) {
  Me* const running = std::exchange(me, &b.threads[0]);
  const bool any = run_products(b, awaited);
  me = running;
  return any;
}

}  // namespace

Clock new_number() {
  if (++m->last_number == not_yet) m->last_number = in_flight;
  return m->last_number;
}

bool land_load(Event& e) {
  Me* const running = std::exchange(me, e.by);  // in whose name anything is reported
  Block& b = *e.by->block;
  const Bulk& c = e.copy;
  const u32 rows = c.rows(), begin = e.row, end = std::min(rows, begin + std::max(1u, (rows + 1) / 2));
  std::vector<char> bytes(c.row_bytes());
  m->copy_pc = c.pc;
  for (u32 r = begin; r < end; ++r) {
    const Row row = row_of(c, r);
    if (row.bytes != c.row_bytes()) std::fill(bytes.begin(), bytes.end(), 0);
    if (row.bytes) std::memcpy(bytes.data() + row.skip, row.begin, row.bytes);
    to_shared(c, r, bytes.data());
    if (m->checked && row.bytes)
      global_land(row.begin, row.bytes, e.by, b.mbars[e.barrier].agent, c.number, b.mbars[e.barrier].phase + 1);
  }
  m->copy_pc = nullptr;
  const u32 moved = (end - begin) * c.row_bytes();
  if (m->checked)  // rows of an atom exchange pieces among themselves only, so a piece is a range
    shared_land(b, offset(c.shared) + begin * c.row_bytes(), moved, b.mbars[e.barrier].agent, c.number,
                b.mbars[e.barrier].phase + 1);
  e.row = end;
  landed(b, e.barrier, moved);
  me = running;
  return end == rows;
}

bool progress() {
  const auto any_product = [](bool awaited) {
    for (auto& b : m->blocks)
      if (b->live && run_in(*b, awaited)) return true;
    return false;
  };
  if (m->events.empty() || m->chance(2))
    if (any_product(true) || any_product(false)) return true;
  if (m->events.empty()) return false;
  const std::size_t count = m->events.size(), first = m->schedule.seed ? m->random() % count : 0;
  std::size_t i = first;
  while (m->events[i].by->block->live == 0) {  // what a block leaves behind when it ends is never done
    i = (i + 1) % count;
    if (i == first) return false;
  }
  Event& e = m->events[i];
  bool last = true;
  if (e.is_arrival) {
    Me* const running = std::exchange(me, e.by);
    land_copies(e);
    arrive(e.by->block->mbars[e.barrier], 1, 0, e.clocks.data(), e.seen, e.copy.pc);
    me = running;
  } else {
    last = land_load(e);
  }
  if (last) m->events.erase(m->events.begin() + i64(i));
  return true;
}

void maybe_progress() {
  if (m->schedule.timing != Timing::random) return;
  if (m->random() % 4 == 0) progress();
  if (m->random() % 4 == 0) run_products(*self()->block, false);
}

bool drop_events(Block& b) {
  for (const Event& e : m->events)
    if (e.by->block == &b)
      report("bulk copy", e.copy.pc,
             "a copy is on its way when its block ends, for the mbarrier " + text_of(b.mbars[e.barrier]));
  return std::erase_if(m->events, [&](const Event& e) { return e.by->block == &b; }) > 0;
}

void fence_async() {
  Thread* t = self();
  for (MBar& bar : t->block->mbars) bar.fenced |= bar.by == t->tid;
  if (!m->checked) return;
  for (u32 i = 0; i < m->agents; ++i) t->vc[m->agents + i] = std::max(t->vc[m->agents + i], t->vc[i]);
  tick(t);
}

void tensor_prefetch(const void* map) {
  EncodedMap x;
  std::memcpy(static_cast<void*>(&x), map, sizeof x);
  if (x.mark != EncodedMap::is_one) fatal("tensor map", TESSERA_SIM_PC, "these 128 bytes are no tensor map");
}

void tensor_load(void* dst, const void* map, void* word, u32 rank, i32 c0, i32 c1, i32 c2, i32 c3, i32 c4) {
  const i32 at[5] = {c0, c1, c2, c3, c4};
  load(tensor_copy(map, dst, rank, at, "tensor load", TESSERA_SIM_PC), word, "tensor load");
}
void tensor_store(const void* map, const void* src, u32 rank, i32 c0, i32 c1, i32 c2, i32 c3, i32 c4) {
  const i32 at[5] = {c0, c1, c2, c3, c4};
  const Bulk copy = tensor_copy(map, src, rank, at, "tensor store", TESSERA_SIM_PC);
  if (const std::uint64_t row = copy.map.dims[0] * copy.map.element_bytes; row % 16)
    fatal(
        "alignment", TESSERA_SIM_PC,
        "a tensor store to rows of " + std::to_string(row) + " bytes: an H200 writes beyond what is no multiple of 16");
  store(copy, "tensor store");
}
void bulk_load(void* dst, const void* src, u32 bytes, void* word) {
  load(byte_copy(src, dst, bytes, "bulk load", TESSERA_SIM_PC), word, "bulk load");
}
void bulk_store(void* dst, const void* src, u32 bytes) {
  store(byte_copy(dst, src, bytes, "bulk store", TESSERA_SIM_PC), "bulk store");
}

void bulk_commit() {
  Thread* t = self();
  u32 grouped = 0;
  for (const u32 n : t->store_groups) grouped += n;
  t->store_groups.push_back(u32(t->stores.size()) - grouped);
}

void land_store(Thread* t, Bulk& c, bool read_only) {
  if (!c.read) read_source(c);
  c.waited = true;
  if (m->checked) shared_land(*t->block, offset(c.shared), c.bytes, t->tid, c.number, now(t));
  if (read_only) return;
  if (!c.written) write_destination(c);
  if (!m->checked) return;
  for (u32 r = 0; r < c.rows(); ++r)
    if (const Row row = row_of(c, r); row.bytes) global_land(row.begin, row.bytes, t, t->tid, c.number, now(t));
}

void bulk_wait(u32 left, bool read_only) {
  Thread* t = self();
  if (t->store_groups.size() > left) {
    const std::size_t groups = t->store_groups.size() - left;
    u32 n = 0;
    for (std::size_t i = 0; i < groups; ++i) n += t->store_groups[i];
    for (u32 i = 0; i < n; ++i) land_store(t, t->stores[i], read_only);
    if (!read_only) {
      t->stores.erase(t->stores.begin(), t->stores.begin() + n);
      t->store_groups.erase(t->store_groups.begin(), t->store_groups.begin() + i64(groups));
    }
  }
  maybe_progress();
}

// What was read in time is written some time before the kernel ends.
void finish_stores(Thread* t) {
  u32 grouped = 0;
  for (const u32 n : t->store_groups) grouped += n;
  if (grouped < t->stores.size()) report("bulk copy", t->stores[grouped].pc, "a store was never committed to a group");
  for (u32 i = 0; i < grouped; ++i) {
    Bulk& c = t->stores[i];
    if (!c.waited) report("bulk copy", c.pc, "a store's source was not waited for before its thread ended");
    if (!c.read) read_source(c);
    if (!c.written) write_destination(c);
  }
  t->stores.clear();
  t->store_groups.clear();
}

}  // namespace tessera::sim
