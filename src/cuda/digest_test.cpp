#include "cuda/digest.hpp"

#include <gtest/gtest.h>

namespace tessera::cuda {
namespace {

TEST(DigestTest, TheStandardsExamples) {
  EXPECT_EQ(hex(digest("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(digest("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(digest(std::string(1000000, 'a'))), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(DigestTest, InPiecesAsInOne) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (std::size_t cut = 0; cut <= text.size(); cut += 13) {
    Digester pieces;
    pieces.add(std::string_view(text).substr(0, cut)).add(std::string_view(text).substr(cut));
    EXPECT_EQ(pieces.done(), digest(text)) << cut;
  }
}

TEST(DigestTest, FieldsDoNotRunIntoEachOther) {
  const auto of = [](std::string_view a, std::string_view b) { return Digester().add_field(a).add_field(b).done(); };
  EXPECT_NE(of("ab", "c"), of("a", "bc"));
  EXPECT_NE(of("", "a"), of("a", ""));
}

}  // namespace
}  // namespace tessera::cuda
