// Every kind of specialisation through NVRTC, without a GPU: it compiles for every class of device, nothing is spilled
// and nothing lies in local memory. What the emulated GPU cannot see. Where there is no NVRTC one line says so.
#include <gtest/gtest.h>

#include <iostream>

#include "cuda/compiler.hpp"
#include "cuda/settings.hpp"
#include "emit/kernel_text.hpp"
#include "emit/merge_text.hpp"
#include "tessera/mods.hpp"

namespace tessera::tests {
namespace {

struct Specialisation {
  const char* what;
  emit::ForwardSpec spec;
  std::string score{}, mask{};
  // Bytes that may be spilled where 32 rows of dim 128 fill the registers: a few sums that LSE needs beside those of
  // rounded probabilities, and, outside of the products, what masks that read tensors need.
  int spilled = 0;
};

emit::ForwardSpec tile(int dim, int q_tile, int warps, int blocks, int stages = 2) {
  emit::ForwardSpec s;
  s.dim = s.dim_v = dim, s.q_tile = q_tile, s.warps = warps, s.blocks = blocks, s.stages = stages, s.lse = true;
  s.fixed = true;
  return s;
}
template <class Change>
emit::ForwardSpec with(emit::ForwardSpec s, const Change& change) {
  change(s);
  return s;
}
emit::ForwardSpec with_bands(emit::ForwardSpec s, int bands = 1) {
  s.keys = emit::Keys::bands, s.bands = bands;
  return s;
}

std::vector<Specialisation> specialisations() {
  using emit::ForwardSpec;
  using emit::Keys;
  const auto shared = [](ForwardSpec s) {
    s.warps_n = 2, s.early = 1;
    return s;
  };
  const ForwardSpec d64 = tile(64, 128, 4, 2), d128 = tile(128, 128, 4, 2), d256 = shared(tile(256, 128, 8, 1));
  const ForwardSpec rows_16 = tile(128, 16, 1, 1);
  return {
      {"d128", d128, "", "", 48},
      {"d128 causal", with_bands(d128), "", "", 48},
      {"d128 without LSE", with(d128, [](ForwardSpec& s) { s.lse = false; })},
      {"d128 causal without LSE", with(with_bands(d128), [](ForwardSpec& s) { s.lse = false; })},
      {"d128 causal, running reference", with(with_bands(d128), [](ForwardSpec& s) { s.fixed = false; })},
      {"d128 one stage", with_bands(tile(128, 128, 4, 2, 1)), "", "", 48},
      {"d64 causal f16",
       with(with_bands(d64), [](ForwardSpec& s) { s.dtype = s.out_dtype = DType::f16, s.fixed = false; })},
      {"d64, queries in registers", with(d64, [](ForwardSpec& s) { s.q_registers = true; })},
      {"d256 causal", with_bands(d256)},
      {"d256 one stage, f32",
       with(tile(256, 64, 4, 2, 1), [](ForwardSpec& s) { s.out_dtype = DType::f32, s.fixed = false; })},
      {"d256 short, softcap", with_bands(shared(tile(256, 64, 4, 2, 1))), "30 * tanh(s / 30)"},
      {"d8", tile(8, 64, 4, 2)},
      {"d72/40 packed, two bands, sinks",
       with(with_bands(tile(72, 128, 4, 2), 2), [](ForwardSpec& s) { s.dim_v = 40, s.packed = s.sinks = true; })},
      {"d192/128", with(tile(192, 128, 8, 1), [](ForwardSpec& s) { s.dim_v = 128; })},
      {"d128 paged", with(d128, [](ForwardSpec& s) { s.paged = s.lengths = true; }), "", "", 48},
      {"d128 paged decode, split, heads", with(with_bands(rows_16),
                                               [](ForwardSpec& s) {
                                                 s.paged = s.lengths = s.split = s.packed = true;
                                                 s.heads = 8, s.fixed = false;
                                               })},
      {"d128 strided by 4 and 2", with(d128, [](ForwardSpec& s) { s.q_copy = s.k_copy = 4, s.v_copy = s.o_copy = 2; }),
       "", "", 48},
      {"d128 softcap, causal", with_bands(d128), "30 * tanh(s / 30)", "", 48},
      {"d128 alibi, causal, narrow", with(with_bands(d128), [](ForwardSpec& s) { s.narrow = true, s.fixed = false; }),
       "s + slope[h] * real(k - q)"},
      {"d64 alibi", with(d64, [](ForwardSpec& s) { s.fixed = false; }), "s + slope[h] * real(k - q)"},
      {"d128 documents, runs", with(d128, [](ForwardSpec& s) { s.keys = Keys::runs; }), "",
       "(ids:int[q] == ids:int[k]) & (k <= q)", 192},
      {"d128 documents, runs, narrow", with(d128, [](ForwardSpec& s) { s.keys = Keys::runs, s.narrow = true; }), "",
       "(ids:int[q] == ids:int[k]) & (k <= q)", 192},
      {"d64 documents, runs, narrow", with(d64, [](ForwardSpec& s) { s.keys = Keys::runs, s.narrow = true; }), "",
       "(ids:int[q] == ids:int[k]) & (k <= q)"},
      {"d64 evaluated mask, eight heads", with(tile(64, 64, 4, 2), [](ForwardSpec& s) { s.heads = 8; }), "",
       "(q + h) % 3 == 0"},
  };
}

// Class 90: queries x keys, places for keys and values, for queries.
emit::ForwardSpec hopper(int dim, int q_tile, int k_tile, int stages, int q_buffers = 2) {
  emit::ForwardSpec s = tile(dim, q_tile, q_tile / 16, 1, stages);
  s.fixed = false;
  s.arch = 90, s.k_tile = k_tile, s.v_stages = stages, s.q_buffers = q_buffers, s.narrow = true;
  return s;
}

std::vector<Specialisation> hopper_specialisations() {
  using emit::ForwardSpec;
  using emit::Keys;
  const ForwardSpec d128 = hopper(128, 128, 128, 2);
  const auto causal = [](ForwardSpec s) {
    s = with_bands(s);
    s.left_open = true;
    return s;
  };
  const auto paged = [](ForwardSpec s, int box) {
    s.paged = s.lengths = true, s.page_box = box;
    return s;
  };
  return {
      {"d128", d128},
      {"d128 causal f16 packed",
       with(causal(d128), [](ForwardSpec& s) { s.dtype = s.out_dtype = DType::f16, s.packed = true; })},
      {"d64 causal, three warpgroups", causal(hopper(64, 192, 128, 3))},
      {"d64, four warpgroups", hopper(64, 256, 64, 4)},
      {"d256 causal", causal(hopper(256, 128, 64, 2, 1))},
      {"d72/40 two bands, sinks, lengths",
       with(with_bands(hopper(72, 128, 128, 2), 2),
            [](ForwardSpec& s) { s.dim_v = 40, s.sinks = s.packed = s.lengths = true; })},
      {"d128 split, f32", with(d128, [](ForwardSpec& s) { s.out_dtype = DType::f32, s.split = true; })},
      {"d128 alibi, causal", causal(d128), "s + slope[h] * real(k - q)"},
      {"d128 documents, runs", with(d128, [](ForwardSpec& s) { s.keys = Keys::runs; }), "",
       "(ids:int[q] == ids:int[k]) & (k <= q)"},
      {"d128 causal, eight heads", with(causal(d128), [](ForwardSpec& s) { s.heads = 8, s.sinks = true; })},
      {"d128 causal, pages by 64", paged(causal(d128), 64)},
      {"d128 pages by 16, packed, split, heads", with(paged(causal(d128), 16),
                                                      [](ForwardSpec& s) {
                                                        s.packed = s.split = true;
                                                        s.heads = 4;
                                                      })},
      {"d64 pages by 8, four warpgroups", paged(hopper(64, 256, 64, 4), 8)},
      {"d64 causal, pages by 128, three warpgroups", paged(causal(hopper(64, 192, 128, 3)), 128)},
      {"d64 causal, row by row, three warpgroups", paged(causal(hopper(64, 192, 128, 3)), 1)},
      {"d256 causal, row by row", paged(causal(hopper(256, 128, 64, 2, 1)), 1)},
      {"d256 causal, pages by 32", paged(causal(hopper(256, 128, 64, 2, 1)), 32)},
  };
}

emit::ForwardSpec complete(const Specialisation& given) {
  emit::ForwardSpec s = given.spec;
  const auto types = [](const Graph& graph) {
    std::vector<DType> all;
    for (const Capture& capture : graph.captures) all.push_back(capture.type == Type::real ? f32 : i32);
    return all;
  };
  if (!given.score.empty()) s.score = parse_score(given.score).graph(), s.score_dtypes = types(s.score);
  if (!given.mask.empty()) s.mask = parse_mask(given.mask).graph(), s.mask_dtypes = types(s.mask);
  return s;
}

class KernelsByNvrtc : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!compiler.about().missing.empty()) GTEST_SKIP() << compiler.about().missing;
  }
  // What the assembler said; empty: there is no code for the device from this NVRTC.
  std::string expect_clean(const char* what, const gpu::KernelText& text, int device, int spilled) {
    std::string arch;
    try {
      arch = compiler.arch_for(device);
    } catch (const Error&) {  // an NVRTC that is older than the device
      return {};
    }
    const cuda::KernelImage image = compiler.compile(text, arch);
    EXPECT_LE(image.spill_bytes, spilled) << what << ' ' << arch << '\n' << image.log;
    EXPECT_LE(image.stack_bytes, spilled) << what << ' ' << arch << '\n' << image.log;
    EXPECT_FALSE(image.log.find("warning") != std::string::npos) << image.log;
    std::cout << "  " << arch << ' ' << what << ": " << image.registers << " registers\n";
    return image.log;
  }
  cuda::Notes notes;
  cuda::Compiler compiler{cuda::nvrtc_places("", cuda::settings_from_environment().nvrtc), 0, notes};
};

// The device that most want, and of the others one for each specialisation, in turns.
TEST_F(KernelsByNvrtc, NothingIsSpilled) {
  constexpr int others[] = {80, 86, 89, 100, 120};
  const auto memory_of = [](int device) {
    return device == 80 ? 163 << 10 : device % 10 || device == 120 ? 99 << 10 : 227 << 10;
  };
  std::size_t i = 0;
  for (const Specialisation& one : specialisations()) {
    const gpu::KernelText text = emit::forward_text(complete(one));
    const int other = others[i / 2 % std::size(others)];
    const bool fits = text.smem_bytes <= static_cast<std::size_t>(memory_of(other));
    expect_clean(one.what, text, i % 2 || !fits ? 90 : other, one.spilled);
    ++i;
  }
}
// C75..: products that wait for each other, or fences that the assembler had to add.
TEST_F(KernelsByNvrtc, HopperProductsRunOn) {
  for (const Specialisation& one : hopper_specialisations()) {
    const gpu::KernelText text = emit::forward_text(complete(one));
    const std::string log = expect_clean(one.what, text, 90, one.spilled);
    EXPECT_EQ(log.find("(C75"), std::string::npos) << one.what << '\n' << log;
  }
}
TEST_F(KernelsByNvrtc, Combine) {
  emit::ForwardSpec s = tile(128, 64, 4, 2);
  s.split = s.sinks = true, s.fixed = false;
  for (const int device : {80, 90, 120}) expect_clean("combine", emit::combine_text(s), device, 0);
}
TEST_F(KernelsByNvrtc, Merge) {
  for (const int device : {80, 86, 89, 90, 100, 120}) {
    expect_clean("merge bf16", emit::merge_text({bf16, bf16, bf16, 8}), device, 0);
    expect_clean("merge f32", emit::merge_text({f32, f32, f32, 8}), device, 0);
    expect_clean("merge f32 and f16 by ones", emit::merge_text({f32, f16, bf16, 1}), device, 0);
  }
}

}  // namespace
}  // namespace tessera::tests
