#include "sim/behaviours_sm90.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "emit/wgmma_text.hpp"
#include "sim/compile.hpp"
#include "sim/folder.hpp"
#include "sim/region.hpp"
#include "sim/sources.hpp"
#include "sim/tensor_map.hpp"

namespace tessera::sim {
namespace {

struct Params {  // of behaviours_sm90.cuh
  EncodedMap cube, plain, narrow, thin, result;
  std::uint32_t which;
  std::uint32_t* out;
  const std::uint32_t* in;
  std::uint16_t* sheet;
};
constexpr std::size_t words = 4096, shared_bytes = 34816;

EncodedMap cube_map(const void* data, std::uint32_t columns, std::uint32_t rows, std::uint32_t planes,
                    gpu::TensorSwizzle swizzle) {
  gpu::TensorMapSpec s;
  s.data = data, s.type = DType::f16, s.rank = 3, s.swizzle = swizzle;
  s.dims[0] = 72, s.dims[1] = 100, s.dims[2] = 2;
  s.strides[1] = 160, s.strides[2] = 16000;
  s.box[0] = columns, s.box[1] = rows, s.box[2] = planes;
  return encoded(s);
}

EncodedMap sheet_map(const void* data) {
  gpu::TensorMapSpec s;
  s.data = data, s.type = DType::f16, s.rank = 2, s.swizzle = gpu::TensorSwizzle::b128;
  s.dims[0] = 72, s.dims[1] = 48, s.strides[1] = 144, s.box[0] = 64, s.box[1] = 32;
  return encoded(s);
}

const CaseText& text() {
  static const CaseText made = case_text(
      "tests/sim/behaviours_sm90.cuh",
      [] {
        std::vector<emit::WgmmaForm> forms;
        for (const bool registers : {false, true})
          for (const bool mn : {false, true}) forms.push_back({DType::bf16, 64, registers, false, mn});
        return emit::wgmma_text(forms);
      }(),
      384, ", warp = t / 32", ", warp");
  return made;
}

}  // namespace

std::uint16_t cube_at(int z, int row, int column) {
  const bool inside = z >= 0 && z < 2 && row >= 0 && row < 100 && column >= 0 && column < 72;
  return inside ? std::uint16_t((z * 100 + row) * 72 + column + 1) : std::uint16_t{0};
}

Behaviour90 behave90(const std::string& name, const Setting90& setting) {
  const CaseText& all = text();
  const auto found = std::find(all.names.begin(), all.names.end(), name);
  if (found == all.names.end()) throw std::runtime_error("behaviours_sm90.cuh has no " + name);
  const LoadedCode& code = compiled({"g++", cache_folder(), setting.checked}, "behaviours", all.text);
  const Memory out("out", words * 4), in("in", 4096, Content::constant),
      cube("cube", 2 * 16000, Content::constant, 128), sheet("sheet", 48 * 144);
  std::iota(in.as<std::uint32_t>(), in.as<std::uint32_t>() + 1024, 0u);
  for (int z = 0; z < 2; ++z)
    for (int row = 0; row < 100; ++row)
      for (int column = 0; column < 80; ++column)
        cube.as<std::uint16_t>()[(z * 100 + row) * 80 + column] =
            column < 72 ? cube_at(z, row, column) : std::uint16_t{0xdead};
  const Params params{cube_map(cube.as<>(), 64, 24, 2, gpu::TensorSwizzle::b128),
                      cube_map(cube.as<>(), 24, 8, 1, gpu::TensorSwizzle::none),
                      cube_map(cube.as<>(), 32, 16, 1, gpu::TensorSwizzle::b64),
                      cube_map(cube.as<>(), 16, 16, 1, gpu::TensorSwizzle::b32),
                      sheet_map(sheet.as<>()),
                      std::uint32_t(found - all.names.begin()),
                      out.as<std::uint32_t>(),
                      in.as<std::uint32_t>(),
                      sheet.as<std::uint16_t>()};
  Behaviour90 b;
  b.result = launch(code, 1, setting.threads, shared_bytes, &params, setting.schedule);
  b.out.assign(out.as<std::uint32_t>(), out.as<std::uint32_t>() + words);
  b.sheet.assign(sheet.as<std::uint16_t>(), sheet.as<std::uint16_t>() + 48 * 72);
  return b;
}

}  // namespace tessera::sim
