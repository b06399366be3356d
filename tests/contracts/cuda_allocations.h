// As gpu_allocations.h says, of CUDA.
#pragma once

#include <memory>

#include "lib/base/dynamic_library.h"
#include "lib/gpu/cuda/cuda_abi.h"
#include "tests/contracts/gpu_allocations.h"

namespace gantry::testing {

// The result of a call of the driver.
Status CheckCuda(gpu::cuda::Result result, const char* what);

class CudaAllocations final : public GpuAllocations {
 public:
  static Result<std::unique_ptr<GpuAllocations>> On(int ordinal);
  ~CudaAllocations() override;

  Status BeginCapture() override;
  Status EndCapture() override;
  uint64_t Current() const override;
  Status PushCurrent() const override;
  void PopCurrent() const override;

 private:
  explicit CudaAllocations(DynamicLibrary library) : library_(std::move(library)) {}
  Status Bind(int ordinal);
  Result<uint64_t> Allocate(gpu::MemoryOrigin origin, uint64_t bytes) override;
  Status Release(gpu::MemoryOrigin origin, uint64_t address) override;
  Result<uint64_t> Reserve(uint64_t bytes) override;
  Status Unreserve(uint64_t address, uint64_t bytes) override;
  Status MapPiece(uint64_t address, uint64_t bytes, bool exportable) override;
  Status Unmap(uint64_t address, uint64_t bytes) override;

  DynamicLibrary library_;
  gpu::cuda::Device device_ = 0;
  gpu::cuda::Context context_ = nullptr;

  gpu::cuda::Result (*device_get_)(gpu::cuda::Device*, int);
  gpu::cuda::Result (*retain_)(gpu::cuda::Context*, gpu::cuda::Device);
  gpu::cuda::Result (*release_)(gpu::cuda::Device);
  gpu::cuda::Result (*push_)(gpu::cuda::Context);
  gpu::cuda::Result (*pop_)(gpu::cuda::Context*);
  gpu::cuda::Result (*current_)(gpu::cuda::Context*);
  gpu::cuda::Stream captured_ = nullptr;
  gpu::cuda::Result (*stream_create_)(gpu::cuda::Stream*, unsigned);
  gpu::cuda::Result (*stream_destroy_)(gpu::cuda::Stream);
  gpu::cuda::Result (*begin_capture_)(gpu::cuda::Stream, int mode);
  gpu::cuda::Result (*end_capture_)(gpu::cuda::Stream, void** graph);
  gpu::cuda::Result (*alloc_)(gpu::cuda::DevicePtr*, size_t);
  gpu::cuda::Result (*free_)(gpu::cuda::DevicePtr);
  gpu::cuda::Result (*alloc_async_)(gpu::cuda::DevicePtr*, size_t, gpu::cuda::Stream);
  gpu::cuda::Result (*alloc_managed_)(gpu::cuda::DevicePtr*, size_t, unsigned);
  gpu::cuda::Result (*host_alloc_)(void**, size_t, unsigned);
  gpu::cuda::Result (*host_free_)(void*);
  gpu::cuda::Result (*create_)(gpu::cuda::MemHandle*, size_t, const gpu::cuda::MemAllocationProp*,
                               unsigned long long);
  gpu::cuda::Result (*release_piece_)(gpu::cuda::MemHandle);
  gpu::cuda::Result (*reserve_)(gpu::cuda::DevicePtr*, size_t, size_t, gpu::cuda::DevicePtr,
                                unsigned long long);
  gpu::cuda::Result (*unreserve_)(gpu::cuda::DevicePtr, size_t);
  gpu::cuda::Result (*map_)(gpu::cuda::DevicePtr, size_t, size_t, gpu::cuda::MemHandle,
                            unsigned long long);
  gpu::cuda::Result (*unmap_)(gpu::cuda::DevicePtr, size_t);
  gpu::cuda::Result (*set_access_)(gpu::cuda::DevicePtr, size_t, const gpu::cuda::MemAccessDesc*,
                                   size_t);
};

}  // namespace gantry::testing
