// One GPU as this process uses it, any vendor's, in the context that the workload's runtime has,
// too. Logs nothing, so that it can be used inside of a workload. `Api` holds what differs between
// vendors: CudaApi in cuda_primary.h, HipApi in hip_device.h. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/gpu/shared/copy_kernel_source.h"
#include "lib/gpu/shared/gpu_types.h"
#include "lib/gpu/shared/vendor_abi.h"

namespace gantry::gpu {

// An address as a vendor's functions take it: a number or a pointer.
template <typename Address>
Address NativeOf(DeviceAddress address) {
  if constexpr (std::is_pointer_v<Address>) {
    return reinterpret_cast<Address>(NumberOf(address));
  } else {
    return NumberOf(address);
  }
}
inline DeviceAddress AddressOf(const void* pointer) {
  return DeviceAddress{reinterpret_cast<uint64_t>(pointer)};
}
inline DeviceAddress AddressOf(unsigned long long number) { return DeviceAddress{number}; }

inline constexpr char kLeaveMemoryFree[] =
    "a process that uses a GPU takes some hundred MiB of its memory: leave them free, e.g. by a "
    "lower gpu_memory_utilization of the engine";

template <typename Api>
class VendorDevice {
 public:
  using Calls = typename Api::Calls;
  using Functions = typename Api::Functions;

  VendorDevice(const VendorDevice&) = delete;
  VendorDevice& operator=(const VendorDevice&) = delete;

  const Calls& calls() const { return *calls_; }
  const DeviceInfo& info() const { return info_; }
  // The thing that Api::Current makes current.
  typename Api::Place place() const { return place_; }

  Status LoadKernels() const EXCLUDES(kernels_mutex_) {
    RETURN_IF_ERROR(calls_->Require(Api::Feature::kKernels));
    const MutexLock lock(kernels_mutex_);
    if (copy_kernel_ != nullptr) return {};
    const typename Api::Current current(*calls_, place_);
    RETURN_IF_ERROR(current.status());
    if (kernels_ == nullptr) {
      RETURN_IF_ERROR(
          Api::LoadCopyKernel(static_cast<const typename Api::Device&>(*this), &kernels_));
    }
    return Check(&Functions::module_get_function,
                 (*calls_)->module_get_function(&copy_kernel_, kernels_, kCopyKernelName));
  }
  // Null before LoadKernels.
  abi::Function copy_kernel() const EXCLUDES(kernels_mutex_) {
    const MutexLock lock(kernels_mutex_);
    return copy_kernel_;
  }

  // Does something with the device current, and says what went wrong with `what`.
  template <typename Work>
  Status Run(const char* what, Work work) const {
    const typename Api::Current current(*calls_, place_);
    RETURN_IF_ERROR(current.status());
    const int result = work();
    return result == abi::kSuccess ? Status() : calls_->Check(result, what + OnThis());
  }
  // The same, where `work` is a call of this function.
  template <typename Function, typename Work>
  Status Run(Function Functions::*function, Work work) const {
    const typename Api::Current current(*calls_, place_);
    RETURN_IF_ERROR(current.status());
    return Check(function, work());
  }
  // Calls a function with the device current. Its error names the function.
  template <typename... Parameters>
  Status Call(int (*Functions::*function)(Parameters...),
              std::type_identity_t<Parameters>... arguments) const {
    const typename Api::Current current(*calls_, place_);
    RETURN_IF_ERROR(current.status());
    return Check(function, ((*calls_).functions().*function)(arguments...));
  }
  // Turns the result of a vendor's function into an error that names it and this device.
  template <typename Function>
  Status Check(Function Functions::*function, int result) const {
    return result == abi::kSuccess ? Status()
                                   : calls_->Check(result, calls_->NameOf(function) + OnThis());
  }

 protected:
  VendorDevice(std::shared_ptr<const Calls> calls, const DeviceInfo& info,
               typename Api::Place place)
      : calls_(std::move(calls)), info_(info), place_(place) {}
  ~VendorDevice() = default;

  // Before the device is let go.
  void UnloadKernels() EXCLUDES(kernels_mutex_) {
    const MutexLock lock(kernels_mutex_);
    if (kernels_ == nullptr) return;
    const typename Api::Current current(*calls_, place_);
    if (current.status()) (*calls_)->module_unload(kernels_);
  }

 private:
  std::string OnThis() const { return " on GPU " + info_.uuid; }

  const std::shared_ptr<const Calls> calls_;
  const DeviceInfo info_;
  const typename Api::Place place_;
  mutable Mutex kernels_mutex_;
  mutable abi::Module kernels_ GUARDED_BY(kernels_mutex_) = nullptr;
  mutable abi::Function copy_kernel_ GUARDED_BY(kernels_mutex_) = nullptr;
};

}  // namespace gantry::gpu
