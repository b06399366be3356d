// The fixture of host memory that a device reaches, as the workload's own code pins it. Used by one
// thread.
#pragma once

#include <memory>

#include "lib/gpu/shared/gpu_workload_device.h"
#include "tests/contracts/gpu_driver_contract.h"

namespace gantry::testing {

class GpuPinContract : public GpuDriverContract {
 protected:
  static constexpr uint64_t kPage = 4096;

  // A page of shared memory, pinned for the first device.
  void SetUp() override;
  void TearDown() override;

  uint64_t Counter(size_t index) const { return __atomic_load_n(page_ + index, __ATOMIC_ACQUIRE); }
  DeviceAddress PlaceOf(size_t index) const { return pinned_->range().base + index * 8; }

  uint64_t before_ = 0;  // what is current for a thread that has chosen nothing
  uint64_t* page_ = nullptr;
  std::unique_ptr<gpu::GpuWorkloadDevice> device_;
  std::unique_ptr<gpu::GpuPinnedMemory> pinned_;
};

}  // namespace gantry::testing
