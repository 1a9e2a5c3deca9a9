// The example of docs/adding-a-kernel.md, tested as the page says.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "sim/engine.hpp"
#include "sim/folder.hpp"
#include "sim/row_dots.hpp"

namespace tessera::sim {
namespace {

struct Params {  // of row_dots.cuh
  const std::uint16_t *a, *b;
  float* dots;
  std::int64_t rows, stride;
  int dim;
};

TEST(RowDots, AreThoseOfDoublePrecisionInEverySchedule) {
  for (const bool checked : {false, true}) {
    Engine engine({.checked = checked, .folder = cache_folder()});
    const gpu::Kernel& kernel = engine.kernel(0, row_dots_text());
    for (const auto& [rows, dim] : {std::pair{1, 8}, {5, 64}, {9, 256}, {6, 264}, {3, 1000}})
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        const std::int64_t stride = dim + 8;
        const std::size_t bytes = std::size_t((rows - 1) * stride + dim) * 2;
        const Memory a("a", bytes, Content::constant), b("b", bytes, Content::constant);
        const Memory dots("dots", std::size_t(rows) * 4, Content::nothing);
        std::mt19937 random(static_cast<unsigned>(seed));
        std::normal_distribution<float> normal;
        for (const Memory* x : {&a, &b})
          for (int r = 0; r < rows; ++r)  // what lies between the rows stays NaN
            for (int c = 0; c < dim; ++c)
              x->as<std::uint16_t>()[r * stride + c] =
                  std::uint16_t(std::bit_cast<std::uint32_t>(normal(random)) >> 16);
        engine.schedule = {.seed = seed, .timing = seed % 2 ? Timing::random : Timing::late, .resident = 2};
        const Params params{a.as<std::uint16_t>(), b.as<std::uint16_t>(), dots.as<float>(), rows, stride, dim};
        engine.launch(0, {}, kernel, (rows + 3) / 4, &params, sizeof params);
        for (int r = 0; r < rows; ++r) {
          double want = 0, size = 0;
          for (int c = 0; c < dim; ++c) {
            const auto value = [&](const Memory& x) {
              return double(std::bit_cast<float>(std::uint32_t{x.as<std::uint16_t>()[r * stride + c]} << 16));
            };
            want += value(a) * value(b);
            size += std::fabs(value(a) * value(b));
          }
          EXPECT_NEAR(double(dots.as<float>()[r]), want, size * 0x1p-20) << rows << " " << dim << " " << r;
        }
      }
  }
}

}  // namespace
}  // namespace tessera::sim
