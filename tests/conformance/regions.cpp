#include "regions.hpp"

#include <map>
#include <mutex>

namespace tessera::conformance {
namespace {

struct Regions {
  std::mutex mutex;
  std::map<const char*, Region> by_begin;
};
Regions& all() {
  static Regions& regions = *new Regions;  // buffers may outlive statics
  return regions;
}

}  // namespace

KnownRegion::KnownRegion(const Region& region) : begin_(region.begin) {
  const std::scoped_lock lock(all().mutex);
  all().by_begin[begin_] = region;
}

KnownRegion::~KnownRegion() {
  const std::scoped_lock lock(all().mutex);
  all().by_begin.erase(begin_);
}

std::optional<Region> region_of(const void* pointer) {
  const char* at = static_cast<const char*>(pointer);
  const std::scoped_lock lock(all().mutex);
  auto after = all().by_begin.upper_bound(at);
  if (after == all().by_begin.begin()) return {};
  const Region& region = (--after)->second;
  if (at < region.begin + region.bytes) return region;
  return {};
}

}  // namespace tessera::conformance
