// An engine over the fake driver and the fake compiler, in a folder of its own.
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "cuda/engine.hpp"
#include "cuda/fake_driver.hpp"
#include "unit/failure_of.hpp"

namespace tessera::cuda::tests {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "tessera-cuda-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code error;
    fs::remove_all(path, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

inline std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline gpu::KernelText some_text(const std::string& name = "scale", const std::string& more = "") {
  return {name, name + " of a test", "extern \"C\" __global__ void " + name + "() {}\n" + more, 128, 60000};
}

class WithFakes : public ::testing::Test {
 protected:
  void SetUp() override {
    void* const library = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    control = reinterpret_cast<fake::Control (*)()>(dlsym(library, "fake_control"))();
    control.reset();
    settings.driver = FAKE_CUDA;
    settings.nvrtc = FAKE_NVRTC;
    settings.cache = folder / "cache";
    log = folder / "compilations";
    setenv("FAKE_NVRTC_LOG", log.c_str(), 1);
    unsetenv("FAKE_NVRTC_MS");
  }
  fake::State& state() { return control.state(); }
  CudaEngine& engine() {
    if (!engine_) engine_ = std::make_unique<CudaEngine>(settings);
    return *engine_;
  }
  void restart() { engine_.reset(); }  // what another process would find
  int compilations() const {
    const std::string text = content(log);
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }
  // All notes in one, for EXPECT.
  std::string notes() {
    std::string all;
    for (const std::string& note : engine().notes()) all += note + "\n";
    return all;
  }
  static Stream stream(fake::Stream* s) { return {s}; }

  fake::Control control{};
  Folder folder;
  std::string log;
  Settings settings;

 private:
  std::unique_ptr<CudaEngine> engine_;
};

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace tessera::cuda::tests
