#include "cuda/compiler.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

#include "cuda/compile_options.hpp"
#include "cuda/driver.hpp"
#include "cuda/library.hpp"
#include "problem/fail.hpp"

namespace tessera::cuda {

using problem::fail;

// By NVRTC's published names; its results are numbers, 0 is success, 6 a text that does not compile.
struct Compiler::Api {
  using Program = struct NvrtcProgram*;
  int (*version)(int* major, int* minor) = nullptr;
  int (*arch_count)(int* count) = nullptr;
  int (*archs)(int* numbers) = nullptr;
  int (*create)(Program*, const char* text, const char* name, int headers, const char* const*,
                const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*compile)(Program, int options, const char* const*) = nullptr;
  int (*cubin_bytes)(Program, std::size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  int (*log_bytes)(Program, std::size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  const char* (*words)(int) = nullptr;

  // The name of the first function that the library lacks; empty: it has all.
  std::string fill(const Library& library) {
    std::string lacking;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.find(name));
      if (!function && lacking.empty()) lacking = name;
    };
    find(version, "nvrtcVersion");
    find(arch_count, "nvrtcGetNumSupportedArchs");
    find(archs, "nvrtcGetSupportedArchs");
    find(create, "nvrtcCreateProgram");
    find(destroy, "nvrtcDestroyProgram");
    find(compile, "nvrtcCompileProgram");
    find(cubin_bytes, "nvrtcGetCUBINSize");
    find(cubin, "nvrtcGetCUBIN");
    find(log_bytes, "nvrtcGetProgramLogSize");
    find(log, "nvrtcGetProgramLog");
    find(words, "nvrtcGetErrorString");
    return lacking;
  }
};

namespace {

// A file's identity without reading it: another compiler in its place has another size or time.
std::string id_of(const std::string& path) {
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) return "";
  return path + " " + std::to_string(about.st_size) + " " + std::to_string(about.st_mtim.tv_sec) + "." +
         std::to_string(about.st_mtim.tv_nsec);
}

std::string joined(const std::vector<std::string>& lines, const char* between) {
  std::string all;
  for (const std::string& line : lines) all += (all.empty() ? "" : between) + line;
  return all;
}

// The number that stands before `unit` in a report such as "24 bytes spill stores"; 0: none.
int number_before(const std::string& text, const std::string& unit) {
  int largest = 0;
  for (std::size_t at = text.find(unit); at != std::string::npos; at = text.find(unit, at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
    if (begin < at) largest = std::max(largest, std::atoi(text.c_str() + begin));
  }
  return largest;
}

}  // namespace

AssemblerReport read_report(const std::string& log) {
  return {number_before(log, " registers"), number_before(log, " bytes stack frame"),
          std::max(number_before(log, " bytes spill stores"), number_before(log, " bytes spill loads")),
          number_before(log, " bytes smem")};
}

std::string arch_name(int device) { return "sm_" + std::to_string(device) + (device >= 90 ? "a" : ""); }

Compiler::Compiler(NvrtcPlaces places, int driver_version, Notes& notes)
    : places_(std::move(places)), driver_version_(driver_version), notes_(notes) {}

void Compiler::locate() {
  if (located_) return;
  located_ = true;
  search_ = search_nvrtc(places_, driver_version_ / 1000);
  if (search_.candidates.empty()) return;
  id_ = id_of(search_.candidates.front().path);
  if (id_.empty()) open();  // a name for the system's loader: where it leads is known when it is open
}

bool Compiler::open(const NvrtcCandidate& candidate) {
  const Library library(candidate.path);
  if (!library) {
    if (candidate.path.starts_with("/")) notes_.add(candidate.path + " cannot be opened: " + library.error());
    return false;
  }
  auto api = std::make_unique<Api>();
  if (const std::string lacking = api->fill(library); !lacking.empty()) {
    notes_.add(candidate.path + " is not used: it lacks " + lacking + " (11.2 or newer has it)");
    return false;
  }
  int major = 0, minor = 0, count = 0;
  if (api->version(&major, &minor) != 0 || api->arch_count(&count) != 0) return false;
  about_.archs.resize(static_cast<std::size_t>(std::max(count, 0)));
  if (count > 0 && api->archs(about_.archs.data()) != 0) about_.archs.clear();
  about_.version = std::to_string(major) + "." + std::to_string(minor);
  about_.how = candidate.how;
  about_.path = Library::file_of(reinterpret_cast<void*>(api->version));
  id_ = id_of(candidate.path.starts_with("/") ? candidate.path : about_.path);
  api_ = api.release();  // as long as the library, which is never closed
  return true;
}

void Compiler::open() {
  if (opened_) return;
  opened_ = true;
  for (const NvrtcCandidate& candidate : search_.candidates)
    if (open(candidate)) return;
  id_.clear();
  const std::string pinned = !places_.option.empty() ? places_.option : places_.variable;
  about_.missing = pinned.empty()
                       ? "there is no NVRTC to compile it with: `pip install nvidia-cuda-nvrtc" +
                             std::string(driver_version_ / 1000 == 12 ? "-cu12" : "") +
                             "` brings one, or name a file in TESSERA_NVRTC, or bring a pack (TESSERA_PACK, made by "
                             "`tessera compile`); "
                             "looked at " +
                             joined(search_.looked_at, ", ")
                       : "the NVRTC that was asked for, " + pinned + ", cannot be used" +
                             (search_.candidates.empty() ? " (there is no such file)" : "") + "; unset " +
                             (places_.option.empty() ? "TESSERA_NVRTC" : "the option") + " to look for another one";
}

std::string Compiler::id() {
  std::lock_guard lock(mutex_);
  locate();
  return id_;
}

const Compiler::About& Compiler::about() {
  std::lock_guard lock(mutex_);
  locate();
  open();
  return about_;
}

std::string Compiler::arch_for(int device) {
  const About& a = about();
  if (!a.missing.empty()) fail(Code::unsupported, a.missing);
  const auto knows = [&](int arch) { return std::find(a.archs.begin(), a.archs.end(), arch) != a.archs.end(); };
  // Names with an "a" came with 12.0.
  const bool suffixes = std::atoi(a.version.c_str()) >= 12;
  if (knows(device)) return device < 90 || suffixes ? arch_name(device) : "sm_" + std::to_string(device);
  for (int arch = device - 1; arch >= device / 10 * 10; --arch)
    if (knows(arch)) return "sm_" + std::to_string(arch);
  std::string known;
  for (const int arch : a.archs) known += (known.empty() ? "sm_" : ", sm_") + std::to_string(arch);
  fail(Code::unsupported, "NVRTC ", a.version, " (", a.path, ", ", a.how, ") compiles for ", known,
       " and the GPU is sm_", device, ": a newer NVRTC is needed, see TESSERA_NVRTC");
}

KernelImage Compiler::compile(const gpu::KernelText& text, const std::string& arch) {
  const About& a = about();
  if (!a.missing.empty()) fail(Code::unsupported, a.missing);
  KernelImage image;
  image.text = text_key(text);
  image.name = text.name, image.spec = text.spec, image.arch = arch;
  image.compiler = "NVRTC " + a.version, image.compiler_id = id(), image.library = TESSERA_VERSION;

  const std::string target = "--gpu-architecture=" + arch, file = text.name + ".cu";
  std::vector<const char*> options(std::begin(compile_options), std::end(compile_options));
  options.push_back(target.c_str());
  Api::Program program = nullptr;
  int code = api_->create(&program, text.source.c_str(), file.c_str(), 0, nullptr, nullptr);
  if (code == 0) code = api_->compile(program, static_cast<int>(options.size()), options.data());
  std::size_t bytes = 0;
  if (program && api_->log_bytes(program, &bytes) == 0 && bytes > 1) {
    image.log.resize(bytes);
    if (api_->log(program, image.log.data()) != 0) image.log.clear();
    image.log.resize(std::strlen(image.log.c_str()));
  }
  if (code == 0) code = api_->cubin_bytes(program, &bytes);
  if (code == 0) {
    image.cubin.resize(bytes);
    code = api_->cubin(program, image.cubin.data());
  }
  if (program) api_->destroy(&program);
  if (code != 0 || image.cubin.empty())
    fail(Code::unsupported, "NVRTC ", a.version, " (", a.path, ") does not compile ", text.name, " for ", arch, ": ",
         api_->words(code), image.log.empty() ? "" : "\n", image.log, "\nthe kernel is ", text.spec,
         "; TESSERA_DUMP=FOLDER writes its text");
  const AssemblerReport report = read_report(image.log);
  image.registers = report.registers, image.stack_bytes = report.stack_bytes;
  image.spill_bytes = report.spill_bytes, image.smem_bytes = report.smem_bytes;
  return image;
}

}  // namespace tessera::cuda
