// The text form: what is printed is read back to the equal graph; what cannot be read is pointed at.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <sstream>
#include <string>
#include <thread>

#include "mods/graph.hpp"
#include "mods/testing/random_program.hpp"

namespace tessera {
namespace {

using mods::Builder;
using tests::Choices;

template <class T>
std::string text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

TEST(Text, WhatIsPrintedIsReadBackToTheEqualGraph) {
  std::size_t read = 0;
  tests::check_property("print and parse", 6000, [&](Choices& choices) {
    const tests::Program program = tests::random_program(choices, 30);
    Builder builder;
    const auto node = tests::build(builder, program);
    Graph graph;
    try {
      graph = builder.finish(node.back());
    } catch (const Error& error) {
      PROPERTY_HOLDS(std::string(error.what()).find("written out") != std::string::npos);
      return;
    }
    const Graph back = mods::parse(text(graph));
    if (!(back == graph)) PROPERTY_FAILS(text(graph) + "\n became \n" + text(back));
    PROPERTY_HOLDS(hash(back) == hash(graph));
    if (program.back().type == Type::boolean &&
        std::none_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return n.op == Op::score; }))
      PROPERTY_HOLDS(parse_mask(text(graph)).graph() == graph);
    ++read;
  });
  EXPECT_GT(read, 5000u);
}

TEST(Text, RealsReadBackExactly) {
  tests::check_property("reals", 5000, [](Choices& choices) {
    const auto bits = std::uint64_t{choices.pick(0xffffffffu)} << 32 | choices.pick(0xffffffffu);
    const double value = std::bit_cast<double>(bits);
    Builder b;
    for (const auto node : {b.constant(value), b.param(value)}) {
      const Graph graph = b.finish(node);
      PROPERTY_HOLDS(mods::parse(text(graph)) == graph);
    }
  });
}

TEST(Text, LooksLikeThis) {
  EXPECT_EQ(text(full()), "full");
  EXPECT_EQ(text(!full()), "false");
  EXPECT_EQ(text(causal()), "(k <= q)");
  EXPECT_EQ(text(window(1023, 0)), "(((q - param(1023)) <= k) & (k <= (q + param(0))))");
  EXPECT_EQ(text(window(unbounded, 4)), "(k <= (q + param(4)))");
  EXPECT_EQ(text(!causal()), "(!(k <= q))");
  EXPECT_EQ(text(mods::parse("s + 0.5 * real(k - q) / 2 ")), "(s + ((0.5 * real((k - q))) / 2.0))");
  EXPECT_EQ(text(mods::parse("1e20 - -3")), "1e+20");
  EXPECT_EQ(text(mods::parse("-param(-2.5)")), "(-param(-2.5))");
  EXPECT_EQ(text(mods::parse("slope [ h ]*s")), "(slope[h] * s)");
  EXPECT_EQ(text(mods::parse("table[h][k-q+512]")), "table[h][((k - q) + 512)]");
  EXPECT_EQ(text(mods::parse("ids : int [q] == ids[k]")), "(ids:int[q] == ids:int[k])");
  EXPECT_EQ(text(mods::parse("seen:bool[ids:int[k]][0] & mine:real[q] > 0")),
            "(seen:bool[ids:int[k]][0] & (mine[q] > 0.0))");
  EXPECT_EQ(text(mods::parse("where(b==h,tanh(s),-inf)")), "where((b == h), tanh(s), -inf)");
}

TEST(Text, AParameterUsedTwiceIsNamedByNumber) {
  Builder b;
  const auto q = b.leaf(Op::query), k = b.leaf(Op::key), width = b.param(std::int64_t{7});
  const auto other = b.param(std::int64_t{7});  // of the same value, but another
  const auto near = b.apply(Op::logical_and, b.apply(Op::le, b.apply(Op::sub, q, width), k),
                            b.apply(Op::le, k, b.apply(Op::add, q, width)));
  const Graph graph = b.finish(b.apply(Op::logical_or, near, b.apply(Op::lt, k, other)));
  EXPECT_EQ(text(graph), "((((q - param(7)) <= k) & (k <= (q + $0))) | (k < param(7)))");
  EXPECT_EQ(mods::parse(text(graph)), graph);
  EXPECT_EQ(graph.params.size(), 2u);
}

TEST(Text, HasTheUsualPrecedence) {
  const std::pair<const char*, const char*> cases[] = {
      {"k<=q&k>q-5|k<4", "(((k <= q) & (k > (q - 5))) | (k < 4))"},
      {"k < 3 | k > 5 & q < 2", "((k < 3) | ((k > 5) & (q < 2)))"},
      {"k < 3 || k > 5 && q < 2", "((k < 3) | ((k > 5) & (q < 2)))"},
      {"k - q - 2 < 0", "(((k - q) - 2) < 0)"},
      {"k - (q - 2) < 0", "((k - (q - 2)) < 0)"},
      {"k + q * 2 // 3 % 5 == 0", "((k + (((q * 2) // 3) % 5)) == 0)"},
      {"-k + 1 < -q * 2", "(((-k) + 1) < ((-q) * 2))"},
      {"!(k < q) & ~(k != 2)", "((!(k < q)) & (!(k != 2)))"},
      {"!!(k < q)", "(k < q)"},
      {"k-1<q", "((k - 1) < q)"},
      {"k - -1 < q", "((k - -1) < q)"},
      {"k--1<q", "((k - -1) < q)"},
      {"kv_idx <= q_idx", "(k <= q)"},
      {"causal", "(k <= q)"},
      {"causal()", "(k <= q)"},
      {"full", "full"},
      {"full() & causal", "(k <= q)"},
      {"causal & window(1023, 0)", "((k <= q) & (((q - param(1023)) <= k) & (k <= (q + param(0)))))"},
      {"window(unbounded, 3)", "(k <= (q + param(3)))"},
      {"window(unbounded, unbounded)", "full"},
      {"((((k))))<q", "(k < q)"},
      {" \t\n k\r\n<  q ", "(k < q)"},
      {"where(b < 2, k <= q, true)", "where((b < 2), (k <= q), true)"},
      {"min(k, q) < max(h, 2)", "(min(k, q) < max(h, 2))"},
      {"k < 9223372036854775807", "(k < 9223372036854775807)"},
      {"k > -9223372036854775808", "(k > -9223372036854775808)"},
      {"real(k) < .5", "(real(k) < 0.5)"},
      {"k < 2.", "(real(k) < 2.0)"},
      {"k < 1E2", "(real(k) < 100.0)"},
      {"param(3) < k & $0 > q", "((param(3) < k) & ($0 > q))"},
      {"window(2, 1) & k != q + $1", "((((q - param(2)) <= k) & (k <= (q + param(1)))) & (k != (q + $1)))"},
  };
  for (const auto& [given, canonical] : cases) EXPECT_EQ(text(parse_mask(given)), canonical) << given;
}

TEST(Text, ErrorsPointAtTheOffendingPart) {
  struct Case {
    std::string text;
    std::size_t column;
    std::size_t length;
    std::string says;
  };
  const Case cases[] = {
      {"", 0, 1, "ends where a value is expected"},
      {"k <=", 4, 1, "ends where a value is expected"},
      {"k <= q q", 7, 1, "expected an operator"},
      {"k = q", 2, 1, "=="},
      {"(k <= q", 7, 1, "expected ')'"},
      {"k <= q)", 6, 1, "expected an operator"},
      {"k <= foo + 1", 5, 3, "there is no 'foo'"},
      {"exp <= 1", 4, 1, "expected '('"},
      {"min(k) < 1", 5, 1, "'min' takes 2 arguments"},
      {"min(k, q, 3) < 1", 8, 1, "expected ')'"},
      {"k <= q <= 3", 7, 2, "do not chain"},
      {"1 + (k < q) < 3", 2, 1, "'+' takes numbers"},
      {"k & q < 3", 2, 1, "'&' takes a boolean, not an integer"},
      {"!k < 3", 0, 1, "'!' takes a boolean"},
      {"k / 2 < q", 2, 1, "use //"},
      {"where(k, 1, 2) < 3", 0, 5, "chooses by a boolean"},
      {"k <= q & s < 1", 9, 1, "not the score s"},
      {"k + q * 2", 0, 9, "this is an integer"},
      {" exp(k)", 1, 6, "this is a real"},
      {"k < 9223372036854775808", 4, 19, "beyond the range of an integer"},
      {"1e999 < real(k)", 0, 5, "beyond the range of a real"},
      {"k < 1.2.3", 4, 5, "not a number"},
      {"k < 1e", 4, 2, "not a number"},
      {"k < .", 4, 1, "not a number"},
      {"window(-1, 0)", 0, 13, "left is -1"},
      {"k < 2 & window(3, -7)", 8, 13, "right is -7"},
      {"window(1.5, 0)", 7, 3, "an integer, not a real"},
      {"window(1)", 8, 1, "expected ','"},
      {"window(k, 0)", 7, 1, "expected a number"},
      {"param(q) < k", 6, 1, "expected a number"},
      {"param < k", 6, 1, "expected '('"},
      {"k < $0", 4, 2, "there are 0"},
      {"param(1) < k & $1 < k", 15, 2, "there are 1"},
      {"$ < k", 0, 1, "$n repeats"},
      {"slope[h] + s < 1", 11, 1, "not the score s"},
      {"slope[q / 2.0] < 1", 6, 7, "index 0 of the captured tensor slope[.] is a real"},
      {"t[q][k < q] < 1", 5, 5, "index 1 of the captured tensor t[.][.] is a boolean"},
      {"ids[q] == ids:int[k]", 10, 10, "'ids' is used both as ids[.] and as ids:int[.]"},
      {"t[q] < t[q][k]", 7, 7, "'t' is used both"},
      {"t[q][q][q][q][q] < 1", 13, 1, "at most 4 axes"},
      {"upper_bound < k", 12, 1, "expected '('"},
      {"upper_bound(4, q) < k", 12, 1, "expected the name of a captured tensor of integers"},
      {"upper_bound(t) < k", 13, 1, "a captured tensor without its last index and a number"},
      {"upper_bound(t:bool, q) < k", 14, 1, "a tensor of integers: expected int"},
      {"upper_bound(t, q / 2.0) < k", 15, 7, "upper_bound looks for a real in t:int[.]"},
      {"upper_bound(t[q < k], q) < k", 14, 5, "index 0 of the captured tensor t:int[.][.] is a boolean"},
      {"upper_bound(t[q][q][q][q], q) < k", 25, 1, "at most 4 axes"},
      {"t[q] < upper_bound(t, q)", 19, 1, "'t' is used both as t[.] and as t:int[.]"},
      {"upper_bound(q, q) < k", 12, 1, "'q': the word"},
      {"upper_bound[q] < 1", 0, 11, "'upper_bound': the word"},
      {"k[q] < 1", 0, 1, "'k': the word"},
      {"min[q] < 1", 0, 3, "'min'"},
      {"ids:long[q] < 1", 4, 4, "int, bool or real"},
      {"ids:int < 1", 8, 1, "expected '['"},
      {"ids[q < 1", 9, 1, "expected ']'"},
      {"ids[] < 1", 4, 1, "expected a number"},
      {"k < slope", 4, 5, "there is no 'slope'"},
      {"name_of_more_than_23_bytes[q] < 1", 0, 26, "1 to 23 letters"},
      {"k < \x01", 4, 1, "expected a number"},
  };
  for (const Case& c : cases) {
    try {
      const Mask mask = parse_mask(c.text);
      ADD_FAILURE() << '"' << c.text << "\" was read as " << mask;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::parse);
      std::istringstream said(error.what());
      std::string why, shown, mark;
      std::getline(said, why), std::getline(said, shown), std::getline(said, mark);
      EXPECT_NE(why.find(c.says), std::string::npos) << c.text << ": " << why;
      EXPECT_EQ(mark, "  " + std::string(c.column, ' ') + "^" + std::string(c.length - 1, '~')) << c.text;
      std::string printable = c.text;
      for (char& byte : printable)
        if (byte == '\x01') byte = ' ';
      EXPECT_EQ(shown, "  " + printable);
    }
  }
}

TEST(Text, AnErrorInALongTextShowsItsSurroundings) {
  std::string given = "k < q";
  for (int i = 0; i < 100; ++i) given += " | k < q + " + std::to_string(i);
  const std::size_t where = given.size() / 2;
  given.insert(where, " @ ");
  try {
    parse_mask(given);
    FAIL();
  } catch (const Error& error) {
    std::istringstream said(error.what());
    std::string why, shown, mark;
    std::getline(said, why), std::getline(said, shown), std::getline(said, mark);
    EXPECT_LT(shown.size(), 160u);
    ASSERT_EQ(mark.back(), '^');
    EXPECT_EQ(shown[mark.size() - 1], '@');
  }
}

TEST(Text, NeverGrowsBeyondItsLimits) {
  const auto said = [](const std::string& given) -> std::string {
    try {
      parse_mask(given);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::parse);
      return error.what();
    }
    return "";
  };
  const auto repeated = [](const std::string& part, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += part;
    return all;
  };
  EXPECT_EQ(said(repeated("(", 500) + "k < q" + repeated(")", 500)), "");
  EXPECT_NE(said(repeated("(", 800) + "k < q" + repeated(")", 800)).find("nested too deep"), std::string::npos);
  EXPECT_NE(said(repeated("(", 1000000)).find("nested too deep"), std::string::npos);
  EXPECT_NE(said(repeated("!", 100000)).find("nested too deep"), std::string::npos);
  EXPECT_NE(said(repeated("-", 100000)).find("nested too deep"), std::string::npos);
  EXPECT_NE(said(repeated("min(", 10000)).find("nested too deep"), std::string::npos);
  EXPECT_NE(said(repeated("k<q|k<q&k<q+k*(", 5000)).find("nested too deep"), std::string::npos);
  EXPECT_NE(said(repeated(" ", (1 << 20) + 1)).find("at most 1048576"), std::string::npos);
  // Read without recursion, but nothing that could be printed and read again.
  std::string chain = "k < 0";
  for (int i = 1; i <= 600; ++i) chain += "|k==" + std::to_string(i);
  EXPECT_NE(said(chain).find("nests more than 500"), std::string::npos);
  std::string many = "k<0";
  for (int i = 1; i < 5000; ++i) many += "&k<" + std::to_string(i);
  EXPECT_NE(said(many).find("more than 4096"), std::string::npos);
  EXPECT_NE(said(repeated("param(1)<k|", 256) + "k<q").find("more than 255"), std::string::npos);
}

TEST(Text, TheDeepestExpressionIsPrintedAndReadBack) {
  // The most nested, along the path of the parser that takes the most stack: each level inside the tightest operator.
  Builder b;
  auto node = b.leaf(Op::key);
  for (int i = 0; i < mods::max_depth - 1; ++i) node = b.apply(Op::floor_div, b.constant(std::int64_t{i}), node);
  const Graph graph = b.finish(b.apply(Op::lt, node, b.leaf(Op::query)));
  std::thread([&] { EXPECT_EQ(parse_mask(text(graph)).graph(), graph); }).join();
  // The largest text.
  auto wide = b.param(std::int64_t{std::numeric_limits<std::int64_t>::min()});
  for (int i = 0; i < 12; ++i)
    wide = b.apply(Op::select, b.apply(Op::lt, b.leaf(Op::batch), wide), wide, b.leaf(Op::head));
  const Graph large = b.finish(wide);
  EXPECT_EQ(mods::parse(text(large)), large);
}

TEST(Text, RandomTextIsReadOrRefused) {
  static constexpr const char* tokens[] = {
      "k", "q",  "b",  "h",     "s",  "1",      "2.5",    "1e3", "-",       "+",     "*",   "/", "//",
      "%", "<",  "<=", "==",    "!=", "&",      "&&",     "|",   "||",      "!",     "~",   "(", ")",
      ",", "$0", "$",  "=",     " ",  "causal", "full",   "inf", "window",  "param", "min", ".", "exp",
      "[", "]",  "t[", ":int[", "e",  "where",  "param(", "nan", "window(", "\xff"};
  int good = 0;
  tests::check_property("random text", 20000, [&](Choices& choices) {
    std::string given;
    while (choices.more()) given += choices.of(tokens);
    for (std::size_t length : {given.size(), std::min<std::size_t>(given.size(), 6)}) {
      const std::string part = given.substr(0, length);
      try {
        const Mask mask = parse_mask(part);
        PROPERTY_HOLDS(parse_mask(text(mask)) == mask);
        ++good;
      } catch (const Error& error) {
        PROPERTY_HOLDS(error.code() == Code::parse);
        const std::string said = error.what();
        PROPERTY_HOLDS(said.find("\n  ") != std::string::npos && said.find('^') != std::string::npos);
      }
    }
  });
  EXPECT_GT(good, 100);
}

}  // namespace
}  // namespace tessera
