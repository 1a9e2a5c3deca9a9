// For tests only. Properties over random cases: generated and shrunk by RapidCheck, any number of cases, the seed in
// the message. A case is a list of random choices; what is built from them becomes smaller as the list becomes shorter.
#pragma once
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace tessera::tests {

class Choices {
 public:
  explicit Choices(const std::vector<std::uint32_t>& made) : made_(made) {}
  bool more() const { return at_ < made_.size(); }
  // 0 .. below - 1; the first choice when the list has ended.
  std::uint32_t pick(std::size_t below) { return more() ? static_cast<std::uint32_t>(made_[at_++] % below) : 0; }
  template <class T, std::size_t N>
  T of(const T (&options)[N]) {
    return options[pick(N)];
  }

 private:
  const std::vector<std::uint32_t>& made_;
  std::size_t at_ = 0;
};

// property(Choices&) throws or fails a RC_ASSERT when it does not hold. RC_PARAMS="seed=N" repeats a run.
template <class Property>
void check_property(const std::string& what, int cases, Property property) {
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
