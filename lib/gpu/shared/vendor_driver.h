// The GPUs of one vendor, by its driver's library. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/gpu/shared/gpu_driver.h"
#include "lib/gpu/shared/vendor_pointers.h"

namespace gantry::gpu {

// `Context` is the vendor's GpuContext, `Pointers` its GpuPointers.
template <typename Api, typename Pointers, typename Context>
class VendorDriver final : public GpuDriver {
 public:
  using Calls = typename Api::Calls;

  // `library` as dlopen takes it.
  static Result<std::unique_ptr<GpuDriver>> Load(const std::string& library) {
    ASSIGN_OR_RETURN(Calls loaded, Calls::Load(library));
    std::unique_ptr<VendorDriver> driver(
        new VendorDriver(std::make_shared<const Calls>(std::move(loaded))));
    RETURN_IF_ERROR(driver->pointers_.ReadDevices());
    return driver;
  }

  std::string_view vendor() const override { return Api::kVendor; }
  int version() const override { return calls_->version(); }
  const std::vector<DeviceInfo>& devices() const override { return pointers_.devices(); }
  std::vector<std::string> missing() const override { return calls_->missing(); }
  SharingRules sharing() const override { return Api::kSharing; }

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

  bool ReachesPeer(int ordinal, int peer) const override {
    const Calls& calls = *calls_;
    int from = 0;
    int to = 0;
    int can = 0;
    return Api::DeviceOf(calls, ordinal, &from) == abi::kSuccess &&
           Api::DeviceOf(calls, peer, &to) == abi::kSuccess &&
           (from == to ||
            (calls.Require(Api::Feature::kPeerAccess) &&
             calls->device_can_access_peer(&can, from, to) == abi::kSuccess && can != 0));
  }
  Result<std::unique_ptr<GpuContext>> OpenContext(int ordinal) override {
    ASSIGN_OR_RETURN(const DeviceInfo device, DeviceAt(devices(), ordinal));
    return Context::Open(calls_, device);
  }

 private:
  explicit VendorDriver(std::shared_ptr<const Calls> calls) : calls_(calls), pointers_(calls) {}

  const std::shared_ptr<const Calls> calls_;  // also of the contexts
  Pointers pointers_;
};

}  // namespace gantry::gpu
