// Copies between the host and a GPU, any vendor's, that are done when they return. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "lib/base/mutex.h"
#include "lib/gpu/shared/gpu_pointers.h"
#include "lib/gpu/shared/vendor_device.h"

namespace gantry::gpu {

template <typename Api>
class VendorHostCopies final : public GpuHostCopies {
 public:
  using Device = typename Api::Device;

  explicit VendorHostCopies(std::shared_ptr<const Device> device) : device_(std::move(device)) {}
  VendorHostCopies(const VendorHostCopies&) = delete;
  VendorHostCopies& operator=(const VendorHostCopies&) = delete;
  ~VendorHostCopies() override {
    const MutexLock lock(mutex_);
    if (stream_ == nullptr) return;
    const typename Api::Current current(device_->calls(), device_->place());
    if (current.status()) device_->calls()->stream_destroy(stream_);
  }

  Status CopyFromHost(DeviceAddress to, const void* from, uint64_t bytes) override {
    return WithStream(Api::kCopyFromHost, [&](abi::Stream stream) {
      return Api::CopyFromHost(device_->calls(), to, from, bytes, stream);
    });
  }
  Status CopyToHost(void* to, DeviceAddress from, uint64_t bytes) override {
    return WithStream(Api::kCopyToHost, [&](abi::Stream stream) {
      return Api::CopyToHost(device_->calls(), to, from, bytes, stream);
    });
  }

 private:
  // A stream of our own, so that they wait for nothing of the workload's and nothing of the
  // workload's waits for them. CUDA needs no memory of the host for it: bytes are
  // restored without any, too.
  template <typename Copy>
  Status WithStream(const char* what, Copy copy) EXCLUDES(mutex_) {
    const auto& calls = device_->calls();
    const typename Api::Current current(calls, device_->place());
    RETURN_IF_ERROR(current.status());
    const MutexLock lock(mutex_);
    if (stream_ == nullptr) {
      RETURN_IF_ERROR(calls.Check(calls->stream_create(&stream_, abi::kStreamNonBlocking),
                                  calls.NameOf(&Api::Functions::stream_create)));
    }
    // From pageable memory bytes may be on their way only when the copy's call returns.
    const int copied = copy(stream_);
    const int done = calls->stream_synchronize(stream_);
    return calls.Check(copied == abi::kSuccess ? done : copied, what);
  }

  const std::shared_ptr<const Device> device_;
  Mutex mutex_;
  abi::Stream stream_ GUARDED_BY(mutex_) = nullptr;
};

}  // namespace gantry::gpu
