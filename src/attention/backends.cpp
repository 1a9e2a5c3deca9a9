// The ONE ordered list of backends, best first.
#include <vector>

#include "backend.hpp"
#include "cpu/cpu_backend.hpp"
#include "tessera/attention.hpp"

namespace tessera {

const std::vector<const Backend*>& all_backends() {
  static const std::vector<const Backend*> list = cpu::backends();
  return list;
}

inline namespace TESSERA_API_NAMESPACE {

std::vector<BackendInfo> backends() {
  std::vector<BackendInfo> list;
  for (const Backend* b : all_backends()) {
    const std::string missing = b->missing();
    list.push_back({b->full_name(), missing.empty(), missing.empty() ? b->about() : missing});
  }
  return list;
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
