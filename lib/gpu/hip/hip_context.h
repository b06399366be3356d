// An AMD GPU as this process uses it for copies. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "lib/gpu/hip/hip_device.h"
#include "lib/gpu/hip/hip_host_copies.h"
#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::gpu {

class HipContext final : public GpuContext {
 public:
  // May follow addresses of every device that it reaches from then on: access that begins with the
  // first copy comes too late for kernels.
  static Result<std::unique_ptr<GpuContext>> Open(std::shared_ptr<const hip::Calls> calls,
                                                  const DeviceInfo& info);

  const DeviceInfo& device() const override { return device_->info(); }
  Result<MemoryAmount> Memory() override;
  Result<std::unique_ptr<GpuMemory>> Allocate(uint64_t bytes) override;
  Result<std::unique_ptr<GpuMemory>> OpenIpc(const IpcHandle& handle) override;
  Result<std::unique_ptr<GpuMemory>> MapDmaBuf(const DmaBufPart& part) override;
  Result<std::unique_ptr<GpuMemory>> MapPieces(std::span<const PieceFd> pieces) override;
  Result<std::unique_ptr<GpuMemory>> AllocatePieces(uint64_t bytes, uint64_t piece_bytes) override;
  Result<std::unique_ptr<GpuMemory>> AllocateOn(int ordinal, uint64_t bytes) override;
  Result<std::unique_ptr<GpuHostMemory>> RegisterHost(void* data, uint64_t bytes) override;
  Status EnablePeerAccess(GpuContext& other) override;
  Status TrimForCopies() override { return {}; }  // a kernel gets its stacks when it is launched
  Status LoadKernels() override { return device_->LoadKernels(); }
  Result<std::unique_ptr<GpuStream>> NewStream() override;
  Result<std::unique_ptr<GpuEvent>> NewEvent() override;
  Status CopyFromHost(DeviceAddress to, const void* from, uint64_t bytes) override {
    return host_copies_.CopyFromHost(to, from, bytes);
  }
  Status CopyToHost(void* to, DeviceAddress from, uint64_t bytes) override {
    return host_copies_.CopyToHost(to, from, bytes);
  }

 private:
  explicit HipContext(std::shared_ptr<const HipDevice> device)
      : device_(device), host_copies_(std::move(device)) {}
  Status EnableAccessTo(int peer);

  const std::shared_ptr<const HipDevice> device_;
  HipHostCopies host_copies_;
};

}  // namespace gantry::gpu
