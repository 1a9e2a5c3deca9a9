#include "sim/calibration.hpp"

#include <bit>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>

#include "sim/sources.hpp"

namespace tessera::sim {
namespace {

constexpr int threads = 128;
using u32 = std::uint32_t;

float as_float(u32 x) { return std::bit_cast<float>(x); }
u32 as_bits(float x) { return std::bit_cast<u32>(x); }
float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

// An approximation: the truth, and how far from it the result may be.
struct Approximation {
  std::function<double(float)> truth;
  std::function<double(float, double)> allowed;  // (argument, truth)
};
double relative(double exponent, double truth) { return std::exp2(exponent) * std::fabs(truth) + 0x1p-126; }

const std::map<std::string, Approximation>& approximations() {
  static const std::map<std::string, Approximation> all = {
      {"exp2",
       {[](float x) { return std::exp2(double(flushed(x))); }, [](float, double y) { return relative(-22, y); }}},
      {"log2",
       {[](float x) { return std::log2(double(flushed(x))); },
        [](float x, double y) { return x > 0.5f && x < 2.0f ? 0x1p-22 : relative(-22, y); }}},
      {"rcp ", {[](float x) { return 1 / double(flushed(x)); }, [](float, double y) { return relative(-23, y); }}},
      {"rsqr",
       {[](float x) { return 1 / std::sqrt(double(flushed(x))); }, [](float, double y) { return relative(-22.9, y); }}},
      {"tana", {[](float x) { return std::tanh(double(x)); }, [](float, double y) { return relative(-10.98, y); }}},
      {"tanh", {[](float x) { return std::tanh(double(x)); }, [](float, double) { return 0x1p-21; }}},
  };
  return all;
}

// Sums of 64 products of up to 64 each, in an order and with roundings of the hardware's own.
constexpr double sum_allowed = 0x1p-10;

bool same(u32 a, u32 b) { return a == b || (std::isnan(as_float(a)) && std::isnan(as_float(b))); }

}  // namespace

const std::vector<Group>& calibration_groups() {
  static const std::vector<Group> all = {{"max ", 8},  {"min ", 8},  {"fma ", 8},    {"mul ", 8},  {"add ", 8},
                                         {"bf16", 16}, {"f16 ", 16}, {"wide", 1024}, {"exp2", 16}, {"log2", 16},
                                         {"rcp ", 16}, {"rsqr", 16}, {"tana", 16},   {"tanh", 16}, {"load", 18},
                                         {"stor", 20}, {"atom", 7},  {"copy", 137},  {"shfl", 75}, {"vote", 11},
                                         {"ldm ", 14}, {"mma ", 32}, {"mmas", 24},   {"bar ", 4},  {"end ", 0}};
  return all;
}

std::uint32_t Calibration::at(const std::string& group, int i, int t) const {
  std::size_t word = 0;
  for (const Group& g : *groups) {
    if (g.name == group) {
      u32 mark = 0;
      for (unsigned k = 0; k < 4; ++k) mark |= u32(static_cast<unsigned char>(group[k])) << 8 * k;
      if (words.at(word * threads + std::size_t(t)) != mark)
        throw std::runtime_error("the words of '" + group + "' do not begin where the table says");
      return words.at((word + 1 + std::size_t(i)) * threads + std::size_t(t));
    }
    word += 1 + std::size_t(g.words);
  }
  throw std::runtime_error("no group '" + group + "'");
}

gpu::KernelText calibration_text() {
  gpu::KernelText text;
  text.name = "calibrate";
  text.spec = "calibration of instructions";
  text.source = inlined(
      "#include \"kernels/calibrate.cuh\"\n"
      "extern \"C\" __global__ void __launch_bounds__(128)\n"
      "calibrate(const __grid_constant__ tessera_kernels::CalibrateParams p) {\n"
      "  tessera_kernels::calibrate(p);\n}\n");
  text.threads = threads;
  text.smem_bytes = 128 * 64 + 4 * 512;
  return text;
}

const std::vector<std::uint32_t>& calibration_floats() {
  static const std::vector<u32> all = [] {
    std::vector<u32> x;
    // Special ones, in every column once: zeros, denormals, the borders of the halves' ranges, ties, infinities, NaN.
    const u32 special[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x80800000,
                           0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
                           0xffc12345, 0x7f800001, 0x477fefff, 0x477ff000, 0x477fe000, 0x33000000, 0x33000001,
                           0x38800000, 0x387fc000, 0x387fe000, 0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001,
                           0x7f7f7fff, 0x7f7f8000, 0x3f801000, 0x3f803000};
    for (int row = 0; row < 2; ++row)
      for (int t = 0; t < threads; ++t) x.push_back(special[(t * (row ? 5 : 1) + row * 7) % 32]);
    // Grids for the approximations: exponents from end to end, arguments of exp2 in softmax, near 1, near 0, and any.
    std::mt19937 random(1);
    const auto between = [&](float a, float b) { return std::uniform_real_distribution<float>(a, b)(random); };
    for (int row = 2; row < 16; ++row)
      for (int t = 0; t < threads; ++t) {
        if (row < 4) x.push_back(as_bits(std::ldexp(between(1, 2), t * 2 - 128 + row - 2)));
        else if (row < 7) x.push_back(as_bits(between(-140, 130)));
        else if (row < 9) x.push_back(as_bits(between(-2, 0)));
        else if (row < 11) x.push_back(as_bits(1 + between(-0x1p-8f, 0x1p-8f)));
        else if (row < 13) x.push_back(as_bits(between(-4, 4)));
        else if (row < 14) x.push_back(as_bits(float(t - 64)));
        else x.push_back(u32(random()));
      }
    return x;
  }();
  return all;
}

Calibration calibrate(const gpu::Engine& engine, int device) {
  struct {
    void* out;
    const void *numbers, *floats;
    void* cells;
  } params{};
  std::size_t words = 0;
  for (const Group& g : calibration_groups()) words += 1 + std::size_t(g.words);
  std::vector<u32> numbers(16 * threads), zeros(8 * threads);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = u32(i);
  Calibration result{&calibration_groups()};
  result.words.resize(words * threads);
  const auto out = engine.allocate(device, result.words.size() * 4);
  const auto from_host = [&](const std::vector<u32>& x) { return engine.constant(device, x.data(), x.size() * 4); };
  const auto in = from_host(numbers), floats = from_host(calibration_floats()), cells = from_host(zeros);
  params = {out.get(), in.get(), floats.get(), cells.get()};
  engine.launch(device, {}, engine.kernel(device, calibration_text()), 1, &params, sizeof params);
  engine.download(device, {}, result.words.data(), out.get(), result.words.size() * 4);
  return result;
}

std::vector<Comparison> compare(const Calibration& got, const Calibration& wanted) {
  std::vector<Comparison> all;
  for (const Group& g : *wanted.groups) {
    Comparison c{g.name, g.words * threads, 0, 0, ""};
    const auto approximation = approximations().find(g.name);
    for (int i = 0; i < g.words; ++i)
      for (int t = 0; t < threads; ++t) {
        const u32 a = got.at(g.name, i, t), b = wanted.at(g.name, i, t);
        bool differs = !same(a, b);
        char what[160];
        std::snprintf(what, sizeof what, "word %d of thread %d: %08x, wanted %08x", i, t, a, b);
        if (g.name == "wsum") {
          const double error = std::fabs(double(as_float(a)) - double(as_float(b))) / sum_allowed;
          c.worst = std::max(c.worst, error);
          differs = !(error <= 1);
        } else if (approximation != approximations().end()) {
          const float x = as_float(calibration_floats()[std::size_t(i) * threads + std::size_t(t)]);
          const double truth = approximation->second.truth(x);
          if (std::isfinite(float(truth)) && std::isfinite(as_float(a))) {
            const double error = std::fabs(double(as_float(a)) - truth) / approximation->second.allowed(x, truth);
            c.worst = std::max(c.worst, error);
            differs = error > 1;
            std::snprintf(what, sizeof what, "of %.9g: %.9g, the truth is %.12g", double(x), double(as_float(a)),
                          truth);
          } else {
            differs = !same(a, as_bits(float(truth)));
          }
        }
        if (differs && c.different++ == 0) c.first = what;
      }
    if (g.words == 0) {  // the last one: all of its marks are there
      for (int t = 0; t < threads; ++t) got.at(g.name, -1, t);
      continue;
    }
    all.push_back(c);
  }
  return all;
}

}  // namespace tessera::sim
