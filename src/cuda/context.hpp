// Which context a call works in, and in which mode of capture: set for a scope, and put back.
// Must not know: kernels, memory.
#pragma once
#include <cstdint>

#include "cuda/driver.hpp"

namespace tessera::cuda {

// The caller's current context if it belongs to the device, else the device's primary one, current for this scope.
class Current {
 public:
  Current(const Driver& driver, int device);
  ~Current() {
    if (pushed_) driver_.api.context_pop(&context_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  const Driver& driver() const { return driver_; }
  int device() const { return device_; }
  // Tells this context from every other one, also from a later one at the same address (drivers before 12.0 cannot tell
  // those apart, nor can we there). What belongs to a context is kept by it.
  std::uint64_t id() const { return id_; }

 private:
  const Driver& driver_;
  CUcontext context_ = nullptr;
  std::uint64_t id_ = 0;
  int device_;
  bool pushed_ = false;
};

// Lets this thread allocate, load and wait while it, or another one, captures a graph in a strict mode: what the
// library does then is no part of the graph.
class OutsideCapture {
 public:
  explicit OutsideCapture(const Driver& driver) : driver_(driver) { driver_.api.capture_mode(&mode_); }
  ~OutsideCapture() { driver_.api.capture_mode(&mode_); }
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  const Driver& driver_;
  int mode_ = capture_mode_relaxed;
};

// Whether a stream is being captured, and into what.
struct Capture {
  bool active = false;
  std::uint64_t id = 0;  // of the sequence, unique in the process
  CUgraph graph = nullptr;
};
Capture capture_of(const Current& current, CUstream stream);

}  // namespace tessera::cuda
