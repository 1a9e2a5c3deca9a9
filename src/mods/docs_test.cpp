// The examples of docs/mods.md: they stand here as they stand there, and print as they do there.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tessera.hpp"

namespace tessera {
namespace {

const std::filesystem::path here = __FILE__;

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}
std::string without_space(std::string text) {
  text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c == ' ' || c == '\n'; }), text.end());
  return text;
}
// The fenced blocks of a page: language and text.
std::vector<std::pair<std::string, std::string>> blocks(const std::string& page) {
  std::vector<std::pair<std::string, std::string>> found;
  std::istringstream lines(page);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("```", 0) == 0) {
      inside = !inside;
      if (inside) found.emplace_back(line.substr(3), "");
    } else if (inside) {
      found.back().second += line + "\n";
    }
  }
  return found;
}
template <class T>
std::string text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

// What each example prints, in the order of the page.
std::vector<std::string> examples() {
  const Mask strided =
      mask_mod([](Expr, Expr, Expr q, Expr k) { return (k <= q) & ((q - k < 128) | (k % 128 >= 124)); });
  const Mask widths =
      mask_mod([](Expr, Expr h, Expr q, Expr k) { return (k <= q) & (q - k < capture("width", i32, 1)[h]); });
  const Mask images = mask_mod([](Expr b, Expr, Expr q, Expr k) {
    const Captured image = capture("image", i32, 2);
    return (k <= q) | ((image[b][q] >= 0) & (image[b][q] == image[b][k]));
  });
  const Mask drafts = mask_mod([](Expr b, Expr, Expr q, Expr k) {
    const Expr prefix = capture("prefix", i32, 1)[b];
    return (k < prefix) | capture("ancestor", b8, 3)[b][q - prefix][k - prefix];
  });
  const Mask streaming = causal() & (sinks(4) | window(1023, 0));
  const ScoreMod both_sides =
      score_mod([](Expr s, Expr, Expr h, Expr q, Expr k) { return s - capture("slope", f32, 1)[h] * abs(q - k); });
  const ScoreMod learned = score_mod([](Expr s, Expr, Expr h, Expr q, Expr k) {
    const auto table = capture("table", f32, 2);
    return 30.0f * tanh(s / 30.0f) + table[h][k - q + 512];
  });
  const ScoreMod scaled =
      score_mod([](Expr s, Expr, Expr h, Expr q, Expr) { return s * (capture("strength", f32, 1)[h] * log(q + 1)); });
  const ScoreMod forgetting = score_mod([](Expr s, Expr b, Expr h, Expr q, Expr k) {
    const auto sum = capture("gates", f32, 3)[b][h];
    return s + (sum[q] - sum[k]);
  });
  const ScoreMod steps = score_mod([](Expr s, Expr, Expr, Expr q, Expr k) {
    const Expr strength = param(0.5);
    for (const int distance : {64, 512}) s -= where(q - k > distance, strength, 0);
    return s;
  });
  return {text(strided),    text(widths),  text(images), text(drafts),     text(streaming),
          text(both_sides), text(learned), text(scaled), text(forgetting), text(steps)};
}

TEST(Docs, TheExamplesAreCompiledAndPrintWhatThePageSays) {
  const auto page = blocks(contents(here.parent_path() / "../../docs/mods.md"));
  const std::string source = without_space(contents(here));
  const std::vector<std::string> printed = examples();
  ASSERT_EQ(page.size(), 2 * printed.size());
  for (std::size_t i = 0; i < printed.size(); ++i) {
    const auto& [language, code] = page[2 * i];
    const auto& [kind, shown] = page[2 * i + 1];
    EXPECT_EQ(language, "cpp");
    EXPECT_NE(source.find(without_space(code)), std::string::npos) << "is not compiled here:\n" << code;
    EXPECT_EQ(printed[i] + "\n", shown) << code;
    const std::string read = kind == "mask" ? text(parse_mask(shown)) : text(parse_score(shown));
    EXPECT_EQ(read, printed[i]) << kind;
  }
}

TEST(Docs, TheTextsAreRead) {
  const std::string page = contents(here.parent_path() / "../../docs/mods.md");
  const std::string mask = "causal & documents(ids)", score = "softcap(30) + slope[h] * (k - q)";
  EXPECT_NE(page.find(mask), std::string::npos);
  EXPECT_NE(page.find(score), std::string::npos);
  EXPECT_EQ(parse_mask(mask), causal() & documents("ids"));
  EXPECT_EQ(parse_score(score), softcap(30) >> alibi("slope"));
}

}  // namespace
}  // namespace tessera
