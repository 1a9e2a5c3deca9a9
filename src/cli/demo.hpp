// What `tessera demo` shows, as values: each part is computed here and told in demo_page.cpp, to people or as JSON.
// Must not know: how anything is printed.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/attention.hpp"

namespace tessera::cli::demo {

struct Settings {
  std::filesystem::path data;
  std::string backend;  // empty: the best that can
  int threads = 1;
  int layer = -1, head = -1;     // of the picture; -1: the head with the clearest pattern
  std::int64_t first_token = 0;  // of the picture's window
  std::int64_t long_tokens = 32768;
};

// ---------------------------------------------------------------------------------------------------- real input
struct Layer {
  int index = 0;
  std::vector<float> q, k, v;  // [tokens, heads, dim]
};
struct Data {
  std::vector<std::string> tokens;
  std::int64_t heads = 0, dim = 0;
  std::vector<Layer> layers;  // by index
  std::int64_t count() const { return static_cast<std::int64_t>(tokens.size()); }
};
// minilm.safetensors and minilm.tokens.txt of a folder. Throws Error(io) naming the file and what is wrong with it.
Data load(const std::filesystem::path& folder);

// ---------------------------------------------------------------------------------------- every layer, every type
struct LayerResult {
  int layer = 0;
  DType dtype = DType::none;
  double error = 0, standard_error = 0;  // largest |o - fp64| over all heads, rows and dims
  double allowance_used = 0;             // largest |error| / allowed by the accuracy rule, o and lse; over 1: failed
  bool passed = false;
  std::string failure;
  double ms = 0, standard_ms = 0;  // the best of interleaved repetitions
  std::string standard_missing;    // why standard attention was not timed
};
LayerResult compare(const Data& data, const Layer& layer, DType dtype, const Settings& settings);

// ---------------------------------------------------------------------------------------- one head's attention
// The weights themselves are the output when V is the unit matrix.
struct Picture {
  int layer = 0, head = 0;
  std::int64_t distance = 0;          // k - q of the strongest diagonal
  double share = 0;                   // of the weight that lies on it, over the whole text
  std::int64_t first = 0, count = 0;  // the window of tokens shown, as queries and as keys
  std::vector<float> weights;         // [count, tokens]
  std::int64_t tokens = 0;
  double allowance_used = 0;  // of every weight of the head
  bool passed = false;
  std::string failure;
  float weight(std::int64_t row, std::int64_t key) const {
    return weights[static_cast<std::size_t>(row * tokens + key)];
  }
};
Picture look(const Data& data, const Settings& settings);

// ---------------------------------------------------------------------------------------- a long head
struct LongHead {
  std::int64_t tokens = 0, dim = 0;
  std::string backend;
  double seconds = 0, gflops = 0;
  double scores_bytes = 0;  // what the matrix of scores alone would take
  double tensor_bytes = 0, workspace_bytes = 0;
  double peak_bytes = 0;  // resident memory of the whole process; 0: this system does not tell
  std::int64_t rows_checked = 0;
  double error = 0, standard_error = 0, allowance_used = 0;
  bool passed = false;
  std::string failure;
};
LongHead stream(const Settings& settings);

// ---------------------------------------------------------------------------------------- four numbers
// A partial result: m the largest score, l the sum of exp(score - m), o the sum of exp(score - m) * value.
struct Partial {
  double m = 0, l = 0, o = 0;
};
struct FourNumbers {
  static constexpr std::array<float, 4> scores{2, 1, 3, 0}, values{1, 2, 3, 4};
  std::array<Partial, 2> tile;  // of two keys each, by attention()
  Partial merged;               // by merge()
  double answer = 0;            // merged o / l, which is what merge() returned
  double at_once = 0;           // attention() over the four keys
  double exact = 0;             // fp64
  bool passed = false;
};
FourNumbers four_numbers(const Settings& settings);

}  // namespace tessera::cli::demo
