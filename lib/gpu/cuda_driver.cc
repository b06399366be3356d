#include "lib/gpu/cuda_driver.h"

#include <utility>

#include "lib/gpu/cuda_context.h"

namespace gantry::gpu {

Result<std::unique_ptr<GpuDriver>> CudaDriver::Load(const std::string& library) {
  ASSIGN_OR_RETURN(cuda::Calls calls, cuda::Calls::Load(library));
  std::unique_ptr<CudaDriver> driver(new CudaDriver(std::move(calls)));
  const cuda::Calls& bound = *driver->calls_;
  RETURN_IF_ERROR(bound.Check(bound->driver_get_version(&driver->version_), "cuDriverGetVersion"));
  RETURN_IF_ERROR(driver->pointers_.ReadDevices());
  return driver;
}

CudaDriver::CudaDriver(cuda::Calls calls)
    : calls_(std::make_shared<const cuda::Calls>(std::move(calls))), pointers_(calls_) {}

Result<UniqueFd> CudaDriver::ExportDmaBuf(const AddressRange& range) const {
  const cuda::Calls& calls = *calls_;
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kDmaBuf));
  ASSIGN_OR_RETURN(const cuda::PointerAttributes read,
                   cuda::AttributesOf(calls, NumberOf(range.base)));
  const auto device = static_cast<int>(read.device);
  if (read.memory_type != cuda::kMemoryTypeDevice || device < 0 ||
      device >= static_cast<int>(devices().size())) {
    return Fail(cuda::NotExportable(range.base, "is no memory of a GPU that this process sees",
                                    "register memory of the GPU"));
  }
  auto context = reinterpret_cast<cuda::Context>(read.context);
  std::shared_ptr<const CudaPrimary> primary;
  if (context == nullptr) {  // virtual and pool memory belong to none, and the call wants one
    ASSIGN_OR_RETURN(primary, CudaPrimary::Retain(calls_, devices()[static_cast<size_t>(device)]));
    context = primary->context();
  }
  const CudaCurrent current(calls, context);
  RETURN_IF_ERROR(current.status());
  int fd = -1;
  const cuda::Result result = calls->mem_get_handle_for_address_range(
      &fd, NumberOf(range.base), range.size, cuda::kRangeHandleTypeDmaBuf, 0);
  if (result == cuda::kInvalidValue || result == cuda::kNotSupported) {
    return Fail(cuda::NotExportable(
        range.base, "cannot be a dma-buf over " + std::to_string(range.size) + " bytes",
        "whole pages within one allocation of this process can be, where the "
        "GPU supports it"));
  }
  RETURN_IF_ERROR(calls.Check(
      result, "cuMemGetHandleForAddressRange of " + cuda::TextOf(NumberOf(range.base))));
  return UniqueFd(fd);
}

Result<std::unique_ptr<GpuContext>> CudaDriver::OpenContext(int ordinal) {
  ASSIGN_OR_RETURN(const DeviceInfo device, pointers_.DeviceAt(ordinal));
  return CudaContext::Open(calls_, device);
}

bool CudaDriver::ReachesPeer(int ordinal, int peer) const {
  const cuda::Calls& calls = *calls_;
  cuda::Device from = 0;
  cuda::Device to = 0;
  int can = 0;
  return calls.Require(cuda::Feature::kPeerAccess) &&
         calls->device_get(&from, ordinal) == cuda::kSuccess &&
         calls->device_get(&to, peer) == cuda::kSuccess &&
         (from == to ||
          (calls->device_can_access_peer(&can, from, to) == cuda::kSuccess && can != 0));
}

}  // namespace gantry::gpu
