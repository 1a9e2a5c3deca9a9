// What tests of the emulated GPU say about a kernel's run.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "sim/behaviours.hpp"

namespace tessera::sim {

inline Setting plain() { return {.checked = false}; }
// Only reports of `kind`, and at least one.
inline void only(const Behaviour& b, const std::string& kind) {
  EXPECT_GE(b.of(kind), 1) << text_of(b.result);
  EXPECT_EQ(std::size_t(b.of(kind)), b.result.reports.size()) << text_of(b.result);
}
inline void quiet(const Behaviour& b) { EXPECT_TRUE(b.result.ok()) << text_of(b.result); }
inline bool says(const Behaviour& b, const std::string& words) {
  return text_of(b.result).find(words) != std::string::npos;
}

}  // namespace tessera::sim
