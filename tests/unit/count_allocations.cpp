// Replaces every form of operator new and delete of the program that links it.
#include "unit/count_allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace tessera::tests {
namespace {

std::atomic<std::size_t> all_threads{0};
thread_local std::size_t this_thread = 0;

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  all_threads.fetch_add(1, std::memory_order_relaxed), ++this_thread;
  if (bytes == 0) bytes = 1;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes);
  if (bytes > static_cast<std::size_t>(-1) - alignment) return nullptr;
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  for (;;) {
    if (void* memory = allocate(bytes, alignment)) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (!handler) throw std::bad_alloc();
    handler();
  }
}
std::size_t count(std::align_val_t alignment) { return static_cast<std::size_t>(alignment); }

}  // namespace

AllocationCount::AllocationCount() : all_(all_threads.load()), mine_(this_thread) {}
std::size_t AllocationCount::of_all_threads() const { return all_threads.load() - all_; }
std::size_t AllocationCount::of_this_thread() const { return this_thread - mine_; }

}  // namespace tessera::tests

using tessera::tests::allocate;
using tessera::tests::allocate_or_throw;
using tessera::tests::count;

void* operator new(std::size_t n) { return allocate_or_throw(n, 1); }
void* operator new[](std::size_t n) { return allocate_or_throw(n, 1); }
void* operator new(std::size_t n, std::align_val_t a) { return allocate_or_throw(n, count(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return allocate_or_throw(n, count(a)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return allocate(n, 1); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return allocate(n, 1); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return allocate(n, count(a)); }
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, count(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
