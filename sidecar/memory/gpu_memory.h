// A GPU allocation of another process, mapped in a copy worker and checked against its description.
// Immutable; thread-safe. Ends with its worker at the latest.
#pragma once

#include <cstdint>
#include <memory>

#include "lib/codec/buffer_types.h"
#include "lib/gpu/shared/gpu_driver.h"
#include "sidecar/memory/gpu_devices.h"

namespace gantry::memory {

class GpuMapping {
 public:
  // The caller keeps `fd`. kFdTooShort when the driver reports another size.
  static Result<GpuMapping> Create(GpuDevices& devices, const wire::GpuFacts& facts, int fd,
                                   uint64_t size);

  gpu::DeviceAddress base() const { return memory_->range().base; }
  uint64_t size() const { return memory_->range().size; }
  const std::shared_ptr<gpu::GpuContext>& context() const { return context_; }
  // The context of the worker's own GPU, whose copies use the mapping.
  const std::shared_ptr<gpu::GpuContext>& home() const { return home_; }
  // True when the worker's kernels may access it.
  bool is_reached() const { return context_ == home_; }

 private:
  GpuMapping(std::shared_ptr<gpu::GpuContext> context, std::shared_ptr<gpu::GpuContext> home,
             std::unique_ptr<gpu::GpuMemory> memory)
      : context_(std::move(context)), home_(std::move(home)), memory_(std::move(memory)) {}

  std::shared_ptr<gpu::GpuContext> context_;
  std::shared_ptr<gpu::GpuContext> home_;
  std::unique_ptr<gpu::GpuMemory> memory_;
};

}  // namespace gantry::memory
