// Addresses of one vendor's GPUs: what is the same for every vendor. Immutable after ReadDevices;
// thread-safe.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/gpu/shared/gpu_pointers.h"
#include "lib/gpu/shared/vendor_host_copies.h"

namespace gantry::gpu {

std::string HexOf(uint64_t number);
std::string TextOf(DeviceAddress address);  // "0x7f00"
Error NotExportable(DeviceAddress address, const std::string& why, const std::string& hint);
// The device of this number; an error when this process does not see it.
Result<DeviceInfo> DeviceAt(const std::vector<DeviceInfo>& devices, int ordinal);

template <typename Api, typename WorkloadDevice>
class VendorPointers : public GpuPointers {
 public:
  using Calls = typename Api::Calls;
  using Functions = typename Api::Functions;

  explicit VendorPointers(std::shared_ptr<const Calls> calls) : calls_(std::move(calls)) {}

  const std::vector<DeviceInfo>& devices() const override { return devices_; }
  Result<std::unique_ptr<GpuHostCopies>> OpenHostCopies(int ordinal) const override {
    ASSIGN_OR_RETURN(auto device, Open(ordinal));
    return std::make_unique<VendorHostCopies<Api>>(std::move(device));
  }
  Result<std::unique_ptr<GpuWorkloadDevice>> OpenWorkloadDevice(int ordinal) const override {
    ASSIGN_OR_RETURN(auto device, Open(ordinal));
    return std::make_unique<WorkloadDevice>(std::move(device));
  }

 protected:
  Result<std::shared_ptr<const typename Api::Device>> Open(int ordinal) const {
    ASSIGN_OR_RETURN(const DeviceInfo info, DeviceAt(devices_, ordinal));
    return Api::Device::Open(calls_, info);
  }

  // The descriptor of a piece of virtual memory, which is released.
  Result<UniqueFd> ExportRetained(DeviceAddress address, typename Api::MemHandle piece) const {
    const Calls& calls = *calls_;
    int fd = -1;
    const int result =
        calls->mem_export_to_shareable_handle(&fd, piece, abi::kHandleTypePosixFd, 0);
    calls->mem_release(piece);
    if (result == abi::kInvalidValue || result == abi::kNotSupported) {
      return Fail(NotExportable(
          address, "is virtual memory that was made without descriptors for other processes",
          "its maker must ask for handles of the type POSIX file descriptor"));
    }
    RETURN_IF_ERROR(CheckAt(address, &Functions::mem_export_to_shareable_handle, result));
    return UniqueFd(fd);
  }

  // Turns the result of a vendor's function into an error that names it and the address.
  template <typename Function>
  Status CheckAt(DeviceAddress address, Function Functions::*function, int result) const {
    if (result == abi::kSuccess) return {};
    return calls_->Check(result, std::string(calls_->NameOf(function)) + " of " + TextOf(address));
  }

  const std::shared_ptr<const Calls> calls_;
  std::vector<DeviceInfo> devices_;
};

// `library` as dlopen takes it.
template <typename Pointers>
Result<std::unique_ptr<GpuPointers>> LoadPointers(const std::string& library) {
  using Calls = typename Pointers::Calls;
  ASSIGN_OR_RETURN(Calls calls, Calls::Load(library));
  auto pointers = std::make_unique<Pointers>(std::make_shared<const Calls>(std::move(calls)));
  RETURN_IF_ERROR(pointers->ReadDevices());
  return pointers;
}

}  // namespace gantry::gpu
