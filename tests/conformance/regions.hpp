// Where the suite's own memory lies: buffers and workspaces with their guards. Subjects that compute elsewhere take
// whole regions there and back, so that a stray write is seen where it happened.
// Must not know: cases, subjects.
#pragma once
#include <cstddef>
#include <optional>

namespace tessera::conformance {

// [begin, begin + bytes) with guards; what may be used is [data, data + data_bytes).
struct Region {
  char* begin = nullptr;
  std::size_t bytes = 0;
  char* data = nullptr;
  std::size_t data_bytes = 0;
};

// Known from its making to its end. Thread-safe.
class KnownRegion {
 public:
  explicit KnownRegion(const Region& region);
  ~KnownRegion();
  KnownRegion(const KnownRegion&) = delete;
  KnownRegion& operator=(const KnownRegion&) = delete;

 private:
  const char* begin_;
};

std::optional<Region> region_of(const void* pointer);

}  // namespace tessera::conformance
