// Memory of every origin, made as programs make it that know nothing of Gantry. Of NVIDIA's driver
// or of the fake, whichever library is found first. One thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "lib/base/dynamic_library.h"
#include "lib/gpu/cuda_abi.h"
#include "lib/gpu/gpu_driver.h"

namespace gantry::testing {

class CudaAllocations {
 public:
  // REQUIRES that the driver is loaded. Everything is made on the device of this context.
  static Result<std::unique_ptr<CudaAllocations>> On(gpu::GpuContext& context);
  ~CudaAllocations();
  CudaAllocations(const CudaAllocations&) = delete;
  CudaAllocations& operator=(const CudaAllocations&) = delete;

  static constexpr uint64_t kPieceBytes = 2 << 20;

  // kDevice, kPool, kManaged, kPinned.
  Result<gpu::AddressRange> Make(gpu::MemoryOrigin origin, uint64_t bytes);
  // Pieces of these lengths (multiples of kPieceBytes), side by side.
  Result<gpu::AddressRange> MakeVirtual(const std::vector<uint64_t>& pieces,
                                        bool exportable = true);
  // Replaces one piece of what MakeVirtual answered by new memory at the same address.
  Status MapAnew(const gpu::AddressRange& range, size_t piece);
  // What Make or MakeVirtual answered.
  Status Free(const gpu::AddressRange& range);

  // A graph of a stream of this program's own, captured as runtimes do: what does not belong to it
  // spoils it. EndCapture says whether something did.
  Status BeginCapture();
  Status EndCapture();

  // The context that is current for this thread.
  gpu::cuda::Context Current() const;
  Status PushCurrent() const;  // of the device
  void PopCurrent() const;

 private:
  struct Made {
    gpu::MemoryOrigin origin;
    gpu::AddressRange range;
    std::vector<uint64_t> pieces;
  };

  explicit CudaAllocations(DynamicLibrary library) : library_(std::move(library)) {}
  Status Bind(int ordinal);
  Status Release(const Made& made);
  // New memory at an address of a reservation.
  Status MapPiece(uint64_t address, uint64_t bytes, bool exportable);

  DynamicLibrary library_;
  gpu::cuda::Device device_ = 0;
  gpu::cuda::Context context_ = nullptr;
  std::vector<Made> made_;

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
