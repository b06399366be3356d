// Copies between the host and an AMD GPU that are done when they return. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "lib/base/mutex.h"
#include "lib/gpu/hip/hip_device.h"
#include "lib/gpu/shared/gpu_pointers.h"

namespace gantry::gpu {

class HipHostCopies final : public GpuHostCopies {
 public:
  explicit HipHostCopies(std::shared_ptr<const HipDevice> device) : device_(std::move(device)) {}
  HipHostCopies(const HipHostCopies&) = delete;
  HipHostCopies& operator=(const HipHostCopies&) = delete;
  ~HipHostCopies() override;
  Status CopyFromHost(DeviceAddress to, const void* from, uint64_t bytes) override;
  Status CopyToHost(void* to, DeviceAddress from, uint64_t bytes) override;

 private:
  // A stream of our own, so that they wait for nothing of the workload's and nothing of the
  // workload's waits for them.
  Status Copy(void* to, const void* from, uint64_t bytes) EXCLUDES(mutex_);

  const std::shared_ptr<const HipDevice> device_;
  Mutex mutex_;
  hip::Stream stream_ GUARDED_BY(mutex_) = nullptr;
};

}  // namespace gantry::gpu
