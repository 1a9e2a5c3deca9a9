// For tests only. Emitted text compiled: by the host's compiler into a library that is loaded, and by NVRTC into PTX.
#pragma once
#include <dlfcn.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace tessera::tests {

// One text as a loaded library. Throws what the compiler says when it does not compile.
class HostText {
 public:
  // -O0: for large texts that run shortly.
  explicit HostText(const std::string& text, const std::string& optimise = "-O1") {
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera-text-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("no temporary directory: " + pattern);
    folder_ = pattern;
    std::ofstream(folder_ / "text.cpp") << "#define __device__\n#define __global__\n" << text;
    const std::string source = (folder_ / "text.cpp").string(), library = (folder_ / "text.so").string(),
                      said = (folder_ / "said.txt").string();
    // -fno-builtin: the very functions of the math library that the test calls.
    const std::string command = "c++ -std=c++17 " + optimise + " -w -shared -fPIC -fno-builtin -ffp-contract=off -o '" +
                                library + "' '" + source + "' > '" + said + "' 2>&1";
    if (std::system(command.c_str()) != 0) {
      std::ostringstream output;
      output << std::ifstream(said).rdbuf();
      remove();
      throw std::runtime_error(command + "\n" + output.str());
    }
    library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    const char* error = library_ ? nullptr : dlerror();
    remove();
    if (error) throw std::runtime_error(error);
  }
  HostText(const HostText&) = delete;
  HostText& operator=(const HostText&) = delete;
  ~HostText() { dlclose(library_); }

  template <class Function>
  Function* find(const std::string& name) const {
    void* found = dlsym(library_, name.c_str());
    if (!found) throw std::runtime_error("the library has no " + name);
    return reinterpret_cast<Function*>(found);
  }

 private:
  void remove() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::filesystem::path folder_;
  void* library_ = nullptr;
};

// The run-time compiler of CUDA, where it is installed.
class Nvrtc {
 public:
  Nvrtc() {
    for (const char* folder : {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/targets/x86_64-linux/lib/"})
      for (const char* file : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"})
        if (!library_) library_ = dlopen((std::string(folder) + file).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  explicit operator bool() const { return library_ != nullptr; }

  // The PTX of a text; throws the compiler's log when it does not compile.
  std::string compile(const std::string& text, const std::string& architecture) const {
    using Program = void*;
    Program program = nullptr;
    check(call<int(Program*, const char*, const char*, int, const char* const*, const char* const*)>(
        "nvrtcCreateProgram")(&program, text.c_str(), "text.cu", 0, nullptr, nullptr));
    const std::string target = "--gpu-architecture=" + architecture;
    const char* options[] = {target.c_str()};
    const int result = call<int(Program, int, const char* const*)>("nvrtcCompileProgram")(program, 1, options);
    const std::string log = read(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog");
    const std::string ptx = result == 0 ? read(program, "nvrtcGetPTXSize", "nvrtcGetPTX") : "";
    call<int(Program*)>("nvrtcDestroyProgram")(&program);
    if (result != 0) throw std::runtime_error("NVRTC for " + architecture + ":\n" + log);
    return ptx;
  }

 private:
  template <class Function>
  Function* call(const char* name) const {
    void* found = dlsym(library_, name);
    if (!found) throw std::runtime_error(std::string("NVRTC has no ") + name);
    return reinterpret_cast<Function*>(found);
  }
  static void check(int result) {
    if (result != 0) throw std::runtime_error("NVRTC answers " + std::to_string(result));
  }
  std::string read(void* program, const char* size_of, const char* get) const {
    std::size_t size = 0;
    check(call<int(void*, std::size_t*)>(size_of)(program, &size));
    std::string text(size, '\0');
    check(call<int(void*, char*)>(get)(program, text.data()));
    return text;
  }
  void* library_ = nullptr;  // stays loaded: NVRTC does not like to be unloaded
};

}  // namespace tessera::tests
