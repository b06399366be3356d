// Pieces of an AMD GPU's virtual memory, side by side at one reserved address: another process's or
// new ones. The mapping is immutable; thread-safe.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lib/gpu/hip/hip_device.h"
#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::gpu {

class HipPieces final : public GpuMemory {
 public:
  // As GpuContext's functions of these names.
  static Result<std::unique_ptr<GpuMemory>> Map(std::shared_ptr<const HipDevice> device,
                                                std::span<const PieceFd> pieces);
  static Result<std::unique_ptr<GpuMemory>> Allocate(std::shared_ptr<const HipDevice> device,
                                                     uint64_t bytes, uint64_t piece_bytes);
  HipPieces(const HipPieces&) = delete;
  HipPieces& operator=(const HipPieces&) = delete;
  ~HipPieces() override;

  AddressRange range() const override { return {AddressOf(base_), size_}; }

 private:
  explicit HipPieces(std::shared_ptr<const HipDevice> device) : device_(std::move(device)) {}

  Status Reserve(uint64_t bytes);
  // Takes the handle, behind the pieces that are mapped already.
  Status Append(hip::MemHandle piece, uint64_t bytes);
  // Readable and writable for these devices.
  Status Permit(std::span<const int> ordinals);
  // This device, and those whose kernels reach it.
  std::vector<int> DevicesWithin() const;
  hip::Result Unmap() const;
  char* at(uint64_t offset) const { return static_cast<char*>(base_) + offset; }

  const std::shared_ptr<const HipDevice> device_;
  void* base_ = nullptr;
  uint64_t size_ = 0;
  uint64_t mapped_ = 0;
  std::vector<uint64_t> sizes_;  // of what is mapped
};

}  // namespace gantry::gpu
