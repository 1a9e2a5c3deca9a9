// The demonstration's input: queries, keys and values of a model, and the tokens that they belong to.
#include <algorithm>
#include <fstream>

#include "cli/demo.hpp"
#include "io/safetensors.hpp"

namespace tessera::cli::demo {
namespace {

// A tensor of the file as [tokens, heads, dim]; `data` says what is expected of it.
std::vector<float> read(const io::Safetensors& file, const std::string& path, const std::string& name,
                        const Data& data) {
  const Tensor x = file.tensor(name);
  const std::array<std::int64_t, 4> wanted{1, data.count(), data.heads, data.dim};
  if (x.dtype != f32 || x.rank != 4 || !std::equal(wanted.begin(), wanted.end(), x.shape.begin()))
    throw Error(Code::io, path + ": " + name + " has " + std::to_string(x.elements()) + " elements of " +
                              std::string(tessera::name(x.dtype)) + " in rank " + std::to_string(x.rank) +
                              ": it must be f32 [1, " + std::to_string(wanted[1]) + ", " + std::to_string(wanted[2]) +
                              ", " + std::to_string(wanted[3]) + "], with the tokens of minilm.tokens.txt and the " +
                              "heads and dims of the first layer");
  const auto* values = x.as<const float>();
  return {values, values + x.elements()};
}

}  // namespace

Data load(const std::filesystem::path& folder) {
  const std::string tokens_path = (folder / "minilm.tokens.txt").string();
  const std::string path = (folder / "minilm.safetensors").string();
  Data data;
  std::ifstream tokens(tokens_path);
  for (std::string token; std::getline(tokens, token);) data.tokens.push_back(token);
  if (data.tokens.empty())
    throw Error(Code::io, tokens_path + " cannot be read or is empty: --data takes the folder examples/data of the " +
                              "source tree");

  const io::Safetensors file = io::Safetensors::read(path);
  constexpr int most_layers = 1000;
  for (int index = 0; index < most_layers; ++index) {
    const std::string prefix = "layer." + std::to_string(index) + ".";
    if (!file.contains(prefix + "q")) continue;
    if (data.layers.empty()) {
      const Tensor q = file.tensor(prefix + "q");
      if (q.rank == 4) data.heads = q.shape[2], data.dim = q.shape[3];
    }
    data.layers.push_back({index, read(file, path, prefix + "q", data), read(file, path, prefix + "k", data),
                           read(file, path, prefix + "v", data)});
  }
  if (data.layers.empty()) throw Error(Code::io, path + " has no tensor named layer.N.q");
  return data;
}

}  // namespace tessera::cli::demo
