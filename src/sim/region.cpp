// The list of registered regions, copied when it changes; and guarded memory.
#include "sim/region.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <stdexcept>

namespace tessera::sim {
namespace {

constexpr std::size_t page = 4096;
constexpr int poison = 0xff;  // a NaN as f32, bf16 and f16

struct List {
  std::mutex mutex;
  std::shared_ptr<const Regions> regions = std::make_shared<Regions>();
  std::uint64_t next_id = 1;
};
List& list() {
  static List it;
  return it;
}

// Zero pages on demand: a region may be larger than memory as long as little of it is touched.
std::shared_ptr<std::uint8_t> zero_bytes(std::size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<std::uint8_t*>(at), [bytes](std::uint8_t* p) { munmap(p, bytes); }};
}

std::size_t up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace

Region::Region(std::string name, const void* data, std::size_t bytes, Content content) {
  char* begin = static_cast<char*>(const_cast<void*>(data));
  RegionInfo info{0, std::move(name), begin, begin + bytes, content, nullptr};
  if (content == Content::nothing) info.written = zero_bytes(bytes / 4 + 2);
  List& all = list();
  const std::lock_guard lock(all.mutex);
  id_ = info.id = all.next_id++;
  auto changed = std::make_shared<Regions>(*all.regions);
  changed->insert(std::upper_bound(changed->begin(), changed->end(), info,
                                   [](const RegionInfo& a, const RegionInfo& b) { return a.begin < b.begin; }),
                  std::move(info));
  all.regions = std::move(changed);
}

Region::~Region() {
  if (!id_) return;
  List& all = list();
  const std::lock_guard lock(all.mutex);
  auto changed = std::make_shared<Regions>(*all.regions);
  std::erase_if(*changed, [&](const RegionInfo& x) { return x.id == id_; });
  all.regions = std::move(changed);
}

std::shared_ptr<const Regions> regions() {
  List& all = list();
  const std::lock_guard lock(all.mutex);
  return all.regions;
}

const RegionInfo* region_at(const Regions& all, const void* p) {
  const char* at = static_cast<const char*>(p);
  auto after =
      std::upper_bound(all.begin(), all.end(), at, [](const char* x, const RegionInfo& r) { return x < r.begin; });
  // Registered regions may overlap (a tensor, and a part of it): look a few back.
  for (int back = 0; back < 8 && after != all.begin(); ++back) {
    --after;
    if (at < after->end) return &*after;
  }
  return nullptr;
}

void mark_written(const void* p, std::size_t bytes, bool written) {
  if (bytes == 0) return;
  const auto all = regions();
  const RegionInfo* r = region_at(*all, p);
  if (!r || !r->written) return;
  // Counted from the word that holds the first byte, as the machine does.
  const char* base = r->begin - reinterpret_cast<std::uintptr_t>(r->begin) % 4;
  const std::size_t first = static_cast<const char*>(p) - base;
  const std::size_t last = std::min(first + bytes, std::size_t(r->end - base));
  for (std::size_t i = first; i < last;) {
    std::uint8_t& bits = r->written.get()[i / 4];
    if (i % 4 == 0 && i + 4 <= last) {
      bits = written ? 15 : 0;
      i += 4;
    } else {
      const std::uint8_t bit = std::uint8_t(1u << (i % 4));
      bits = std::uint8_t(written ? bits | bit : bits & ~bit);
      ++i;
    }
  }
}

std::string near_text(const Regions& all, const void* p) {
  const char* at = static_cast<const char*>(p);
  const RegionInfo* best = nullptr;
  std::ptrdiff_t distance = 1 << 20;
  for (const RegionInfo& r : all) {
    const std::ptrdiff_t d = at < r.begin ? r.begin - at : at >= r.end ? at - r.end : 0;
    if (d < distance) {
      distance = d;
      best = &r;
    }
  }
  if (!best) return "no registered memory is near";
  return "'" + best->name + "' of " + std::to_string(best->end - best->begin) + " bytes, at byte " +
         std::to_string(at - best->begin);
}

Memory::Memory(std::string name, std::size_t bytes, Content content, std::size_t alignment)
    : bytes_(bytes), mapped_(up(bytes, std::max(page, alignment)) + 2 * page) {
  map_ = static_cast<char*>(
      mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (map_ == MAP_FAILED) throw std::bad_alloc();
  mprotect(map_, page, PROT_NONE);
  mprotect(map_ + mapped_ - page, page, PROT_NONE);
  data_ = map_ + mapped_ - page - up(bytes, alignment);
  std::memset(map_ + page, poison, mapped_ - 2 * page);
  region_ = std::make_unique<Region>(std::move(name), data_, bytes, content);
}

Memory::~Memory() {
  region_.reset();
  munmap(map_, mapped_);
}

bool Memory::intact() const {
  const auto is_poison = [](char x) { return static_cast<unsigned char>(x) == poison; };
  return std::all_of(map_ + page, data_, is_poison) && std::all_of(data_ + bytes_, map_ + mapped_ - page, is_poison);
}

}  // namespace tessera::sim
