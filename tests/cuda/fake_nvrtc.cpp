// A compiler that is none: what it makes is the text with a word in front, which the fake driver takes. Each
// compilation leaves a line in the file FAKE_NVRTC_LOG and takes FAKE_NVRTC_MS milliseconds, so that tests can count
// them over processes and meet one at work.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

struct Program {
  std::string text, cubin, log;
};
int number(const char* name, int otherwise) {
  const char* const value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}

}  // namespace

EXPORTED int nvrtcVersion(int* major, int* minor) {
  const int version = number("FAKE_NVRTC_VERSION", 130);
  *major = version / 10, *minor = version % 10;
  return 0;
}
EXPORTED int nvrtcGetNumSupportedArchs(int* count) {
  *count = 4;
  return 0;
}
EXPORTED int nvrtcGetSupportedArchs(int* archs) {
  const int all[] = {80, 86, 90, 100};
  std::memcpy(archs, all, sizeof all);
  return 0;
}
EXPORTED int nvrtcCreateProgram(Program** program, const char* text, const char*, int, const char* const*,
                                const char* const*) {
  *program = new Program{text, "", ""};
  return 0;
}
EXPORTED int nvrtcDestroyProgram(Program** program) {
  delete *program;
  return 0;
}
EXPORTED int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  std::string arch;
  for (int i = 0; i < count; ++i)
    if (std::strncmp(options[i], "--gpu-architecture=", 19) == 0) arch = options[i] + 19;
  if (const char* path = std::getenv("FAKE_NVRTC_LOG")) {
    const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const std::string line = std::to_string(getpid()) + "\n";
    if (file >= 0 && write(file, line.data(), line.size()) < 0) return 11;
    if (file >= 0) close(file);
  }
  usleep(static_cast<unsigned>(number("FAKE_NVRTC_MS", 0)) * 1000);
  if (program->text.find("#error of a test") != std::string::npos) {
    program->log = "fake.cu(1): error: #error of a test";
    return 6;
  }
  program->log =
      "ptxas info    : Used 42 registers, used 1 barriers, 16 bytes smem\n"
      "ptxas         .     8 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads\n";
  program->cubin = "FAKE " + arch + "\n" + program->text + std::string(1, '\0');
  return 0;
}
EXPORTED int nvrtcGetCUBINSize(Program* program, std::size_t* bytes) {
  *bytes = program->cubin.size();
  return 0;
}
EXPORTED int nvrtcGetCUBIN(Program* program, char* to) {
  std::memcpy(to, program->cubin.data(), program->cubin.size());
  return 0;
}
EXPORTED int nvrtcGetProgramLogSize(Program* program, std::size_t* bytes) {
  *bytes = program->log.size() + 1;
  return 0;
}
EXPORTED int nvrtcGetProgramLog(Program* program, char* to) {
  std::memcpy(to, program->log.c_str(), program->log.size() + 1);
  return 0;
}
EXPORTED const char* nvrtcGetErrorString(int code) { return code == 6 ? "FAKE_ERROR_COMPILATION" : "FAKE_ERROR"; }
