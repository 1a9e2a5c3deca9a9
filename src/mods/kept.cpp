#include "mods/kept.hpp"

#include <algorithm>
#include <new>

namespace tessera::mods {
namespace {

struct Chunk {
  char* memory;
  std::size_t bytes;
  bool holds(const char* p) const { return p >= memory && p < memory + bytes; }
};
// Of one thread: chunks are filled one after the other and never moved; each is twice as large as the one before. When
// the last Keeping ends, several become one. It has no destructor of its own: what is static is destroyed later.
struct Store {
  static constexpr std::size_t most = 48;
  Chunk chunks[most];
  std::size_t count, chunk, used;  // chunk: the one being filled; used: what of it is taken
  int keepers, users;

  void release() {
    for (std::size_t i = 0; i < count; ++i) ::operator delete(chunks[i].memory);
    count = chunk = used = 0;
  }
};
thread_local constinit Store store{};
struct Owner {
  ~Owner() { store.release(); }
};
thread_local Owner owner;

constexpr std::size_t smallest = std::size_t{64} << 10;
std::size_t rounded(std::size_t bytes) {
  constexpr std::size_t unit = alignof(std::max_align_t);
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Keeping::Keeping() : chunk_(store.chunk), used_(store.used) {
  static_cast<void>(owner);  // made here, so that it is destroyed
  ++store.keepers;
}
Keeping::~Keeping() {
  store.chunk = chunk_, store.used = used_;
  if (--store.keepers > 0 || store.count < 2) return;
  std::size_t all = 0;
  for (std::size_t i = 0; i < store.count; ++i) all += store.chunks[i].bytes;
  store.release();  // before the new one is made: not both at a time
  // A destructor may not throw: without memory, the next call begins with none kept.
  if (void* memory = ::operator new(all, std::nothrow))
    store.chunks[0] = {static_cast<char*>(memory), all}, store.count = 1;
}

Keeping::Use::Use(const Keeping&) { ++store.users; }
Keeping::Use::~Use() { --store.users; }

void* kept_allocate(std::size_t bytes) {
  if (store.users == 0) return ::operator new(bytes);
  bytes = rounded(std::max<std::size_t>(bytes, 1));
  while (store.chunk < store.count && bytes > store.chunks[store.chunk].bytes - store.used)
    ++store.chunk, store.used = 0;
  if (store.chunk == store.count) {
    if (store.count == Store::most) throw std::bad_alloc();
    const std::size_t before = store.count == 0 ? 0 : store.chunks[store.count - 1].bytes;
    const std::size_t size = std::max({smallest, bytes, 2 * before});
    store.chunks[store.count] = {static_cast<char*>(::operator new(size)), size};
    ++store.count;
  }
  char* const memory = store.chunks[store.chunk].memory + store.used;
  store.used += bytes;
  return memory;
}

void kept_free(void* memory, std::size_t bytes) noexcept {
  const char* const at = static_cast<const char*>(memory);
  for (std::size_t i = 0; i < store.count; ++i) {
    const Chunk& chunk = store.chunks[i];
    if (!chunk.holds(at)) continue;
    // The last that was taken is given back; the rest when the Keeping ends.
    const auto begin = static_cast<std::size_t>(at - chunk.memory);
    if (i == store.chunk && begin + rounded(std::max<std::size_t>(bytes, 1)) == store.used) store.used = begin;
    return;
  }
  ::operator delete(memory);
}

}  // namespace tessera::mods
