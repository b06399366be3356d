// AMD GPUs, by the HIP runtime's library. Thread-safe.
#pragma once

#include <memory>

#include "lib/gpu/hip/hip_calls.h"
#include "lib/gpu/hip/hip_pointers.h"
#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::gpu {

class HipDriver final : public GpuDriver {
 public:
  // `library` as dlopen takes it.
  static Result<std::unique_ptr<GpuDriver>> Load(const std::string& library);

  std::string_view vendor() const override { return "amd"; }
  int version() const override { return calls_->version(); }
  const std::vector<DeviceInfo>& devices() const override { return pointers_.devices(); }
  std::vector<std::string> missing() const override { return calls_->missing(); }
  SharingRules sharing() const override { return {true, true}; }

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
  Result<DmaBufExport> ExportDmaBuf(const AddressRange& range) const override {
    return pointers_.ExportDmaBuf(range);
  }
  Result<std::unique_ptr<GpuHostCopies>> OpenHostCopies(int ordinal) const override {
    return pointers_.OpenHostCopies(ordinal);
  }
  Result<std::unique_ptr<GpuWorkloadDevice>> OpenWorkloadDevice(int ordinal) const override {
    return pointers_.OpenWorkloadDevice(ordinal);
  }
  bool ReachesPeer(int ordinal, int peer) const override;
  Result<std::unique_ptr<GpuContext>> OpenContext(int ordinal) override;

 private:
  explicit HipDriver(hip::Calls calls);

  const std::shared_ptr<const hip::Calls> calls_;  // also of the contexts
  HipPointers pointers_;
};

}  // namespace gantry::gpu
