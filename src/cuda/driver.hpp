// The CUDA driver: opened at run time, its devices, and its refusals in words.
// Must not know: kernels' texts, compilers, caches.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/driver_api.hpp"
#include "gpu/engine.hpp"

namespace tessera::cuda {

inline constexpr const char* driver_name = "libcuda.so.1";
inline constexpr int oldest_driver = 11040;  // 11.4, as the driver counts

std::string version_text(int version);  // 12040: "12.4"

// Whether and how it could be opened never changes afterwards. Thread-safe.
class Driver {
 public:
  // `path`: what to open instead of libcuda.so.1; empty: that.
  explicit Driver(const std::string& path);

  // Empty: there is at least one device. Else what is missing, what was tried, and what would help.
  const std::string& missing() const { return missing_; }
  const std::string& path() const { return path_; }  // of what was opened, or was to be
  int version() const { return version_; }           // 12040; 0: there is none
  int devices() const { return static_cast<int>(devices_.size()); }
  const gpu::Caps& caps(int device) const { return at(device).caps; }
  CUdevice handle(int device) const { return at(device).handle; }
  bool has_pools(int device) const { return at(device).pools; }
  // The device's primary context, retained once and for good. `lost`: what an earlier call returned and has turned out
  // to be destroyed (by a reset of the device): retained again.
  CUcontext primary(int device, CUcontext lost = nullptr) const;

  // Throws when the driver refused: `what` it was asked for, its own name and words for why, and what helps.
  void check(CUresult code, const char* what, int device) const {
    if (code != cuda_success) [[unlikely]]
      refuse(code, what, device);
  }
  [[noreturn]] void refuse(CUresult code, const std::string& what, int device) const;
  std::string words(CUresult code) const;  // "CUDA_ERROR_INVALID_HANDLE (400), invalid resource handle"

  DriverApi api;

 private:
  struct Device {
    CUdevice handle = 0;
    gpu::Caps caps;
    bool pools = false;
    mutable std::atomic<CUcontext> primary{nullptr};
  };
  const Device& at(int device) const;
  std::string opened(const std::string& path);
  std::string found_devices();

  std::string missing_, path_;
  int version_ = 0;
  int process_ = 0;  // that opened it: CUDA does not survive fork()
  std::vector<std::unique_ptr<Device>> devices_;
  mutable std::mutex retaining_;
};

}  // namespace tessera::cuda
