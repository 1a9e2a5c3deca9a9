// merge(): the first backend that computes where the partial results are.
#include <sstream>

#include "backend.hpp"
#include "problem/validate.hpp"
#include "tessera/attention.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {

void merge(const Outputs& a, const Outputs& b, const Outputs& out, const Exec& exec) {
  problem::check_merge(a, b, out);
  std::ostringstream reasons;
  for (const Backend* backend : all_backends()) {
    if (backend->device() != a.o.device.type) continue;
    const std::string missing = backend->missing();
    if (missing.empty()) return backend->merge(a, b, out, exec);
    reasons << "\n  " << backend->full_name() << ": " << missing;
  }
  std::ostringstream text;
  text << "the partial results are on " << a.o.device << ", and nothing can merge them there:" << reasons.str();
  throw Error(Code::unsupported, text.str());
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
