#include "lib/gpu/cuda/cuda_context.h"

#include <utility>

namespace gantry::gpu {

Result<std::unique_ptr<GpuContext>> CudaContext::Open(std::shared_ptr<const cuda::Calls> calls,
                                                      const DeviceInfo& device) {
  ASSIGN_OR_RETURN(auto primary, CudaPrimary::Open(std::move(calls), device));
  return std::unique_ptr<GpuContext>(new CudaContext(std::move(primary)));
}

const char* CudaApi::WhyNotOpened(int result) {
  return result == cuda::kInvalidContext
             ? "the process that exported this memory has the same PID number as this one, each "
               "in its own PID namespace, or it is this process: a process with another PID can "
               "open it"
             : "the memory was freed, its process has ended, or its GPU is out of reach from here";
}

Result<std::unique_ptr<GpuMemory>> CudaContext::MapDmaBuf(const DmaBufPart&) {
  return Fail(ErrorCode::kPathUnavailable, "the NVIDIA driver maps no dma-buf of another process",
              "share memory of cudaMalloc by its handle, and virtual memory by its pieces");
}

Result<std::unique_ptr<GpuMemory>> CudaContext::AllocateOn(int ordinal, uint64_t bytes) {
  RETURN_IF_ERROR(device_->calls().Require(cuda::Feature::kVirtualMemory));
  cuda::Device owner = 0;
  RETURN_IF_ERROR(device_->Call(&cuda::Functions::device_get, &owner, ordinal));
  return VendorPieces<CudaApi>::AllocateOn(device_, owner, bytes);
}

// A stack of 1 KiB for each thread that the multiprocessors can hold is 264 MiB of a device with
// 132 of them. The driver gives a kernel that has a stack one when it is launched.
Status CudaContext::TrimForCopies() {
  const cuda::Calls& calls = device_->calls();
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kContextLimits));
  return device_->Run("cuCtxSetLimit", [&] {
    for (const int limit : {cuda::kLimitPrintfFifoSize, cuda::kLimitMallocHeapSize}) {
      static_cast<void>(calls->ctx_set_limit(limit, 0));  // they are small, and have a least size
    }
    return calls->ctx_set_limit(cuda::kLimitStackSize, 0);
  });
}

}  // namespace gantry::gpu
