// Counts what operator new hands out, so that a test can say "this allocates nothing".
#pragma once
#include <cstddef>

namespace tessera::tests {

// Allocations since it was made: through any form of operator new, in the whole program or by the calling thread.
// malloc() called directly is not seen.
class AllocationCount {
 public:
  AllocationCount();
  std::size_t of_all_threads() const;
  std::size_t of_this_thread() const;

 private:
  std::size_t all_, mine_;
};

}  // namespace tessera::tests
