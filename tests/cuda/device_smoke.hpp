// What the parts of the smoke test on a real device share: the engine, the driver's functions that the library itself
// has no use for, a kernel, and how a finding is printed.
#pragma once
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "cuda/engine.hpp"
#include "cuda/library.hpp"

namespace tessera::cuda::smoke {

// The driver's, by its published names.
struct MoreDriver {
  explicit MoreDriver(const Library& library);
  CUresult (*context_create)(CUcontext*, unsigned flags, CUdevice) = nullptr;
  CUresult (*context_destroy)(CUcontext) = nullptr;
  CUresult (*stream_destroy)(CUstream) = nullptr;
  CUresult (*capture_begin)(CUstream, int mode) = nullptr;
  CUresult (*capture_end)(CUstream, CUgraph*) = nullptr;
  CUresult (*graph_instantiate)(void** exec, CUgraph, unsigned long long flags) = nullptr;
  CUresult (*graph_launch)(void* exec, CUstream) = nullptr;
  CUresult (*graph_destroy)(CUgraph) = nullptr;
  CUresult (*exec_destroy)(void* exec) = nullptr;
  CUresult (*managed_allocate)(CUdeviceptr*, std::size_t, unsigned flags) = nullptr;
};

// y[i] = x[i] + add, `spin` clocks after the start of each block.
struct Params {
  const int* x;
  int* y;
  int n, add;
  long long spin;
};
gpu::KernelText adding_kernel(const std::string& more = "");

struct Smoke {
  Smoke(CudaEngine& e, const MoreDriver& m) : engine(e), more(m), api(e.driver().api) {}
  CudaEngine& engine;
  const MoreDriver& more;
  const DriverApi& api;
  int failed = 0, passed = 0;

  void expect(bool good, const std::string& what) {
    std::printf("%s  %s\n", good ? "ok  " : "FAIL", what.c_str());
    (good ? passed : failed) += 1;
  }
  // A part that throws has failed, and the others go on.
  void part(const char* name, const std::function<void()>& body);
  void call(CUresult code, const char* what);  // of the driver; throws
  CUstream stream();                           // a new one, in the current context
  void add(CUstream s, const void* x, void* y, int n, int amount, long long spin = 0);
  std::vector<int> read(CUstream s, const void* from, int n);
  // Whether n numbers are all `value`.
  bool all(CUstream s, const void* from, int n, int value);
};

double median(std::vector<double> values);
template <class F>
double seconds(F call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void check_contexts(Smoke& s);
void check_streams(Smoke& s);
void check_uploads(Smoke& s);
void check_graphs(Smoke& s);
void check_places(Smoke& s);
void check_kernels(Smoke& s);  // cold, from disk, from a pack
void check_overhead(Smoke& s);

}  // namespace tessera::cuda::smoke
