// Memory that a thread keeps from one call to the next: what is made anew in every call, tile maps of tensors' values,
// grows it once and allocates nothing after that.
// Must not know: what is kept in it.
#pragma once
#include <cstddef>
#include <new>
#include <vector>

namespace tessera::mods {

// Vectors made while a Use lives take their memory from what the thread keeps, others use the heap. What they hold must
// not outlive the Keeping. Both may be nested.
class Keeping {
 public:
  Keeping();
  ~Keeping();
  Keeping(const Keeping&) = delete;
  Keeping& operator=(const Keeping&) = delete;

  class Use {
   public:
    explicit Use(const Keeping&);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
  };

 private:
  std::size_t chunk_, used_;  // what was in use before
};

void* kept_allocate(std::size_t bytes);
void kept_free(void* memory, std::size_t bytes) noexcept;

template <class T>
struct Kept {
  using value_type = T;
  Kept() = default;
  template <class U>
  Kept(const Kept<U>&) {}
  T* allocate(std::size_t n) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    if (n > static_cast<std::size_t>(-1) / 2 / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(kept_allocate(n * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t n) noexcept { kept_free(memory, n * sizeof(T)); }
  bool operator==(const Kept&) const = default;
};
template <class T>
using Vector = std::vector<T, Kept<T>>;

}  // namespace tessera::mods
