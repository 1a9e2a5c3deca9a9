// For tests only. Graphs emitted, compiled together for the host, and called with packed arguments.
#pragma once
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emit/mod_text.hpp"
#include "emit/testing/compiled_text.hpp"
#include "mods/arithmetic.hpp"
#include "tessera/mods.hpp"

namespace tessera::tests {

using mods::Point;
using mods::Table;

// A graph beside the type of its result, which a graph without nodes does not tell.
struct Mod {
  Graph graph;
  Type type{};
};

inline Mod mod_of(const Mask& mask) { return {mask.graph(), Type::boolean}; }
inline Mod mod_of(const ScoreMod& score) { return {score.graph(), Type::real}; }
inline Mod mod_of(mods::Builder& builder, std::uint16_t root) { return {builder.finish(root), builder.type(root)}; }

inline std::vector<DType> dtypes(std::span<const Table> tables) {
  std::vector<DType> all;
  for (const Table& table : tables) all.push_back(table.dtype);
  return all;
}

// What the mods of a device call, for a host without an emulated GPU and for NVRTC without the kernels' own.
inline constexpr std::string_view host_ptx = R"(#ifndef __CUDACC__
extern "C" float fmaf(float, float, float) noexcept;
#endif
namespace ptx {
struct f16 { unsigned short bits; };
static __device__ float exp2(float x) { return exp2f(x); }
static __device__ float log2(float x) { return (float)(::log((double)x) * 1.4426950408889634); }
static __device__ float rcp(float x) { return 1.0f / x; }
static __device__ float fma(float a, float b, float c) { return fmaf(a, b, c); }
static __device__ float rsqrt(float x) { return 1.0f / sqrtf(x); }
static __device__ float min(float a, float b) { return a < b || b != b ? a : b; }
static __device__ float max(float a, float b) { return a > b || b != b ? a : b; }
static __device__ float to_float(f16 x) { return mod_math::from_f16(x.bits); }
}
)";

// One text of all these functions, each beside a kernel that calls it: mod_0 and run_0, ...
inline std::string text_of(std::span<const Mod> all, std::span<const std::vector<DType>> types,
                           const emit::ModOptions& options = {}) {
  std::string text(emit::mod_prelude());
  if (options.functions == emit::Functions::device) text.append(host_ptx).append(emit::mod_device_prelude());
  const std::string position(emit::position_type(options.narrow));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string name = "mod_" + std::to_string(i);
    text += emit::mod_function(name, all[i].graph, all[i].type, types[i], options);
    text += "extern \"C\" __global__ void run_" + std::to_string(i) +
            "(void* out, float s, long long b, long long h, long long q, long long k, const " + name +
            "_arguments* args) {\n  const auto value = " + name + "(s, (" + position + ")b, (" + position + ")h, (" +
            position + ")q, (" + position + ")k, *args);\n  *(decltype(" + name +
            "(s, 0, 0, 0, 0, *args))*)out = value;\n}\n";
  }
  return text;
}
using Run = void(void*, float, std::int64_t, std::int64_t, std::int64_t, std::int64_t, const std::uint64_t*);

// Graphs compiled together, callable by their place.
class Compiled {
 public:
  explicit Compiled(std::vector<Mod> all, std::vector<std::vector<DType>> types, const emit::ModOptions& options = {})
      : all_(std::move(all)), options_(options), library_(text_of(all_, types, options)) {
    for (std::size_t i = 0; i < all_.size(); ++i) run_.push_back(library_.find<Run>("run_" + std::to_string(i)));
  }
  mods::Value operator()(std::size_t i, const Graph& graph, const Point& at, std::span<const Table> tables) const {
    std::vector<std::uint64_t> words(emit::argument_words(graph));
    emit::pack_arguments(graph, tables, words.data(), options_);
    std::int64_t out = 0;
    run_[i](&out, static_cast<float>(at.s), at.b, at.h, at.q, at.k, words.data());
    if (all_[i].type == Type::real) return {0, std::bit_cast<float>(static_cast<std::uint32_t>(out))};
    return {out, 0};
  }

 private:
  std::vector<Mod> all_;
  emit::ModOptions options_;
  HostText library_;
  std::vector<Run*> run_;
};

}  // namespace tessera::tests
