// Streams and events of one primary context. One thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "lib/gpu/cuda/cuda_context.h"

namespace gantry::gpu {

class CudaEvent final : public GpuEvent {
 public:
  static Result<std::unique_ptr<GpuEvent>> Create(std::shared_ptr<const CudaPrimary> primary);
  ~CudaEvent() override;
  Result<bool> IsReached() override;
  Status Wait() override;
  cuda::Event event() const { return event_; }

 private:
  explicit CudaEvent(std::shared_ptr<const CudaPrimary> primary) : primary_(std::move(primary)) {}

  const std::shared_ptr<const CudaPrimary> primary_;
  cuda::Event event_ = nullptr;
};

class CudaStream final : public GpuStream {
 public:
  static Result<std::unique_ptr<GpuStream>> Create(std::shared_ptr<const CudaPrimary> primary);
  ~CudaStream() override;
  Status Copy(DeviceAddress to, DeviceAddress from, uint64_t bytes) override;
  Status CopyBatch(std::span<const CopyItem> items) override;
  Status CopyRows(const RowCopy& rows) override;
  Status CopyByKernel(DeviceAddress items, uint32_t count, uint64_t longest) override;
  Status Fill(DeviceAddress to, uint8_t value, uint64_t bytes) override;
  Status Record(GpuEvent& event) override;
  Status Synchronize() override;

 private:
  explicit CudaStream(std::shared_ptr<const CudaPrimary> primary) : primary_(std::move(primary)) {}

  const std::shared_ptr<const CudaPrimary> primary_;
  cuda::Stream stream_ = nullptr;
  // What a batch is handed to the driver in; kept, as batches follow each other.
  std::vector<cuda::DevicePtr> to_, from_;
  std::vector<size_t> bytes_;
};

}  // namespace gantry::gpu
