// What a call owes to streams on a real device: a captured graph follows what stands on the device at each replay, and
// two streams do not disturb each other.
#pragma once
#include <string>

namespace tessera::conformance {

// Prints a line for each finding.
struct Findings {
  int looked_at = 0, failed = 0;
  void tell(bool good, const std::string& what);
};
Findings check_streams_on_device();

}  // namespace tessera::conformance
