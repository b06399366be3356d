// An AMD GPU as this process uses it for copies. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "lib/gpu/hip/hip_device.h"
#include "lib/gpu/shared/vendor_context.h"

namespace gantry::gpu {

class HipContext final : public VendorContext<HipApi> {
 public:
  // May follow addresses of every device that it reaches from then on: access that begins with the
  // first copy comes too late for kernels.
  static Result<std::unique_ptr<GpuContext>> Open(std::shared_ptr<const hip::Calls> calls,
                                                  const DeviceInfo& info);

  // These three attach: one at a time.
  Result<std::unique_ptr<GpuMemory>> OpenIpc(const IpcHandle& handle) override;
  Result<std::unique_ptr<GpuMemory>> MapDmaBuf(const DmaBufPart& part) override;
  Result<std::unique_ptr<GpuMemory>> MapPieces(std::span<const PieceFd> pieces) override;

  Result<std::unique_ptr<GpuMemory>> AllocateOn(int ordinal, uint64_t bytes) override;
  Status TrimForCopies() override { return {}; }  // a kernel gets its stacks when it is launched

 private:
  explicit HipContext(std::shared_ptr<const HipDevice> device) : VendorContext(std::move(device)) {}
};

}  // namespace gantry::gpu
