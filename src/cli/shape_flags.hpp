// The flags that every command shares, defined once, and what they mean: shapes, and how to run them.
// Must not know: what a command does with them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/problem.hpp"

namespace CLI {
class App;
}

namespace tessera::cli {

struct SequenceLengths {
  std::int64_t q = 0, k = 0;
};

// One problem's shape. It is what the user typed: describe() says whether it makes sense.
struct Shape {
  std::int64_t b = 1, sq = 0, sk = 0, hq = 1, hkv = 1, d = 64, dv = 64;
  std::vector<SequenceLengths> packed;  // not empty: packed sequences; b follows from it, sq and sk are totals
  std::optional<std::int64_t> q_offset;
  DType dtype = DType::f32;
  Mask mask;
  std::string mask_text;  // as typed
};
std::string text(const Shape& shape);  // "b1 s4096 h8/2 d64 f32 causal"

// Whether a flag takes one value or a list to sweep over ("--d 64,128").
enum class Values { one, list };

struct ShapeFlags {
  std::vector<std::int64_t> b{1}, sq{2048}, sk, hq{1}, hkv, d{64}, dv;  // empty: follows from its neighbour
  std::vector<std::string> dtype{"f32"}, mask{"full"};
  std::optional<std::int64_t> q_offset;
  std::string packed;
};
void add_shape_flags(CLI::App& command, ShapeFlags& flags, Values values);
// Every combination, in the order of the flags. Throws Misuse or Error for what cannot be read.
std::vector<Shape> shapes(const ShapeFlags& flags);

struct RunFlags {
  std::vector<int> threads;  // 0: all cores
  std::vector<std::string> backend, isa;
};
void add_threads_flag(CLI::App& command, RunFlags& flags, Values values, int otherwise);
void add_backend_flags(CLI::App& command, RunFlags& flags, Values values,
                       std::string_view otherwise = "the best that can");
// The backends named by --backend and --isa, as Options::backend takes them; {""}: the best that can. "all": each that
// can run on this machine. Throws Misuse when the two contradict each other.
std::vector<std::string> backends_of(const RunFlags& flags);
std::vector<DType> dtypes_of(const std::vector<std::string>& names);
int thread_count(int threads);  // 0 becomes the number that the library takes by itself

void add_json_flag(CLI::App& command, std::string& path);

// A shape's views for describe(): addresses that are never read. Packed prefix sums are real and belong to the caller.
struct Prefix {
  std::vector<std::int64_t> q, k;
};
Prefix prefix_of(const Shape& shape);
struct Addresses {
  void *q = nullptr, *k = nullptr, *v = nullptr;
};
Inputs inputs_of(const Shape& shape, const Addresses& at, Prefix& prefix);
Addresses anywhere();
Options options_of(const Shape& shape, std::string_view backend);
// Attended pairs over all heads: exact where the mask's bands decide, else every pair.
double attended_pairs(const Shape& shape);

}  // namespace tessera::cli
