#include "mods/testing/property.hpp"

#include <rapidcheck.h>

#include <sstream>

namespace tessera::tests {

void check_property(const std::string& what, int cases, const std::function<void(Choices&)>& property) {
  auto params = rc::detail::configuration().testParams;
  params.maxSuccess = cases, params.maxSize = 250;
  rc::detail::TestMetadata metadata;
  metadata.id = what, metadata.description = what;
  const auto result = rc::detail::checkTestable(
      [&](const std::vector<std::uint32_t>& made) {
        Choices choices(made);
        property(choices);
      },
      metadata, params);
  if (result.template is<rc::detail::SuccessResult>()) return;
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  ADD_FAILURE() << what << " (seed " << params.seed << "): " << text.str();
}

}  // namespace tessera::tests
