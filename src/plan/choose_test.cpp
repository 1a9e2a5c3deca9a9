// Which candidate runs, and what is said of those before it.
#include "plan/choose.hpp"

#include <gtest/gtest.h>

namespace tessera::plans {
namespace {

std::vector<Candidate> two_classes() {
  return {{"cuda", "new", {}, {}, "few queries"}, {"cuda", "old", {}, {}, {}}, {"cpu", "any", {}, {}, {}}};
}

TEST(Choose, TheFirstThatCan) {
  std::vector<Candidate> list = two_classes();
  list[0].better_elsewhere.clear();
  EXPECT_EQ(choose(list, "").index, 0u);
  list[0].reasons = {"pages"};
  const Choice choice = choose(list, "");
  EXPECT_EQ(choice.index, 1u);
  ASSERT_EQ(choice.passed_over.size(), 1u);
  EXPECT_EQ(choice.passed_over[0].reason, "pages");
}
TEST(Choose, LeavesAProblemToABetterVariantThatCan) {
  std::vector<Candidate> list = two_classes();
  for (const char* pinned : {"", "cuda"}) {
    const Choice choice = choose(list, pinned);
    EXPECT_EQ(choice.index, 1u) << pinned;
    ASSERT_EQ(choice.passed_over.size(), 1u);
    EXPECT_EQ(choice.passed_over[0].candidate, "cuda:new");
    EXPECT_EQ(choice.passed_over[0].reason, "few queries");
  }
  EXPECT_EQ(choose(list, "cuda:new").index, 0u) << "what is pinned runs";
  list[1].reasons = {"too large"};
  EXPECT_EQ(choose(list, "").index, 0u) << "the other cannot, and another backend is no variant of it";
}

}  // namespace
}  // namespace tessera::plans
