// Products of the warpgroup as text: each form once, with all its registers. tests/sim compiles and runs them.
#include "emit/wgmma_text.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/failure_of.hpp"

namespace tessera::emit {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(WgmmaText, EachFormOnce) {
  const std::vector<WgmmaForm> forms = {{DType::bf16, 80, true, false, true},
                                        {DType::f16, 80, false, true, false},
                                        {DType::bf16, 80, true, false, true},
                                        {DType::bf16, 8, false, false, false}};
  const std::string text = wgmma_text(forms);
  EXPECT_EQ(count(text, "struct Product<"), 3u);
  EXPECT_EQ(count(text, "struct Product<bf16, 80, true, Major::k, Major::mn>"), 1u);
  EXPECT_EQ(count(text, "struct Product<f16, 80, false, Major::mn, Major::k>"), 1u);
  EXPECT_EQ(count(text, "struct Product<bf16, 8, false, Major::k, Major::k>"), 1u);
  const std::vector<WgmmaForm> turned(forms.rbegin(), forms.rend());
  EXPECT_EQ(wgmma_text(turned), text);
}

TEST(WgmmaText, NamesEachRegisterOnce) {
  const std::string text = wgmma_text(std::vector<WgmmaForm>{{DType::bf16, 8, true, false, true}});
  EXPECT_NE(text.find("m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1, 1;"), std::string::npos);
  EXPECT_NE(text.find("setp.ne.b32 p, %9, 0;"), std::string::npos);
  EXPECT_NE(text.find(R"("+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]))"), std::string::npos);
  const std::string shared = wgmma_text(std::vector<WgmmaForm>{{DType::f16, 8, false, true, false}});
  EXPECT_NE(shared.find("m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 1, 0;"), std::string::npos);
}

TEST(WgmmaText, RefusesWhatThereIsNot) {
  const auto refused = [](const WgmmaForm& form) {
    return failure_of([&] { wgmma_text(std::vector<WgmmaForm>{form}); }).text;
  };
  EXPECT_NE(refused({DType::bf16, 264}).find("8 to 256 columns, a multiple of 8, not 264"), std::string::npos);
  EXPECT_NE(refused({DType::bf16, 12}).find("not 12"), std::string::npos);
  EXPECT_NE(refused({DType::bf16, 0}).find("not 0"), std::string::npos);
  EXPECT_NE(refused({DType::f32, 64}).find("bf16 and f16"), std::string::npos);
  EXPECT_NE(refused({DType::bf16, 64, true, true, false}).find("cannot be MN-major"), std::string::npos);
}

}  // namespace
}  // namespace tessera::emit
