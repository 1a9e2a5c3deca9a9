// Bounds against the interpreter on every cell of their boxes, and summaries against every element of their ranges.
#include "mods/bounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "mods/arithmetic.hpp"
#include "mods/testing/random_program.hpp"

namespace tessera {
namespace {

using mods::Bounds;
using mods::Box;
using mods::Summary;
using mods::Table;
using mods::Truth;
using tests::Choices;

constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

Truth on_every_cell(const Graph& graph, std::span<const Table> tables, std::int64_t b, std::int64_t h, const Box& box) {
  bool some = false, all = true;
  for (std::int64_t q = box.q_begin; q < box.q_end; ++q)
    for (std::int64_t k = box.k_begin; k < box.k_end; ++k) {
      const bool here = mods::evaluate_mask(graph, {.b = b, .h = h, .q = q, .k = k}, tables);
      some = some || here, all = all && here;
    }
  return all ? Truth::always : some ? Truth::mixed : Truth::never;
}

// ------------------------------------------------------------------------------------------------------ random graphs
// Steps that read the score read something else instead: masks do not see it.
void without_score(tests::Program& program, Choices& choices) {
  static constexpr double reals[] = {0, 1, -2.5, 0.1, 1e300, -1e-300, infinity};
  for (tests::Step& step : program)
    if (step.op == Op::score) step.op = Op::param, step.r = choices.of(reals);
}

TEST(Bounds, AreNeverWrongOnRandomGraphs) {
  std::size_t boxes = 0, decided = 0, both = 0, cells = 0;
  tests::check_property("bounds", 5000, [&](Choices& choices) {
    static constexpr std::int64_t corners[] = {0, 3, -4, 1000, 1020, mods::farthest - 9, -mods::farthest};
    const std::int64_t b = choices.pick(4), h = choices.pick(4), q = choices.of(corners), k = choices.of(corners);
    const Box whole{q, q + 1 + choices.pick(9), k, k + 1 + choices.pick(9)};
    tests::Program program = tests::random_program(choices, 30);
    without_score(program, choices);
    mods::Builder builder;
    const auto node = tests::build(builder, program);
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (program[i].type != Type::boolean) continue;
      Graph graph;
      try {
        graph = builder.finish(node[i]);
      } catch (const Error&) {
        continue;  // beyond the limits of a text: graph_test.cpp
      }
      const auto tables = tests::tables(graph);
      const auto summaries = mods::summarise(graph, tables);
      Bounds bounds(graph, summaries, b, h, whole);
      bool reals = false;
      for (const Node& n : graph.nodes) reals = reals || n.type == Type::real;
      // Boxes one after the other with the same bounds, so that what is remembered of one is tried on the next.
      Box box = whole;
      for (int round = 0; round < 6; ++round) {
        const Truth truth = on_every_cell(graph, tables, b, h, box), bounded = bounds(box);
        PROPERTY_HOLDS(bounded == truth || bounded == Truth::mixed);
        const bool cell = box.q_end - box.q_begin == 1 && box.k_end - box.k_begin == 1;
        if (cell && !reals) {
          PROPERTY_HOLDS(bounded == truth);
          ++cells;
        }
        ++boxes, decided += bounded != Truth::mixed, both += truth == Truth::mixed;
        if (round % 2 == 0) {
          box.q_begin = whole.q_begin + choices.pick(static_cast<std::size_t>(whole.q_end - whole.q_begin));
          box.q_end = box.q_begin + 1 + choices.pick(static_cast<std::size_t>(whole.q_end - box.q_begin));
        } else {
          box.k_begin = whole.k_begin + choices.pick(static_cast<std::size_t>(whole.k_end - whole.k_begin));
          box.k_end = box.k_begin + 1 + choices.pick(static_cast<std::size_t>(whole.k_end - box.k_begin));
        }
      }
    }
  });
  EXPECT_GT(boxes, 50000u);
  EXPECT_GT(decided, boxes / 2);  // of them
  EXPECT_GT(both, 500u);          // see both values
  EXPECT_GT(cells, 5000u);
}

// ------------------------------------------------------------------------------------------------------- what is seen
Truth bounded(const std::string& mask, const Box& box, std::span<const Table> tables = {}) {
  const Graph graph = parse_mask(mask).graph();
  const auto summaries = mods::summarise(graph, tables);
  Bounds bounds(graph, summaries, 1, 2, box);
  return bounds(box);
}

struct Seen {
  const char* mask;
  Box box;
  Truth truth;
};
void PrintTo(const Seen& seen, std::ostream* out) { *out << seen.mask; }
class BoundsSee : public ::testing::TestWithParam<Seen> {};
TEST_P(BoundsSee, What) {
  const Seen& c = GetParam();
  EXPECT_EQ(bounded(c.mask, c.box), c.truth) << c.mask;
}
constexpr Box square{64, 128, 0, 64};
INSTANTIATE_TEST_SUITE_P(
    Masks, BoundsSee,
    ::testing::Values(
        Seen{"k <= q", square, Truth::always}, Seen{"q < k", square, Truth::never},
        Seen{"k < q", {0, 64, 0, 64}, Truth::mixed},
        // Sums: what stands twice cancels.
        Seen{"q - k - q + k == 0", square, Truth::always},
        Seen{"3 * q - 2 * k - q * 3 + k * 2 < 1", square, Truth::always},
        Seen{"(q + 5) - (q - k) == k + 5", square, Truth::always}, Seen{"q - k < 128", square, Truth::always},
        Seen{"q - k > 127", square, Truth::never}, Seen{"-(q - k) >= 0", square, Truth::never},
        // Division and remainder.
        Seen{"q // 64 == k // 64", square, Truth::never}, Seen{"q // 64 == k // 64", {64, 128, 64, 128}, Truth::always},
        Seen{"q // -64 == -1", {1, 65, 0, 1}, Truth::always}, Seen{"q % 64 <= 63 & q % 64 >= 0", square, Truth::always},
        Seen{"q % 64 < 32", {64, 96, 0, 1}, Truth::always}, Seen{"q % -7 <= 0", square, Truth::always},
        Seen{"q % 0 == 0 & q // 0 == 0", square, Truth::always}, Seen{"q % (k + 500) >= 64", square, Truth::always},
        Seen{"k < q - q % 64 + 64", square, Truth::always}, Seen{"k < q - q % 64 + 64", {0, 64, 64, 128}, Truth::never},
        Seen{"abs(q // 64 - k // 64) <= 1", square, Truth::always},
        Seen{"(q - q % 50) % 50 == 0", square, Truth::mixed},
        // Other integer operations.
        Seen{"min(q, k) == k", square, Truth::mixed}, Seen{"max(q, 64) - min(k, 63) > 0", square, Truth::always},
        Seen{"sign(q - k) == 1", square, Truth::always}, Seen{"(q - k) * (q - k) >= 0", {0, 9, 0, 9}, Truth::always},
        Seen{"(q - 40) * (k - 80) <= 0", square, Truth::always},
        Seen{"where(k <= q, q, k) == q", square, Truth::always},
        Seen{"where(q < 100, k, q) < 128", square, Truth::always}, Seen{"b == 1 & h == 2", square, Truth::always},
        Seen{"b * 100 + h < k", square, Truth::never},
        // Logic.
        Seen{"!(k <= q) | q < 10", square, Truth::never}, Seen{"where(q < 100, k < 64, k <= q)", square, Truth::always},
        Seen{"k <= q & q < 100", square, Truth::mixed}, Seen{"true", square, Truth::always},
        // Saturation: the end of int64 is met at both sides.
        Seen{"q + param(9223372036854775807) >= k", square, Truth::always},
        Seen{"q + param(9223372036854775807) == k + param(9223372036854775807)", square, Truth::always},
        Seen{"q + param(9223372036854775807) - param(9223372036854775807) == q", square, Truth::never},
        Seen{"q - param(-9223372036854775808) == 9223372036854775807", square, Truth::always},
        Seen{"q * param(4611686018427387904) == 9223372036854775807", square, Truth::always},
        Seen{"-(param(-9223372036854775808)) > q", square, Truth::always},
        Seen{"k - 9223372036854775807 * q < 0", square, Truth::always},
        // Reals: rounding, infinities and NaN.
        Seen{"real(k) * 0.5 <= real(q)", square, Truth::always}, Seen{"exp(real(k)) >= 1.0", square, Truth::mixed},
        Seen{"exp(real(k)) >= 0.999", square, Truth::always}, Seen{"exp(real(-q)) < 1e-20", square, Truth::always},
        Seen{"tanh(real(q)) <= 1.0", square, Truth::always}, Seen{"sqrt(real(q)) >= 8.0", square, Truth::always},
        Seen{"sqrt(real(k)) >= 8.0", square, Truth::never}, Seen{"sqrt(real(-q)) >= 0.0", square, Truth::mixed},
        Seen{"1.0 / real(k) > 0.0", square, Truth::mixed}, Seen{"1.0 / real(q) > 0.0", square, Truth::always},
        Seen{"rsqrt(real(q)) <= 0.125", square, Truth::always}, Seen{"log(real(q)) > 4.0", square, Truth::always},
        Seen{"pow(real(q), 2.0) >= 4095.0", square, Truth::always}, Seen{"real(k) - inf < 0.0", square, Truth::always},
        Seen{"real(k) * inf >= 0.0", square, Truth::mixed}, Seen{"max(real(k), 3.5) > 3.0", square, Truth::always},
        Seen{"abs(real(k - 10)) <= 60.0", square, Truth::always}));

TEST(Bounds, SeeDocumentsThroughSignaturesAndOrder) {
  std::vector<std::int32_t> ids(512);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = i / 128 % 2 == 0 ? 1000 : 2000 + static_cast<std::int32_t>(i);
  const Table table{ids.data(), i32, {512}, {1}};
  const std::span tables(&table, 1);
  const std::string same = "ids:int[q] == ids:int[k]";
  EXPECT_EQ(bounded(same, {0, 128, 256, 384}, tables), Truth::always);
  EXPECT_EQ(bounded("!(" + same + ")", {0, 128, 256, 384}, tables), Truth::never);
  EXPECT_EQ(bounded(same, {0, 128, 128, 130}, tables), Truth::never);
  EXPECT_EQ(bounded("ids:int[q] != ids:int[k]", {0, 128, 128, 130}, tables), Truth::always);
  EXPECT_EQ(bounded(same, {0, 130, 0, 128}, tables), Truth::mixed);
  EXPECT_EQ(bounded("ids:int[q] >= ids:int[k]", {128, 256, 0, 128}, tables), Truth::always);
  EXPECT_EQ(bounded("ids:int[q] == 1000", {0, 128, 0, 1}, tables), Truth::always);
  EXPECT_EQ(bounded("ids:int[b] == 1000", {0, 9, 0, 9}, tables), Truth::always);
  // An index beyond the ends is that of the end.
  EXPECT_EQ(bounded("ids:int[q - 600] == ids:int[k - 1000]", {0, 512, 0, 512}, tables), Truth::always);
  EXPECT_EQ(bounded("ids:int[q + 600] == 2511", {0, 512, 0, 512}, tables), Truth::always);
  // Not bound: zeros, as the interpreter reads them.
  EXPECT_EQ(bounded("ids:int[q] == 0", {0, 9, 0, 9}), Truth::always);
}

TEST(Bounds, SeeDocumentsThroughTheirOffsets) {
  const std::vector<std::int32_t> offsets{0, 10, 10, 35, 60};
  const Table table{offsets.data(), i32, {5}, {1}};
  const Graph graph = parse_mask("upper_bound(cu, q) == upper_bound(cu, k)").graph();
  const auto summaries = mods::summarise(graph, std::span(&table, 1));
  Bounds bounds(graph, summaries, 0, 0, {0, 100, 0, 100});
  EXPECT_FALSE(bounds.distance_only());
  EXPECT_EQ(bounds({10, 35, 12, 20}), Truth::always);
  EXPECT_EQ(bounds({60, 100, 70, 71}), Truth::always);  // past the last offset: one document
  EXPECT_EQ(bounds({10, 35, 35, 99}), Truth::never);
  EXPECT_EQ(bounds({0, 35, 35, 99}), Truth::never);
  EXPECT_EQ(bounds({9, 11, 0, 10}), Truth::mixed);
}

TEST(Bounds, NanInACapturedValueIsMixed) {
  std::vector<float> values(300, 1.0f);
  values[200] = std::nanf("");
  const Table table{values.data(), f32, {300}, {1}};
  const std::span tables(&table, 1);
  EXPECT_EQ(bounded("bias[k] > 0.5", {0, 1, 0, 200}, tables), Truth::always);
  EXPECT_EQ(bounded("bias[k] > 0.5", {0, 1, 0, 201}, tables), Truth::mixed);
  EXPECT_EQ(bounded("bias[k] > 0.5", {0, 1, 0, 300}, tables), Truth::mixed);
  EXPECT_EQ(bounded("bias[k] != bias[q]", {0, 1, 128, 256}, tables), Truth::mixed);
  EXPECT_EQ(bounded("bias[k] > 0.5", {0, 1, 201, 300}, tables), Truth::always);
}

TEST(Bounds, DistanceAlone) {
  const auto distance_only = [](const char* mask) {
    const Graph graph = parse_mask(mask).graph();
    return Bounds(graph, {}, 0, 0, {0, 1000, 0, 1000}).distance_only();
  };
  for (const char* mask : {"k <= q", "(q - k) % 4 == 0", "q - 1023 <= k & k <= q", "abs(k - q) // 3 < 7", "true",
                           "t[k - q + 512] > 0.0", "k <= q + b", "real(q - k) * 0.5 < 3.0", "q * 3 - k * 3 == 6"})
    EXPECT_TRUE(distance_only(mask)) << mask;
  for (const char* mask : {"k < 4", "q % 4 == k % 4", "k <= 2 * q", "t[k] > 0.0", "k <= q & q < 100",
                           "real(q) < real(k)", "abs(q) < 5", "ids:int[q] == ids:int[k]"})
    EXPECT_FALSE(distance_only(mask)) << mask;
}

TEST(Bounds, DependenceIsOnWhatIsRead) {
  const auto of = [](const char* mask) { return mods::dependence(parse_mask(mask).graph()); };
  EXPECT_EQ(of("true"), mods::Dependence{});
  EXPECT_EQ(of("k <= q"), (mods::Dependence{.query = true, .key = true}));
  EXPECT_EQ(of("k < len:int[b]"), (mods::Dependence{.batch = true, .key = true}));
  EXPECT_EQ(of("t[h][q] > 0.0"), (mods::Dependence{.head = true, .query = true}));
}

// ---------------------------------------------------------------------------------------------------------- summaries
struct Tensor {
  std::vector<std::byte> bytes;
  Table table;
  Capture capture;
};
Tensor random_tensor(Choices& choices) {
  static constexpr DType types[] = {f32, bf16, f16, i32, i64, u8, b8};
  static constexpr std::array<std::int64_t, 4> shapes[] = {
      {1, 0, 0, 0},   {63, 0, 0, 0},  {64, 0, 0, 0},  {65, 0, 0, 0},    {1000, 0, 0, 0}, {8200, 0, 0, 0},
      {3, 700, 0, 0}, {70, 90, 0, 0}, {130, 1, 0, 0}, {200, 600, 0, 0}, {2, 65, 66, 0},  {2, 3, 4, 130}};
  Tensor t;
  const auto extent = choices.of(shapes);
  const auto rank = static_cast<std::uint8_t>(4 - std::count(extent.begin(), extent.end(), 0));
  const std::int64_t gap = 1 + choices.pick(2);
  t.table.dtype = choices.of(types);
  t.table.extent = extent;
  std::int64_t elements = gap;
  for (int i = rank - 1; i >= 0; --i) t.table.stride[i] = elements, elements = elements * extent[i] + choices.pick(3);
  t.capture.rank = rank;
  t.capture.type = t.table.dtype == b8 ? Type::boolean : t.table.dtype < i32 ? Type::real : Type::integer;
  t.bytes.resize(static_cast<std::size_t>(elements * size_bytes(t.table.dtype)));
  std::uint64_t state = choices.pick(1u << 30) + 1;
  const std::uint64_t stretch = 1 + choices.pick(100), specials = choices.pick(3);
  double x = 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    if (state % stretch == 0) x = static_cast<double>(state >> 40 & 255);
    double value = x;
    if (t.capture.type == Type::real && specials == 0 && state % 97 == 3)
      value = std::array{nan, infinity, -infinity, -0.0}[state >> 8 & 3];
    const auto put = [&](auto v) { std::memcpy(t.bytes.data() + i * std::int64_t{sizeof v}, &v, sizeof v); };
    if (t.table.dtype == f32) put(static_cast<float>(value - 100));
    if (t.table.dtype == bf16) put(BFloat16(static_cast<float>(value - 100)));
    if (t.table.dtype == f16) put(Float16(static_cast<float>(value - 100)));
    if (t.table.dtype == i32) put(static_cast<std::int32_t>(value - 100));
    if (t.table.dtype == i64) put(static_cast<std::int64_t>(value - 100) << 40);
    if (t.table.dtype == u8) put(static_cast<std::uint8_t>(value));
    if (t.table.dtype == b8) put(static_cast<std::uint8_t>(value < 128 ? 0 : value));
  }
  t.table.data = t.bytes.data();
  return t;
}

std::int64_t key_of(const Tensor& t, const std::array<std::int64_t, 4>& index) {
  const mods::Value value = mods::element(t.table, t.capture.rank, index.data());
  return t.capture.type == Type::real ? mods::real_key(value.r) : value.i;
}

TEST(Summary, SaysOfRangesWhatTheirElementsSay) {
  tests::check_property("summary", 1500, [&](Choices& choices) {
    const Tensor t = random_tensor(choices);
    const Summary summary(t.table, t.capture);
    for (int round = 0; round < 4; ++round) {
      std::array<std::int64_t, 4> first{}, last{};
      for (std::size_t i = 0; i < t.capture.rank; ++i) {
        const auto extent = static_cast<std::size_t>(t.table.extent[i]);
        first[i] = static_cast<std::int64_t>(choices.pick(extent + 4)) - 2;
        last[i] = first[i] + choices.pick(choices.pick(2) == 0 ? extent + 4 : 3);
      }
      std::int64_t lo = most, hi = least;
      std::uint64_t signature = 0;
      bool not_numbers = false;
      std::array<std::int64_t, 4> i{};
      for (i[0] = first[0]; i[0] <= last[0]; ++i[0])
        for (i[1] = first[1]; i[1] <= last[1]; ++i[1])
          for (i[2] = first[2]; i[2] <= last[2]; ++i[2])
            for (i[3] = first[3]; i[3] <= last[3]; ++i[3]) {
              const std::int64_t key = key_of(t, i);
              not_numbers = not_numbers || (t.capture.type == Type::real && key == most);
              lo = std::min(lo, key), hi = std::max(hi, key), signature |= Summary::bit(key);
            }
      const Summary::Entry e = summary.range(first.data(), last.data());
      if (not_numbers) {
        PROPERTY_HOLDS(e.lo == least && e.hi == most && ~e.signature == 0u);
      } else {
        PROPERTY_HOLDS(e.lo == lo && e.hi == hi && e.signature == signature);
      }
    }
  });
}

// Of tensors in any order: what a search can answer lies between its answers at the ends, and both are among them.
TEST(Summary, SearchesAnswerWithinTheirBounds) {
  std::size_t searches = 0, inner = 0;
  tests::check_property("searches", 3000, [&](Choices& choices) {
    const Tensor t = random_tensor(choices);
    if (t.capture.type != Type::integer) return;
    const Summary summary(t.table, t.capture, choices.pick(2) == 0);
    const std::size_t axis = t.capture.rank - std::size_t{1};
    for (int round = 0; round < 4; ++round) {
      std::array<std::int64_t, 4> first{}, last{};
      for (std::size_t i = 0; i < axis; ++i) {
        first[i] = static_cast<std::int64_t>(choices.pick(static_cast<std::uint32_t>(t.table.extent[i] + 4))) - 2;
        last[i] = first[i] + choices.pick(3);
      }
      // Numbers around those that are there.
      std::array<std::int64_t, 4> some = first;
      const std::int64_t unit = t.table.dtype == i64 ? std::int64_t{1} << 40 : 1;
      some[axis] = choices.pick(64);
      first[axis] = key_of(t, some) - unit * choices.pick(3);
      last[axis] = first[axis] + unit * choices.pick(9);
      std::int64_t lo = most, hi = least;
      std::array<std::int64_t, 4> i{};
      for (i[0] = first[0]; i[0] <= last[0]; i[0] += axis == 0 ? unit : 1)
        for (i[1] = first[1]; i[1] <= last[1]; i[1] += axis == 1 ? unit : 1)
          for (i[2] = first[2]; i[2] <= last[2]; i[2] += axis == 2 ? unit : 1)
            for (i[3] = first[3]; i[3] <= last[3]; i[3] += axis == 3 ? unit : 1) {
              const std::int64_t answer = mods::upper_bound(t.table, t.capture.rank, i.data());
              lo = std::min(lo, answer), hi = std::max(hi, answer);
            }
      const auto bounds = summary.upper_bound(first.data(), last.data());
      PROPERTY_HOLDS(bounds.lo == lo && bounds.hi == hi);
      ++searches, inner += lo > 0 && hi < t.table.extent[axis];
    }
  });
  EXPECT_GT(searches, 1000u);
  EXPECT_GT(inner, 300u);
}

TEST(Summary, KeysOfRealsAreInOrder) {
  const double values[] = {-infinity, -1e308, -2, -1, -5e-324, 0, 5e-324, 1, 1.5, 1e308, infinity};
  for (const double value : values) EXPECT_EQ(mods::key_real(mods::real_key(value)), value);
  for (std::size_t i = 1; i < std::size(values); ++i)
    EXPECT_LT(mods::real_key(values[i - 1]), mods::real_key(values[i])) << values[i];
  EXPECT_EQ(mods::real_key(-0.0), mods::real_key(0.0));
  EXPECT_GT(mods::real_key(nan), mods::real_key(infinity));
}

TEST(Summary, NamesAreRenumberedOnlyWhereNothingElseIsAsked) {
  // 100 documents whose names are in no order.
  std::vector<std::int64_t> ids(6400);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i / 64 * 7919 % 100);
  const Table table{ids.data(), i64, {6400}, {1}};
  const std::span tables(&table, 1);
  const auto hull = [&](const char* mask, std::int64_t first, std::int64_t last) {
    const auto summaries = mods::summarise(parse_mask(mask).graph(), tables);
    const Summary::Entry e = summaries.at(0).range(&first, &last);
    return std::pair(e.lo, e.hi);
  };
  const auto by_first_appearance = std::pair<std::int64_t, std::int64_t>(10, 19);
  EXPECT_EQ(hull("d:int[q] == d:int[k] & k <= q", 640, 1279), by_first_appearance);
  EXPECT_EQ(hull("d:int[q] != d:int[k]", 640, 1279), by_first_appearance);
  // Of two axes: each line for itself.
  const Table lines{ids.data(), i64, {2, 3200}, {3200, 1}};
  const auto hull_of_line = [&](const char* mask) {
    const std::int64_t first[] = {1, 640}, last[] = {1, 1279};
    const auto summaries = mods::summarise(parse_mask(mask).graph(), std::span(&lines, 1));
    const Summary::Entry e = summaries.at(0).range(first, last);
    return std::pair(e.lo, e.hi);
  };
  EXPECT_EQ(hull_of_line("d:int[b][q] == d:int[b][k]"), by_first_appearance);
  EXPECT_EQ(hull_of_line("d:int[q // 9][q] != d:int[q // 9][k + 1]"), by_first_appearance);
  EXPECT_NE(hull_of_line("d:int[0][q] == d:int[1][k]"), by_first_appearance);
  EXPECT_NE(hull_of_line("d:int[q][0] == d:int[k][0]"), by_first_appearance);
  for (const char* mask : {"d:int[q] == d:int[k] & d:int[k] >= 0", "d:int[q] == d:int[k] + 1", "d:int[q] == k",
                           "d:int[q] < d:int[k]", "where(k < 5, d:int[q], d:int[k]) == 3"})
    EXPECT_NE(hull(mask, 640, 1279), by_first_appearance) << mask;
}

}  // namespace
}  // namespace tessera
