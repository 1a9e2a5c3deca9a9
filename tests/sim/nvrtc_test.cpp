// The texts of these tests by the real compiler, for every class of device: each instruction of kernels/ptx/ is one
// that the assembler knows, and nothing spills. No GPU is needed. Where there is no NVRTC a line says so.
#include <gtest/gtest.h>

#include "cuda/compiler.hpp"
#include "cuda/settings.hpp"
#include "sim/calibration.hpp"
#include "sim/row_dots.hpp"
#include "tessera/error.hpp"

namespace tessera::sim {
namespace {

class Nvrtc : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!compiler.about().missing.empty()) GTEST_SKIP() << compiler.about().missing;
  }
  void expect_clean(const gpu::KernelText& text) {
    for (const int device : {80, 86, 89, 90, 100, 120}) {
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
    }
  }
  cuda::Notes notes;
  cuda::Compiler compiler{cuda::nvrtc_places("", cuda::settings_from_environment().nvrtc), 0, notes};
};

TEST_F(Nvrtc, EveryInstruction) { expect_clean(calibration_text()); }
TEST_F(Nvrtc, RowDots) { expect_clean(row_dots_text()); }

}  // namespace
}  // namespace tessera::sim
