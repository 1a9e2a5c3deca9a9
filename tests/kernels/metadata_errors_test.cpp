// Numbers on the device that are out of range: nothing is read or written beside a tensor, the error word says what was
// wrong, and the result is that of the numbers as they were clamped. On the emulated GPU with every access checked.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "conformance/oracle.hpp"
#include "gpu/gpu_backend.hpp"
#include "problem/validate.hpp"
#include "sim/engine.hpp"

namespace tessera::tests {
namespace {

using sim::Content;
using sim::Memory;

constexpr std::int32_t prefix_sums = 1, lengths_bit = 2, table_bit = 4;
constexpr Device device{DeviceType::cuda, 0};

class MetadataErrors : public testing::Test {
 protected:
  sim::Engine engine{{.checked = true, .folder = TESSERA_SIM_CACHE}};
  const gpu::GpuBackend backend{"sim", engine, 80};
  std::vector<std::unique_ptr<Memory>> memory;

  Tensor made(DType dtype, std::initializer_list<std::int64_t> shape, Content content) {
    Tensor t = tensor(static_cast<void*>(nullptr), dtype, shape, {}, device);
    memory.push_back(
        std::make_unique<Memory>("a tensor", static_cast<std::size_t>(t.elements() * size_bytes(dtype)), content));
    t.data = memory.back()->as<void>();
    return t;
  }
  Tensor values(std::initializer_list<std::int64_t> shape) {
    const Tensor t = made(bf16, shape, Content::constant);
    std::mt19937 random(static_cast<unsigned>(memory.size()));
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < t.elements(); ++i) conformance::set_element(t, i, normal(random));
    return t;
  }
  Tensor integers(const std::vector<std::int32_t>& list, std::initializer_list<std::int64_t> shape) {
    const Tensor t = made(i32, shape, Content::constant);
    std::memcpy(t.data, list.data(), list.size() * sizeof(std::int32_t));
    return t;
  }

  // O, with the bits in `word` and those of the call; or without a word at all.
  std::vector<std::uint16_t> run(const Inputs& in, const Options& options, std::int32_t* word) {
    const Tensor& q = in.q;
    const bool packed = q.rank == 3;
    Outputs out;
    out.o = packed ? made(bf16, {q.shape[0], q.shape[1], q.shape[2]}, Content::nothing)
                   : made(bf16, {q.shape[0], q.shape[1], q.shape[2], q.shape[3]}, Content::nothing);
    std::memset(out.o.data, 0, static_cast<std::size_t>(2 * out.o.elements()));  // rows of no sequence stay
    if (word) {
      out.errors = made(i32, {}, Content::given);
      *out.errors.as<std::int32_t>() = *word;
    }
    PlanData plan;
    plan.problem = describe(in, out, options), plan.tiles = TileMap(options.mask), plan.runner = &backend;
    backend.decide(plan);
    problem::check_values(plan.problem, in);
    backend.run(plan, in, out, {});
    if (word) *word = *out.errors.as<std::int32_t>();
    const auto* o = out.o.as<std::uint16_t>();
    return {o, o + out.o.elements()};
  }
  // The bits that `wrong` sets; its result is that of `clamped`, which sets none, and the same without a word.
  std::int32_t bits_of(const Inputs& wrong, const Inputs& clamped, const Options& options = {}) {
    constexpr std::int32_t before = 64;  // of another call: stays
    std::int32_t good = before, word = before;
    const auto want = run(clamped, options, &good), got = run(wrong, options, &word);
    EXPECT_EQ(good, before);
    EXPECT_EQ(got, want);
    EXPECT_EQ(run(wrong, options, nullptr), want);
    EXPECT_EQ(word & before, before);
    return word & ~before;
  }
};

TEST_F(MetadataErrors, Lengths) {
  Inputs in{values({3, 5, 2, 16}), values({3, 40, 1, 16}), values({3, 40, 1, 16})};
  Inputs clamped = in;
  in.pages.lengths = integers({40, 41, -5}, {3}), clamped.pages.lengths = integers({40, 40, 0}, {3});
  EXPECT_EQ(bits_of(in, clamped), lengths_bit);
  in.pages.lengths = integers({2147483647, -2147483647, 7}, {3}), clamped.pages.lengths = integers({40, 0, 7}, {3});
  EXPECT_EQ(bits_of(in, clamped), lengths_bit);
  // Few queries of many keys, which are split.
  Inputs decode{values({2, 1, 2, 16}), values({2, 900, 1, 16}), values({2, 900, 1, 16})};
  Inputs decode_clamped = decode;
  decode.pages.lengths = integers({901, 500}, {2}), decode_clamped.pages.lengths = integers({900, 500}, {2});
  EXPECT_EQ(bits_of(decode, decode_clamped), lengths_bit);
}

TEST_F(MetadataErrors, BlockTable) {
  Inputs in{values({2, 3, 2, 16}), values({6, 8, 1, 16}), values({6, 8, 1, 16})};
  in.pages.lengths = integers({20, 9}, {2});
  Inputs clamped = in;
  // What is no page is page 0; what is never looked at may be anything.
  for (const std::int32_t page : {6, -1, 2147483647}) {
    in.pages.block_table = integers({1, page, 3, 99, 5, 2, -7, 99}, {2, 4});
    clamped.pages.block_table = integers({1, 0, 3, -99, 5, 2, 2147480000, 6}, {2, 4});
    EXPECT_EQ(bits_of(in, clamped), table_bit) << page;
  }
  // Too long for the table as well: the page behind it is one of the next sequence's, and is not looked at.
  in.pages.lengths = integers({20, 33}, {2}), clamped.pages.lengths = integers({20, 32}, {2});
  in.pages.block_table = integers({1, 2, 3, 99, 5, 2, 1, 77}, {2, 4});
  clamped.pages.block_table = integers({1, 2, 3, 99, 5, 2, 1, 0}, {2, 4});
  EXPECT_EQ(bits_of(in, clamped), lengths_bit | table_bit);
}

TEST_F(MetadataErrors, PrefixSums) {
  Inputs in{values({30, 2, 16}), values({50, 2, 16}), values({50, 2, 16})};
  struct Row {
    std::vector<std::int32_t> cu_q, cu_k, clamped_q, clamped_k;
  };
  // Sequences that overlap or lie beyond the end are cut so that each begins within and ends not before it begins.
  const Row rows[] = {{{0, 10, 20, 31}, {0, 20, 30, 50}, {0, 10, 20, 30}, {0, 20, 30, 50}},
                      {{0, 10, 20, 30}, {0, 20, 70, 80}, {0, 10, 20, 30}, {0, 20, 50, 50}},
                      {{0, 10, 10, 30}, {0, 20, 2147483647, 50}, {0, 10, 10, 30}, {0, 20, 50, 50}}};
  for (const Row& row : rows) {
    Inputs clamped = in;
    in.packed = {integers(row.cu_q, {4}), integers(row.cu_k, {4})};
    clamped.packed = {integers(row.clamped_q, {4}), integers(row.clamped_k, {4})};
    EXPECT_EQ(bits_of(in, clamped), prefix_sums);
  }
  // Whatever they hold, nothing beside a tensor is touched; a list that starts off 0 is an error of its own.
  for (const auto& cu_q : {std::vector<std::int32_t>{-3, 9, 12, 30}, {5, 10, 20, 30}, {30, 0, 30, 0}}) {
    std::int32_t word = 0;
    in.packed = {integers(cu_q, {4}), integers({0, 20, 30, 50}, {4})};
    run(in, {}, &word);
    EXPECT_EQ(word, prefix_sums);
  }
}

// With a mask whose tiles are found on the device.
TEST_F(MetadataErrors, OfSequencesThatArePreparedThere) {
  Inputs in{values({2, 70, 2, 16}), values({2, 300, 2, 16}), values({2, 300, 2, 16})};
  std::vector<std::int32_t> ids(300);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i / 90);
  const Tensor documents_there = integers(ids, {300});
  in.bind = {{"ids", documents_there}};
  Inputs clamped = in;
  in.pages.lengths = integers({301, 120}, {2}), clamped.pages.lengths = integers({300, 120}, {2});
  EXPECT_EQ(bits_of(in, clamped, {.mask = parse_mask("documents(ids) & causal")}), lengths_bit);
}

TEST_F(MetadataErrors, InWords) {
  EXPECT_EQ(metadata_error_text(0), "");
  EXPECT_EQ(metadata_error_text(static_cast<std::int32_t>(MetadataError::lengths)),
            "lengths below 0, or of more keys than there is room for");
  const std::string text = metadata_error_text(5 | 1 << 20);
  EXPECT_EQ(text,
            "prefix sums that decrease, start off 0 or pass the total; block-table entries that are no page; unknown "
            "bits 1048576");
}

}  // namespace
}  // namespace tessera::tests
