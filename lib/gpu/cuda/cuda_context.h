// A GPU's primary context as this process uses it: the one that the workload's runtime has, too.
// Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "lib/gpu/cuda/cuda_host_copies.h"
#include "lib/gpu/cuda/cuda_primary.h"
#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::gpu {

class CudaContext final : public GpuContext {
 public:
  static Result<std::unique_ptr<GpuContext>> Open(std::shared_ptr<const cuda::Calls> calls,
                                                  const DeviceInfo& device);

  const DeviceInfo& device() const override { return primary_->info(); }
  Result<MemoryAmount> Memory() override;
  Result<std::unique_ptr<GpuMemory>> Allocate(uint64_t bytes) override;
  Result<std::unique_ptr<GpuMemory>> OpenIpc(const IpcHandle& handle) override;
  Result<std::unique_ptr<GpuMemory>> MapDmaBuf(const DmaBufPart& part) override;
  Result<std::unique_ptr<GpuMemory>> MapPieces(std::span<const PieceFd> pieces) override;
  Result<std::unique_ptr<GpuMemory>> AllocatePieces(uint64_t bytes, uint64_t piece_bytes) override;
  Result<std::unique_ptr<GpuMemory>> AllocateOn(int ordinal, uint64_t bytes) override;
  Result<std::unique_ptr<GpuHostMemory>> RegisterHost(void* data, uint64_t bytes) override;
  Status EnablePeerAccess(GpuContext& other) override;
  Status TrimForCopies() override;
  Status LoadKernels() override { return primary_->LoadKernels(); }
  Result<std::unique_ptr<GpuStream>> NewStream() override;
  Result<std::unique_ptr<GpuEvent>> NewEvent() override;
  Status CopyFromHost(DeviceAddress to, const void* from, uint64_t bytes) override {
    return host_copies_.CopyFromHost(to, from, bytes);
  }
  Status CopyToHost(void* to, DeviceAddress from, uint64_t bytes) override {
    return host_copies_.CopyToHost(to, from, bytes);
  }

 private:
  explicit CudaContext(std::shared_ptr<const CudaPrimary> primary)
      : primary_(primary), host_copies_(std::move(primary)) {}

  const std::shared_ptr<const CudaPrimary> primary_;
  CudaHostCopies host_copies_;
};

}  // namespace gantry::gpu
