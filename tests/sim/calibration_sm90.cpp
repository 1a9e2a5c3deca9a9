#include <array>
#include <cstring>

#include "emit/wgmma_text.hpp"
#include "sim/calibration.hpp"
#include "sim/sources.hpp"

namespace tessera::sim {
namespace {

constexpr int threads = 128;
using u32 = std::uint32_t;

struct alignas(64) Params {  // of calibrate_sm90.cuh
  std::array<char, gpu::tensor_map_bytes> cube, plain, narrow, thin, tile, four, line, sheet, pages;
  void* out;
  const void* numbers;
  void* cells;
};

struct Box {
  std::vector<std::uint64_t> dims, strides;  // strides of the second dimension and later
  std::vector<u32> box;
  gpu::TensorSwizzle swizzle;
};
void encode(const gpu::Engine& engine, const void* data, const Box& b, std::array<char, gpu::tensor_map_bytes>& map) {
  gpu::TensorMapSpec s;
  s.data = data, s.type = DType::f16, s.rank = int(b.dims.size()), s.swizzle = b.swizzle;
  for (std::size_t i = 0; i < b.dims.size(); ++i) {
    s.dims[i] = b.dims[i], s.box[i] = b.box[i];
    if (i > 0) s.strides[i] = b.strides[i - 1];
  }
  engine.tensor_map(s, map.data());
}

std::string products() {
  std::vector<emit::WgmmaForm> forms;
  for (const bool a : {false, true})
    for (const bool b : {false, true}) forms.push_back({DType::bf16, 64, false, a, b});
  forms.push_back({DType::bf16, 128, false, false, true});
  forms.push_back({DType::bf16, 64, true, false, false});
  forms.push_back({DType::bf16, 128, true, false, true});
  for (const int n : {8, 24, 80, 176, 256}) forms.push_back({DType::bf16, n, false, false, false});
  forms.push_back({DType::f16, 64, false, false, false});
  forms.push_back({DType::f16, 64, true, false, true});
  return "#line 1 \"src/kernels/ptx/emitted\"\n" + emit::wgmma_text(forms) + "#line 1 \"entry\"\n";
}

}  // namespace

const std::vector<Group>& calibration_groups_sm90() {
  static const std::vector<Group> all = {{"stm ", 10}, {"mbar", 7},  {"box3", 12}, {"box ", 25}, {"bulk", 31},
                                         {"wkk ", 32}, {"wkm ", 64}, {"wmk ", 32}, {"wmm ", 32}, {"wrk ", 32},
                                         {"wrm ", 64}, {"w64 ", 64}, {"w32 ", 64}, {"w0  ", 64}, {"wn  ", 272},
                                         {"wf16", 64}, {"wsum", 64}, {"wspc", 12}, {"end ", 0}};
  return all;
}

gpu::KernelText calibration_text_sm90() {
  gpu::KernelText text;
  text.name = "calibrate_sm90";
  text.spec = "calibration of the instructions of sm_90";
  text.source = inlined("#include \"kernels/calibrate_sm90.cuh\"\n") + products() +
                "extern \"C\" __global__ void __launch_bounds__(128)\n"
                "calibrate_sm90(const __grid_constant__ tessera_kernels::Calibrate90Params p) {\n"
                "  tessera_kernels::calibrate_sm90(p);\n}\n";
  text.threads = threads;
  text.smem_bytes = 32768 + 65536 + 8192 + 1024;
  return text;
}

Calibration calibrate_sm90(const gpu::Engine& engine, int device) {
  Calibration result{&calibration_groups_sm90()};
  std::size_t words = 0;
  for (const Group& g : calibration_groups_sm90()) words += 1 + std::size_t(g.words);
  result.words.resize(words * threads);
  std::vector<u32> numbers(16 * threads);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = u32(i);
  std::vector<std::uint16_t> cube(2 * 100 * 80, 0xdead);
  for (std::size_t row = 0; row < 200; ++row)
    for (std::size_t column = 0; column < 72; ++column) cube[row * 80 + column] = std::uint16_t(row * 72 + column + 1);
  const std::vector<u32> zeros(4096);
  const auto out = engine.allocate(device, result.words.size() * 4);
  const auto in = engine.constant(device, numbers.data(), numbers.size() * 4),
             tensor = engine.constant(device, cube.data(), cube.size() * 2),
             cells = engine.constant(device, zeros.data(), zeros.size() * 4);
  Params params{};
  using S = gpu::TensorSwizzle;
  encode(engine, tensor.get(), {{72, 100, 2}, {160, 16000}, {64, 24, 2}, S::b128}, params.cube);
  encode(engine, tensor.get(), {{72, 100, 2}, {160, 16000}, {24, 8, 1}, S::none}, params.plain);
  encode(engine, tensor.get(), {{72, 100, 2}, {160, 16000}, {32, 16, 1}, S::b64}, params.narrow);
  encode(engine, tensor.get(), {{72, 100, 2}, {160, 16000}, {16, 16, 1}, S::b32}, params.thin);
  encode(engine, tensor.get(), {{72, 100, 1, 1, 2}, {160, 16000, 16000, 16000}, {64, 32, 1, 1, 2}, S::b128},
         params.tile);
  encode(engine, tensor.get(), {{72, 100, 2, 1}, {160, 16000, 32000}, {64, 8, 2, 1}, S::b128}, params.four);
  encode(engine, tensor.get(), {{16000}, {}, {256}, S::none}, params.line);
  encode(engine, static_cast<const u32*>(cells.get()) + 2048,
         {{72, 24, 1, 1, 2}, {144, 3456, 3456, 3456}, {64, 16, 1, 1, 2}, S::b128}, params.pages);
  encode(engine, cells.get(), {{72, 48}, {144}, {64, 32}, S::b128}, params.sheet);
  params.out = out.get(), params.numbers = in.get(), params.cells = cells.get();
  const gpu::Kernel& kernel = engine.kernel(device, calibration_text_sm90());
  engine.launch(device, {}, kernel, 1, &params, sizeof params);
  engine.download(device, {}, result.words.data(), out.get(), result.words.size() * 4);
  return result;
}

}  // namespace tessera::sim
