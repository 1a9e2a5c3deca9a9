// The flags of a shape, shared by every command that has them, and what they mean: the problem that is asked.
// Must not know: what a command does with them.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bound_tensors.hpp"
#include "cli/run_flags.hpp"
#include "tessera/problem.hpp"

namespace tessera::cli {

struct SequenceLengths {
  std::int64_t q = 0, k = 0;
};

// One problem's shape. It is what the user typed: describe() says whether it makes sense.
struct Shape {
  std::int64_t b = 1, sq = 0, sk = 0, hq = 1, hkv = 1, d = 64, dv = 64;
  std::vector<SequenceLengths> packed;  // not empty: packed sequences; b follows from it, sq and sk are totals
  std::int64_t page_size = 0;           // not 0: keys and values lie in pages of so many tokens
  std::optional<std::int64_t> q_offset;
  DType dtype = DType::f32;
  Mask mask;
  ScoreMod score;
  std::string mask_text = "full", score_text = "s";       // as typed
  std::shared_ptr<const std::vector<BoundTensor>> bound;  // what the names in mask and score stand for; may be null
  std::shared_ptr<const std::vector<BoundTensor>> sinks;  // the one; may be null
};
std::string text(const Shape& shape);  // "b1 s4096 h8/2 d64 f32 causal"

struct ShapeFlags {
  std::vector<std::int64_t> b{1}, sq{2048}, sk, hq{1}, hkv, d{64}, dv;  // empty: follows from its neighbour
  std::vector<std::string> dtype{"f32"}, mask{"full"}, score{"s"}, bind;
  std::string sinks;
  std::optional<std::int64_t> q_offset;
  std::int64_t page_size = 0;
  std::string packed;
};
void add_shape_flags(CLI::App& command, ShapeFlags& flags, Values values);
// Every combination, in the order of the flags. Throws Misuse or Error for what cannot be read.
std::vector<Shape> shapes(const ShapeFlags& flags);

// A shape's views for describe(): addresses that are never read. Packed prefix sums, and the pages of every sequence,
// are real and belong to the caller.
struct Prefix {
  std::vector<std::int64_t> q, k;
  std::vector<std::int32_t> table;  // [b, width]: all pages, scattered
  std::vector<std::int64_t> lengths;
};
Prefix prefix_of(const Shape& shape);
struct Addresses {
  void *q = nullptr, *k = nullptr, *v = nullptr;
};
Inputs inputs_of(const Shape& shape, const Addresses& at, Prefix& prefix);
Addresses anywhere();
// Says that the tensors are on a device; with `numbers` also what tells of the sequences, and what mask and score read.
void set_device(Inputs& inputs, const Device& device, bool numbers);
Options options_of(const Shape& shape, std::string_view backend);
Bindings bindings_of(const Shape& shape);  // names that live as long as the shape or a copy of it

}  // namespace tessera::cli
