// NVIDIA GPUs, by the CUDA driver's library. Thread-safe.
#pragma once

#include <memory>
#include <optional>

#include "lib/gpu/cuda_calls.h"
#include "lib/gpu/gpu_driver.h"

namespace gantry::gpu {

class CudaDriver final : public GpuDriver {
 public:
  // `library` as dlopen takes it: "libcuda.so.1".
  static Result<std::unique_ptr<GpuDriver>> Load(const std::string& library);

  std::string_view vendor() const override { return "nvidia"; }
  int version() const override { return version_; }
  const std::vector<DeviceInfo>& devices() const override { return devices_; }
  std::vector<std::string> missing() const override { return calls_->missing(); }

  Result<PointerInfo> Resolve(uint64_t address) const override;
  Result<IpcHandle> ExportIpc(DeviceAddress address) const override;
  Result<UniqueFd> ExportPiece(DeviceAddress address) const override;
  Result<UniqueFd> ExportDmaBuf(const AddressRange& range) const override;
  Result<std::unique_ptr<GpuContext>> OpenContext(int ordinal) override;

 private:
  explicit CudaDriver(cuda::Calls calls);
  Status ReadDevices();
  Result<DeviceInfo> ReadDevice(int ordinal) const;
  // Nothing when the memory around it is not virtual.
  Result<std::optional<cuda::MemHandle>> RetainPiece(DeviceAddress address) const;

  const std::shared_ptr<const cuda::Calls> calls_;  // also of the contexts
  int version_ = 0;
  std::vector<DeviceInfo> devices_;
};

}  // namespace gantry::gpu
