// The texts of these tests by the real compiler, for every class of device: each instruction of kernels/ptx/ is one
// that the assembler knows, and nothing spills. No GPU is needed. Where there is no NVRTC a line says so.
#include <gtest/gtest.h>

#include "cuda/compiler.hpp"
#include "cuda/settings.hpp"
#include "emit/wgmma_text.hpp"
#include "sim/calibration.hpp"
#include "sim/row_dots.hpp"
#include "sim/small_case.hpp"
#include "sim/sources.hpp"
#include "tessera/error.hpp"

namespace tessera::sim {
namespace {

class Nvrtc : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!compiler.about().missing.empty()) GTEST_SKIP() << compiler.about().missing;
  }
  void expect_clean(const gpu::KernelText& text, const std::vector<int>& devices = {80, 86, 89, 90, 100, 120}) {
    for (const int device : devices) {
      std::string arch;
      try {
        arch = compiler.arch_for(device);
      } catch (const Error& error) {  // an NVRTC that is older than the device
        EXPECT_NE(std::string(error.what()).find("a newer NVRTC is needed"), std::string::npos) << error.what();
        continue;
      }
      const cuda::KernelImage image = compiler.compile(text, arch);
      EXPECT_EQ(image.spill_bytes, 0) << image.log;
      EXPECT_EQ(image.stack_bytes, 0) << image.log;
      EXPECT_EQ(image.log.find("warning"), std::string::npos) << image.log;
      EXPECT_EQ(image.log.find("C75"), std::string::npos) << image.log;  // products that wait for each other
    }
  }
  cuda::Notes notes;
  cuda::Compiler compiler{cuda::nvrtc_places("", cuda::settings_from_environment().nvrtc), 0, notes};
};

gpu::KernelText instructions_sm90(DType type, int n) {
  std::vector<emit::WgmmaForm> forms;
  for (const bool registers : {false, true})
    for (const bool b : {false, true}) forms.push_back({type, n, registers, false, b});
  forms.push_back({type, n, false, true, true});
  gpu::KernelText text;
  text.name = "instructions";
  const std::string element = type == DType::bf16 ? "bf16" : "f16";
  text.source = inlined("#include \"sim/instructions_sm90.cuh\"\n") + emit::wgmma_text(forms) +
                "extern \"C\" __global__ void __launch_bounds__(256, 1)\n"
                "instructions(const __grid_constant__ Params p) {\n  every_instruction<ptx::" +
                element + ", " + std::to_string(n) + ">(p);\n}\n";
  text.threads = 256;
  return text;
}

TEST_F(Nvrtc, EveryInstructionOfSm90) {
  for (const int n : {8, 64, 80, 128, 176, 256})
    expect_clean(instructions_sm90(n % 16 ? DType::f16 : DType::bf16, n), {90});
  expect_clean(instructions_sm90(DType::f16, 128), {90});
}
TEST_F(Nvrtc, SmallForwardOfSm90) {
  const std::string kernel = file_text("tests/sim/small_forward_sm90.cuh");
  gpu::KernelText text;
  text.name = "small", text.source = small_forward_sm90_text(kernel, 128, true), text.threads = 384;
  expect_clean(text, {90});
}
TEST_F(Nvrtc, CalibrationOfSm90) { expect_clean(calibration_text_sm90(), {90}); }
TEST_F(Nvrtc, EveryInstruction) { expect_clean(calibration_text()); }
TEST_F(Nvrtc, RowDots) { expect_clean(row_dots_text()); }

}  // namespace
}  // namespace tessera::sim
