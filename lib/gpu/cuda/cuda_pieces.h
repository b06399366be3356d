// Pieces of an NVIDIA GPU's virtual memory, side by side at one reserved address: another process's
// or new ones. The mapping is immutable; thread-safe.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lib/gpu/cuda/cuda_primary.h"
#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::gpu {

class CudaPieces final : public GpuMemory {
 public:
  // As GpuContext's functions of these names.
  static Result<std::unique_ptr<GpuMemory>> Map(std::shared_ptr<const CudaPrimary> primary,
                                                std::span<const PieceFd> pieces);
  static Result<std::unique_ptr<GpuMemory>> Allocate(std::shared_ptr<const CudaPrimary> primary,
                                                     uint64_t bytes, uint64_t piece_bytes);
  static Result<std::unique_ptr<GpuMemory>> AllocateOn(std::shared_ptr<const CudaPrimary> primary,
                                                       int ordinal, uint64_t bytes);
  CudaPieces(const CudaPieces&) = delete;
  CudaPieces& operator=(const CudaPieces&) = delete;
  ~CudaPieces() override;

  AddressRange range() const override { return {DeviceAddress{base_}, size_}; }

 private:
  explicit CudaPieces(std::shared_ptr<const CudaPrimary> primary) : primary_(std::move(primary)) {}

  Status Reserve(uint64_t bytes);
  // A new piece of the device, behind the pieces that are mapped already.
  Status Make(cuda::Device device, uint64_t bytes);
  // Takes the handle, behind the pieces that are mapped already.
  Status Append(cuda::MemHandle piece, uint64_t bytes);
  // Readable and writable for these devices.
  Status Permit(std::span<const cuda::Device> devices);
  // This device, and those whose kernels reach it.
  std::vector<cuda::Device> DevicesWithin() const;
  cuda::Result Unmap() const;

  const std::shared_ptr<const CudaPrimary> primary_;
  cuda::DevicePtr base_ = 0;
  uint64_t size_ = 0;
  uint64_t mapped_ = 0;
  std::vector<uint64_t> sizes_;  // of what is mapped
};

}  // namespace gantry::gpu
