// Copies between the host and an NVIDIA GPU that are done when they return. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "lib/base/mutex.h"
#include "lib/gpu/cuda/cuda_primary.h"
#include "lib/gpu/shared/gpu_pointers.h"

namespace gantry::gpu {

class CudaHostCopies final : public GpuHostCopies {
 public:
  explicit CudaHostCopies(std::shared_ptr<const CudaPrimary> primary)
      : primary_(std::move(primary)) {}
  CudaHostCopies(const CudaHostCopies&) = delete;
  CudaHostCopies& operator=(const CudaHostCopies&) = delete;
  ~CudaHostCopies() override;
  Status CopyFromHost(DeviceAddress to, const void* from, uint64_t bytes) override;
  Status CopyToHost(void* to, DeviceAddress from, uint64_t bytes) override;

 private:
  // A stream of our own, so that they wait for nothing of the workload's and nothing of the
  // workload's waits for them. Needs no memory of the host: bytes are restored without any, too.
  template <typename Copy>
  Status WithStream(const char* what, Copy copy) EXCLUDES(mutex_);

  const std::shared_ptr<const CudaPrimary> primary_;
  Mutex mutex_;
  cuda::Stream stream_ GUARDED_BY(mutex_) = nullptr;
};

}  // namespace gantry::gpu
