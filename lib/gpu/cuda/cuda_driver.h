// NVIDIA GPUs, by the CUDA driver's library. Thread-safe.
#pragma once

#include <memory>

#include "lib/gpu/cuda/cuda_calls.h"
#include "lib/gpu/cuda/cuda_pointers.h"
#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::gpu {

class CudaDriver final : public GpuDriver {
 public:
  // `library` as dlopen takes it.
  static Result<std::unique_ptr<GpuDriver>> Load(const std::string& library);

  std::string_view vendor() const override { return "nvidia"; }
  int version() const override { return version_; }
  const std::vector<DeviceInfo>& devices() const override { return pointers_.devices(); }
  std::vector<std::string> missing() const override { return calls_->missing(); }
  SharingRules sharing() const override { return {}; }

  Result<PointerInfo> Resolve(uint64_t address) const override {
    return pointers_.Resolve(address);
  }
  Result<uint64_t> BufferIdOf(DeviceAddress address) const override {
    return pointers_.BufferIdOf(address);
  }
  Result<IpcHandle> ExportIpc(DeviceAddress address) const override {
    return pointers_.ExportIpc(address);
  }
  Result<UniqueFd> ExportPiece(DeviceAddress address) const override {
    return pointers_.ExportPiece(address);
  }
  Result<std::unique_ptr<GpuHostCopies>> OpenHostCopies(int ordinal) const override {
    return pointers_.OpenHostCopies(ordinal);
  }
  Result<std::unique_ptr<GpuWorkloadDevice>> OpenWorkloadDevice(int ordinal) const override {
    return pointers_.OpenWorkloadDevice(ordinal);
  }
  Result<DmaBufExport> ExportDmaBuf(const AddressRange& range) const override {
    return pointers_.ExportDmaBuf(range);
  }
  bool ReachesPeer(int ordinal, int peer) const override;
  Result<std::unique_ptr<GpuContext>> OpenContext(int ordinal) override;

 private:
  explicit CudaDriver(cuda::Calls calls);

  const std::shared_ptr<const cuda::Calls> calls_;  // also of the contexts
  CudaPointers pointers_;
  int version_ = 0;
};

}  // namespace gantry::gpu
