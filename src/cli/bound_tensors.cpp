#include "cli/bound_tensors.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "cli/commands.hpp"
#include "cli/flag_values.hpp"
#include "cli/memory.hpp"
#include "cli/report.hpp"
#include "cli/scene.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"
#include "mods/graph.hpp"

namespace tessera::cli {
namespace {

// One --bind, while it is read.
struct Text {
  std::string_view all, name, what;
};

[[noreturn]] void refuse(const Text& text, const std::string& why) {
  throw Misuse(fmt::format("--bind '{}': {}", text.all, why));
}

// The numbers of "random:8,1024"; each at least 1.
std::vector<std::int64_t> numbers(const Text& text, std::string_view list, const char* form) {
  std::vector<std::int64_t> values;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string_view item = list.substr(at, end - at);
    const auto value = whole_number(item);
    if (!value || *value < 1) refuse(text, fmt::format("'{}' is not a number from 1; write {}", item, form));
    values.push_back(*value);
    at = end + 1;
  }
  return values;
}

BoundTensor allocated(DType dtype, const std::vector<std::int64_t>& shape, const Text& text) {
  double bytes = static_cast<double>(size_bytes(dtype));
  for (const std::int64_t extent : shape) bytes *= static_cast<double>(extent);
  if (bytes > 0.9 * available_bytes())
    refuse(text, fmt::format("it needs {}, {} are free", bytes_text(bytes), bytes_text(available_bytes())));
  BoundTensor made;
  Tensor& t = made.tensor;
  t.dtype = dtype, t.rank = static_cast<int>(shape.size());
  std::int64_t next = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    t.shape[axis] = shape[static_cast<std::size_t>(axis)], t.stride[axis] = next;
    next *= t.shape[axis];
  }
  const auto memory = std::make_shared<Block>(static_cast<std::size_t>(bytes));
  t.data = memory->data(), made.memory = memory;
  return made;
}

// Another sequence for each name, the same in every run.
std::uint64_t seed_of(std::string_view name) {
  std::uint64_t seed = 14695981039346656037u;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return seed;
}

BoundTensor random_reals(const Text& text, std::string_view list) {
  const std::vector<std::int64_t> shape = numbers(text, list, "random:8 or random:8,1024");
  if (shape.size() > std::size_t{Capture::max_rank})
    refuse(text, fmt::format("it has {} axes, at most {} can be read", shape.size(), int{Capture::max_rank}));
  BoundTensor made = allocated(DType::f32, shape, text);
  fill_random(made.tensor, seed_of(text.name));
  return made;
}

// TOKENS and COUNT of documents:TOKENS,COUNT and offsets:TOKENS,COUNT.
std::array<std::int64_t, 2> tokens_and_count(const Text& text, std::string_view list, const char* form) {
  const std::vector<std::int64_t> given = numbers(text, list, form);
  if (given.size() != 2) refuse(text, fmt::format("it has {} numbers; write {}", given.size(), form));
  if (given[1] > given[0]) refuse(text, fmt::format("{} documents do not fit into {} tokens", given[1], given[0]));
  return {given[0], given[1]};
}
// Calls begins(i) for each token but the first that a document begins with. Any choice of these count - 1 places is as
// likely as any other.
template <class Begins>
void choose_documents(std::string_view name, std::int64_t tokens, std::int64_t count, Begins begins) {
  std::mt19937_64 random(seed_of(name));
  std::int64_t left = count - 1;
  for (std::int64_t i = 1; i < tokens; ++i)
    if (random() % static_cast<std::uint64_t>(tokens - i) < static_cast<std::uint64_t>(left)) begins(i), --left;
}

BoundTensor document_ids(const Text& text, std::string_view list) {
  const auto [tokens, count] = tokens_and_count(text, list, "documents:TOKENS,COUNT");
  BoundTensor made = allocated(DType::i64, {tokens}, text);
  auto* ids = made.tensor.as<std::int64_t>();
  std::fill(ids, ids + tokens, 0);
  choose_documents(text.name, tokens, count, [&](std::int64_t i) { ids[i] = 1; });
  std::partial_sum(ids, ids + tokens, ids);
  return made;
}

// Where the documents begin, and the end of the last one.
BoundTensor document_offsets(const Text& text, std::string_view list) {
  const auto [tokens, count] = tokens_and_count(text, list, "offsets:TOKENS,COUNT");
  BoundTensor made = allocated(DType::i64, {count + 1}, text);
  auto* next = made.tensor.as<std::int64_t>();
  *next++ = 0;
  choose_documents(text.name, tokens, count, [&](std::int64_t i) { *next++ = i; });
  *next = tokens;
  return made;
}

BoundTensor random_lengths(const Text& text, std::string_view list) {
  constexpr const char* form = "lengths:B,MAX";
  const std::vector<std::int64_t> given = numbers(text, list, form);
  if (given.size() != 2) refuse(text, fmt::format("it has {} numbers; write {}", given.size(), form));
  BoundTensor made = allocated(DType::i64, {given[0]}, text);
  std::mt19937_64 random(seed_of(text.name));
  for (std::int64_t i = 0; i < given[0]; ++i)
    made.tensor.as<std::int64_t>()[i] = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(given[1])) + 1;
  return made;
}

BoundTensor from_npy(const Text& text) {
  const io::Npy file = io::Npy::read(std::string(text.what));
  return {{}, {}, file.tensor(), file.data()};
}

BoundTensor from_safetensors(const std::string& path, std::string_view tensor) {
  const auto file = std::make_shared<io::Safetensors>(io::Safetensors::read(path));
  return {{}, {}, file->tensor(tensor), file};
}

BoundTensor bound_tensor(const std::string& all) {
  const std::size_t equals = all.find('=');
  Text text{all, std::string_view(all).substr(0, std::min(equals, all.size())), {}};
  if (equals == all.npos || equals == 0) refuse(text, "write NAME=WHAT, such as slope=slope.npy or slope=random:8");
  text.what = std::string_view(all).substr(equals + 1);
  mods::make_capture(text.name, Type::real, 1);  // whether it can be a name at all

  constexpr std::string_view in_file = ".safetensors:";
  const std::size_t colon = text.what.find(in_file);
  const auto after = [&](std::string_view kind) { return text.what.substr(kind.size()); };
  BoundTensor made;
  if (text.what.ends_with(".npy")) made = from_npy(text);
  else if (text.what.ends_with(".safetensors")) made = from_safetensors(std::string(text.what), text.name);
  else if (colon != text.what.npos)
    made = from_safetensors(std::string(text.what.substr(0, colon + in_file.size() - 1)),
                            text.what.substr(colon + in_file.size()));
  else if (text.what.starts_with("random:")) made = random_reals(text, after("random:"));
  else if (text.what.starts_with("documents:")) made = document_ids(text, after("documents:"));
  else if (text.what.starts_with("offsets:")) made = document_offsets(text, after("offsets:"));
  else if (text.what.starts_with("lengths:")) made = random_lengths(text, after("lengths:"));
  else
    refuse(text, fmt::format("'{}' is neither FILE.npy, FILE.safetensors or FILE.safetensors:TENSOR nor random:8,1024, "
                             "documents:TOKENS,COUNT, offsets:TOKENS,COUNT or lengths:B,MAX",
                             text.what));
  made.name = text.name, made.what = text.what;
  return made;
}

}  // namespace

std::shared_ptr<const std::vector<BoundTensor>> bound_tensors(const std::vector<std::string>& texts) {
  auto all = std::make_shared<std::vector<BoundTensor>>();
  for (const std::string& text : texts) all->push_back(bound_tensor(text));
  return all;
}

}  // namespace tessera::cli
