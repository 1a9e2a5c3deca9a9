// The order of the places, on folders made for it.
#include "cuda/nvrtc_search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cuda/compiler.hpp"
#include "cuda/settings.hpp"

namespace tessera::cuda {
namespace {

namespace fs = std::filesystem;

class NvrtcSearchTest : public ::testing::Test {
 protected:
  NvrtcSearchTest() {
    std::string pattern = (fs::temp_directory_path() / "tessera-nvrtc-XXXXXX").string();
    root = mkdtemp(pattern.data());
    places.system = false;
  }
  ~NvrtcSearchTest() override { fs::remove_all(root); }
  std::string file(const std::string& name) {
    const std::string path = root + "/" + name;
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << "not really";
    return path;
  }
  std::vector<std::string> found(int driver_major = 0) {
    std::vector<std::string> paths;
    for (const NvrtcCandidate& c : search_nvrtc(places, driver_major).candidates)
      paths.push_back(c.path.starts_with(root) ? c.path.substr(root.size() + 1) : c.path);
    return paths;
  }
  using Paths = std::vector<std::string>;
  std::string root;
  NvrtcPlaces places;
};

TEST_F(NvrtcSearchTest, TheOrderOfThePlaces) {
  file("site/nvidia/cu13/lib/libnvrtc.so.13");
  file("site/nvidia/cu13/lib/libnvrtc-builtins.so.13.0");
  file("site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  file("site/nvidia/cuda_nvrtc/lib/libnvrtc.alt.so.12");
  file("cuda/lib64/libnvrtc.so.13");
  file("cuda/lib64/libnvrtc_static.a");
  places.loaded = {"/usr/lib/libc.so.6", "/a/torch/lib/libnvrtc-672ee683.so.11.2", "/a/libnvrtc-builtins.so.12.4"};
  places.python = {root + "/none", root + "/site"};
  places.toolkit = {root + "/cuda"};
  EXPECT_EQ(found(), (Paths{"/a/torch/lib/libnvrtc-672ee683.so.11.2", "site/nvidia/cu13/lib/libnvrtc.so.13",
                            "site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "cuda/lib64/libnvrtc.so.13"}));
  places.system = true;
  EXPECT_EQ(found().back(), "libnvrtc.so");
  places.variable = root + "/cuda/lib64";
  EXPECT_EQ(found(), (Paths{"cuda/lib64/libnvrtc.so.13"})) << "what is asked for, and nothing else";
  places.option = root + "/site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12";
  EXPECT_EQ(found(), (Paths{"site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"})) << "the option before the variable";
  places.option = root + "/nothing";
  EXPECT_EQ(found(), Paths{});
}

TEST_F(NvrtcSearchTest, ACompilerThatIsNewerThanTheDriverComesLast) {
  file("site/nvidia/cu13/lib/libnvrtc.so.13");
  file("site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  file("cuda/lib64/libnvrtc.so.13.0.88");
  file("cuda/lib64/libnvrtc.so.12.9.86");
  places.python = {root + "/site"};
  places.toolkit = {root + "/cuda"};
  EXPECT_EQ(found(12), (Paths{"site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "cuda/lib64/libnvrtc.so.12.9.86",
                              "site/nvidia/cu13/lib/libnvrtc.so.13"}));
  EXPECT_EQ(found(13), (Paths{"site/nvidia/cu13/lib/libnvrtc.so.13", "site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
                              "cuda/lib64/libnvrtc.so.13.0.88"}));
}

TEST_F(NvrtcSearchTest, ALinkSaysItsVersionByWhereItLeads) {
  file("cuda/lib64/libnvrtc.so.13.0.88");
  fs::create_symlink("libnvrtc.so.13.0.88", root + "/cuda/lib64/libnvrtc.so");
  places.option = root + "/cuda/lib64/libnvrtc.so";
  const NvrtcSearch search = search_nvrtc(places, 0);
  ASSERT_EQ(search.candidates.size(), 1u);
  EXPECT_EQ(search.candidates[0].major, 13);
}

TEST_F(NvrtcSearchTest, EveryPlaceIsNamed) {
  places.python = {root + "/site"};
  places.toolkit = {root + "/cuda"};
  places.system = true;
  const NvrtcSearch search = search_nvrtc(places, 0);
  for (const std::string& part :
       {std::string("loaded"), root + "/site/nvidia/cu13/lib", root + "/site/nvidia/cuda_nvrtc/lib",
        root + "/cuda/lib64", std::string("libnvrtc.so.13")})
    EXPECT_TRUE(std::any_of(search.looked_at.begin(), search.looked_at.end(), [&](const std::string& place) {
      return place.find(part) != std::string::npos;
    })) << part;
}

TEST_F(NvrtcSearchTest, TheEnvironmentOfThisProcess) {
  fs::create_directories(root + "/venv/lib/python3.11/site-packages");
  setenv("VIRTUAL_ENV", (root + "/venv").c_str(), 1);
  setenv("CUDA_HOME", (root + "/cuda").c_str(), 1);
  const NvrtcPlaces here = nvrtc_places("a", "b");
  unsetenv("VIRTUAL_ENV");
  unsetenv("CUDA_HOME");
  EXPECT_EQ(here.option, "a");
  EXPECT_EQ(here.variable, "b");
  EXPECT_NE(std::find(here.python.begin(), here.python.end(), root + "/venv/lib/python3.11/site-packages"),
            here.python.end());
  ASSERT_FALSE(here.toolkit.empty());
  EXPECT_EQ(here.toolkit.front(), root + "/cuda");
  EXPECT_FALSE(here.loaded.empty());
}

TEST_F(NvrtcSearchTest, AFileThatIsNoLibrary) {
  places.option = file("libnvrtc.so.13");
  Notes notes;
  Compiler compiler(places, 0, notes);
  EXPECT_NE(compiler.id(), "");
  EXPECT_NE(compiler.about().missing.find("cannot be used"), std::string::npos) << compiler.about().missing;
  ASSERT_EQ(notes.all().size(), 1u);
  EXPECT_NE(notes.all()[0].find(places.option + " cannot be opened"), std::string::npos) << notes.all()[0];
  EXPECT_EQ(compiler.id(), "");
}

TEST(ReportTest, ReadsWhatTheAssemblerSays) {
  const AssemblerReport report = read_report(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'forward' for 'sm_90a'\n"
      "ptxas info    : Function properties for forward\n"
      "ptxas         .     40 bytes stack frame, 24 bytes spill stores, 36 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 1 barriers, 40 bytes cumulative stack size, 1040 bytes smem\n");
  EXPECT_EQ(report, (AssemblerReport{168, 40, 36, 1040}));
  EXPECT_EQ(read_report(""), AssemblerReport{});
}

TEST(SettingsTest, TheEnvironment) {
  setenv("TESSERA_PACK", "/a.tpack::/b.tpack", 1);
  setenv("TESSERA_CACHE_DIR", "/c", 1);
  Settings settings = settings_from_environment();
  EXPECT_EQ(settings.packs, (std::vector<std::string>{"/a.tpack", "/b.tpack"}));
  EXPECT_EQ(settings.cache, "/c");
  unsetenv("TESSERA_PACK");
  unsetenv("TESSERA_CACHE_DIR");
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(settings_from_environment().cache, "/x/tessera");
  setenv("XDG_CACHE_HOME", "relative", 1);
  const std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  setenv("HOME", "/h", 1);
  EXPECT_EQ(settings_from_environment().cache, "/h/.cache/tessera");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  settings = settings_from_environment();
  EXPECT_EQ(settings.cache, "");
  EXPECT_NE(settings.no_cache.find("HOME"), std::string::npos);
  setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace tessera::cuda
