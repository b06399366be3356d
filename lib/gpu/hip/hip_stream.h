// Streams and events of one AMD GPU. One thread at a time.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "lib/gpu/hip/hip_device.h"
#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::gpu {

class HipEvent final : public GpuEvent {
 public:
  static Result<std::unique_ptr<GpuEvent>> Create(std::shared_ptr<const HipDevice> device);
  ~HipEvent() override;
  Result<bool> IsReached() override;
  Status Wait() override;
  hip::Event event() const { return event_; }

 private:
  explicit HipEvent(std::shared_ptr<const HipDevice> device) : device_(std::move(device)) {}

  const std::shared_ptr<const HipDevice> device_;
  hip::Event event_ = nullptr;
};

class HipStream final : public GpuStream {
 public:
  static Result<std::unique_ptr<GpuStream>> Create(std::shared_ptr<const HipDevice> device);
  ~HipStream() override;
  Status Copy(DeviceAddress to, DeviceAddress from, uint64_t bytes) override;
  Status CopyBatch(std::span<const CopyItem> items) override;
  Status CopyRows(const RowCopy& rows) override;
  Status CopyByKernel(DeviceAddress items, uint32_t count, uint64_t longest) override;
  Status Fill(DeviceAddress to, uint8_t value, uint64_t bytes) override;
  Status Record(GpuEvent& event) override;
  Status Synchronize() override;

 private:
  explicit HipStream(std::shared_ptr<const HipDevice> device) : device_(std::move(device)) {}

  const std::shared_ptr<const HipDevice> device_;
  hip::Stream stream_ = nullptr;
  // What a batch is handed to the runtime in; kept, as batches follow each other.
  std::vector<void*> to_, from_;
  std::vector<size_t> bytes_;
};

}  // namespace gantry::gpu
