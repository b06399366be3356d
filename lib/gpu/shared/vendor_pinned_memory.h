// Host memory that the devices of a workload's process reach, any vendor's. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "lib/base/mutex.h"
#include "lib/gpu/shared/gpu_workload_device.h"
#include "lib/gpu/shared/vendor_device.h"

namespace gantry::gpu {

inline constexpr char kSynchronise[] =
    "synchronise the stream instead, and then submit the transfer without a fence or signal from "
    "the host";

template <typename Api>
class VendorPinnedMemory final : public GpuPinnedMemory {
 public:
  using Device = typename Api::Device;
  using Functions = typename Api::Functions;

  VendorPinnedMemory(std::shared_ptr<const Device> device, void* data, uint64_t bytes)
      : device_(std::move(device)), data_(data), bytes_(bytes) {}
  VendorPinnedMemory(const VendorPinnedMemory&) = delete;
  VendorPinnedMemory& operator=(const VendorPinnedMemory&) = delete;
  ~VendorPinnedMemory() override {
    MutexLock lock(mutex_);
    static_cast<void>(Release());
  }

  // Once, before anything else.
  Status Register() {
    const auto& calls = device_->calls();
    int result = abi::kSuccess;
    Status registered = device_->Run(&Functions::mem_host_register, [&] {
      return result = calls->mem_host_register(
                 data_, bytes_, abi::kHostRegisterPortable | abi::kHostRegisterMapped);
    });
    if (!registered && result == abi::kNotSupported) {
      registered.error().code = ErrorCode::kPathUnavailable;
      registered.error().hint =
          "memory of the host cannot be pinned here: use it without; where a fence was to be "
          "signalled, " +
          std::string(kSynchronise);
    }
    if (!registered && result == abi::kHostMemoryAlreadyRegistered) {
      registered.error().code = ErrorCode::kConflict;
      registered.error().hint =
          "this process has pinned the memory already: one of the two is enough";
    }
    RETURN_IF_ERROR(std::move(registered));
    MutexLock lock(mutex_);
    pinned_ = true;
    // Not the host's own address: that is another one wherever the device translates.
    typename Api::Address address = {};
    RETURN_IF_ERROR(device_->Call(&Functions::mem_host_get_device_pointer, &address, data_, 0));
    if (address == typename Api::Address{}) {
      return Fail(ErrorCode::kDeviceError, "the " + std::string(Api::kLibraryIs) +
                                               " has pinned memory without an address for GPU " +
                                               device_->info().uuid);
    }
    on_device_ = {AddressOf(address), bytes_};
    return {};
  }

  AddressRange range() const override { return on_device_; }

  Status Unpin() override {
    MutexLock lock(mutex_);
    const int result = Release();
    if (result == abi::kSuccess) return {};
    Status failed = device_->Check(&Functions::mem_host_unregister, result);
    failed.error().hint =
        "the memory is still pinned: keep it mapped, and unpin it again when the GPU is at rest";
    return failed;
  }

  bool UnpinQuietly() noexcept override {
    MutexLock lock(mutex_);
    return Release() == abi::kSuccess;
  }

  void Abandon() noexcept override {
    MutexLock lock(mutex_);
    pinned_ = false;
  }

  bool IsGone() const noexcept override { return device_->WasReset(); }

 private:
  int Release() REQUIRES(mutex_) {
    if (!pinned_) return abi::kSuccess;
    if (device_->WasReset()) {  // a pin of the same memory would be somebody else's
      pinned_ = false;
      return abi::kSuccess;
    }
    const typename Api::Current current(device_->calls(), device_->place());
    int result = current.result();
    if (result == abi::kSuccess) result = device_->calls()->mem_host_unregister(data_);
    // It went with its context, or with the driver at the end of the process.
    const bool gone = result == abi::kContextIsDestroyed || result == abi::kInvalidContext ||
                      result == abi::kDeinitialized || result == abi::kHostMemoryNotRegistered;
    pinned_ = result != abi::kSuccess && !gone;
    return pinned_ ? result : abi::kSuccess;
  }

  const std::shared_ptr<const Device> device_;
  void* const data_;
  const uint64_t bytes_;
  AddressRange on_device_;  // constant after Register
  Mutex mutex_;
  bool pinned_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::gpu
