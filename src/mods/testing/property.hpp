// For tests only. Properties over random cases: generated and shrunk by RapidCheck, any number of cases, the seed in
// the message. A case is a list of random choices; what is built from them becomes smaller as the list becomes shorter.
// Must not know: RapidCheck, whose templates take seconds to compile in every test that would include them.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
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

// property(Choices&) throws when it does not hold, by the two below or otherwise. RC_PARAMS="seed=N" repeats a run.
void check_property(const std::string& what, int cases, const std::function<void(Choices&)>& property);

#define PROPERTY_STRING_OF(x) #x
#define PROPERTY_LINE(x) PROPERTY_STRING_OF(x)
#define PROPERTY_FAILS(text) throw std::runtime_error(std::string(__FILE__ ":" PROPERTY_LINE(__LINE__) ": ") + (text))
#define PROPERTY_HOLDS(...)                                            \
  do {                                                                 \
    if (!(__VA_ARGS__)) PROPERTY_FAILS(#__VA_ARGS__ " does not hold"); \
  } while (false)

}  // namespace tessera::tests
