#include "cuda/context.hpp"

namespace tessera::cuda {

Current::Current(const Driver& driver, int device) : driver_(driver), device_(device) {
  const CUdevice wanted = driver.handle(device);
  driver.check(driver.api.context_current(&context_), "cuCtxGetCurrent", device);
  CUdevice have = -1;
  const bool fits = context_ && driver.api.context_device(&have) == cuda_success && have == wanted;
  if (!fits) {
    context_ = driver.primary(device);
    CUresult code = driver.api.context_push(context_);
    if (code == cuda_context_is_destroyed || code == cuda_invalid_context) {
      context_ = driver.primary(device, context_);
      code = driver.api.context_push(context_);
    }
    driver.check(code, "cuCtxPushCurrent", device);
    pushed_ = true;
  }
  unsigned long long id = 0;
  if (driver.api.context_id && driver.api.context_id(context_, &id) == cuda_success) id_ = id;
  else id_ = reinterpret_cast<std::uintptr_t>(context_);
}

Capture capture_of(const Current& current, CUstream stream) {
  Capture capture;
  int status = capture_none;
  current.driver().check(
      current.driver().api.capture_info(stream, &status, &capture.id, &capture.graph, nullptr, nullptr),
      "cuStreamGetCaptureInfo", current.device());
  capture.active = status == capture_active;
  return capture;
}

}  // namespace tessera::cuda
