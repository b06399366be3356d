// One AMD GPU as this process uses it, in the context that the workload's runtime has, too. Logs
// nothing, so that it can be used inside of a workload. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "lib/base/mutex.h"
#include "lib/gpu/hip/hip_calls.h"
#include "lib/gpu/shared/gpu_types.h"

namespace gantry::gpu {

// Makes a device current for a scope; the caller's own is current again afterwards. Meanwhile no
// call of this thread disturbs a graph that the workload captures: it is none of the graph's.
class HipCurrent {
 public:
  HipCurrent(const hip::Calls& calls, int ordinal);
  HipCurrent(const HipCurrent&) = delete;
  HipCurrent& operator=(const HipCurrent&) = delete;
  ~HipCurrent();
  hip::Result result() const { return result_; }
  Status status() const { return calls_.Check(result_, "hipSetDevice"); }

 private:
  const hip::Calls& calls_;
  const hip::LastErrorKept kept_;
  const int ordinal_;
  int before_ = 0;
  hip::Result result_ = hip::kSuccess;
  int capture_mode_ = hip::kCaptureModeRelaxed;  // then the thread's own
};

class HipDevice {
 public:
  static Result<std::shared_ptr<const HipDevice>> Open(std::shared_ptr<const hip::Calls> calls,
                                                       const DeviceInfo& info);
  HipDevice(const HipDevice&) = delete;
  HipDevice& operator=(const HipDevice&) = delete;
  ~HipDevice();

  const hip::Calls& calls() const { return *calls_; }
  const DeviceInfo& info() const { return info_; }
  int ordinal() const { return info_.ordinal; }
  unsigned warp_threads() const { return warp_threads_; }

  Status LoadKernels() const EXCLUDES(kernels_mutex_);
  // Null before LoadKernels.
  hip::Function copy_kernel() const EXCLUDES(kernels_mutex_);

  // Calls a function with the device current, and says what went wrong with `what`.
  template <typename Call>
  Status Run(const char* what, Call call) const {
    const HipCurrent current(*calls_, info_.ordinal);
    RETURN_IF_ERROR(current.status());
    const hip::Result result = call();
    return result == hip::kSuccess ? Status()
                                   : calls_->Check(result, what + (" on GPU " + info_.uuid));
  }

 private:
  HipDevice(std::shared_ptr<const hip::Calls> calls, const DeviceInfo& info)
      : calls_(std::move(calls)), info_(info) {}

  const std::shared_ptr<const hip::Calls> calls_;
  const DeviceInfo info_;
  unsigned warp_threads_ = 0;  // constant after Open
  mutable Mutex kernels_mutex_;
  mutable hip::Module kernels_ GUARDED_BY(kernels_mutex_) = nullptr;
  mutable hip::Function copy_kernel_ GUARDED_BY(kernels_mutex_) = nullptr;
};

// Addresses of the device as HIP takes them.
inline void* PointerOf(DeviceAddress address) { return reinterpret_cast<void*>(NumberOf(address)); }
inline DeviceAddress AddressOf(const void* pointer) {
  return DeviceAddress{reinterpret_cast<uint64_t>(pointer)};
}

}  // namespace gantry::gpu
