// As gpu_allocations.h says, of HIP.
#pragma once

#include <memory>
#include <vector>

#include "lib/base/dynamic_library.h"
#include "lib/gpu/hip/hip_abi.h"
#include "tests/contracts/gpu_allocations.h"

namespace gantry::testing {

class HipAllocations final : public GpuAllocations {
 public:
  static Result<std::unique_ptr<GpuAllocations>> On(int ordinal);
  // Of the version that is loaded.
  static Result<DynamicLibrary> OpenLibrary();
  ~HipAllocations() override;

  Status BeginCapture() override;
  Status EndCapture() override;
  uint64_t Current() const override;
  Status PushCurrent() const override;
  void PopCurrent() const override;

 private:
  HipAllocations(DynamicLibrary library, int device)
      : library_(std::move(library)), device_(device) {}
  Status Bind();
  Result<uint64_t> Allocate(gpu::MemoryOrigin origin, uint64_t bytes) override;
  Status Release(gpu::MemoryOrigin origin, uint64_t address) override;
  Result<uint64_t> Reserve(uint64_t bytes) override;
  Status Unreserve(uint64_t address, uint64_t bytes) override;
  Status MapPiece(uint64_t address, uint64_t bytes, bool exportable) override;
  Status Unmap(uint64_t address, uint64_t bytes) override;
  gpu::hip::Result Create(uint64_t bytes, bool exportable, gpu::hip::MemHandle* piece);

  DynamicLibrary library_;
  const gpu::hip::Device device_;
  int version_ = 0;
  mutable std::vector<int> before_;  // what was current before each push
  gpu::hip::Stream captured_ = nullptr;

  // As in hip_abi.h, and what tests alone call.
  gpu::hip::Functions call_ = {};
  gpu::hip::Result (*malloc_async_)(void**, size_t, gpu::hip::Stream);
  gpu::hip::Result (*malloc_managed_)(void**, size_t, unsigned);
  gpu::hip::Result (*host_malloc_)(void**, size_t, unsigned);
  gpu::hip::Result (*host_free_)(void*);
  gpu::hip::Result (*begin_capture_)(gpu::hip::Stream, int mode);
  gpu::hip::Result (*end_capture_)(gpu::hip::Stream, void** graph);
};

}  // namespace gantry::testing
