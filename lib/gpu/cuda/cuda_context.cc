#include "lib/gpu/cuda/cuda_context.h"

#include <cstring>
#include <utility>

#include "lib/gpu/cuda/cuda_pieces.h"
#include "lib/gpu/cuda/cuda_stream.h"
#include "lib/gpu/shared/owned_memory.h"

namespace gantry::gpu {
Result<std::unique_ptr<GpuContext>> CudaContext::Open(std::shared_ptr<const cuda::Calls> calls,
                                                      const DeviceInfo& device) {
  ASSIGN_OR_RETURN(auto primary, CudaPrimary::Retain(std::move(calls), device));
  return std::unique_ptr<GpuContext>(new CudaContext(std::move(primary)));
}

Result<MemoryAmount> CudaContext::Memory() {
  size_t free = 0;
  size_t total = 0;
  RETURN_IF_ERROR(primary_->Run("cuMemGetInfo",
                                [&] { return primary_->calls()->mem_get_info(&free, &total); }));
  return MemoryAmount{free, total};
}

Result<std::unique_ptr<GpuMemory>> CudaContext::Allocate(uint64_t bytes) {
  cuda::DevicePtr base = 0;
  RETURN_IF_ERROR(primary_->Run("allocating GPU memory",
                                [&] { return primary_->calls()->mem_alloc(&base, bytes); }));
  return std::make_unique<OwnedMemory>(
      AddressRange{DeviceAddress{base}, bytes}, kStaysOnGpu, [primary = primary_, base] {
        return primary->Run("releasing memory", [&] { return primary->calls()->mem_free(base); });
      });
}

Result<std::unique_ptr<GpuMemory>> CudaContext::OpenIpc(const IpcHandle& handle) {
  const cuda::Calls& calls = primary_->calls();
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kIpc));
  cuda::IpcMemHandle given = {};
  std::memcpy(&given, handle.bytes.data(), sizeof(given));
  cuda::DevicePtr opened_at = 0;
  cuda::Result result = cuda::kSuccess;
  auto opened = primary_->Run("cuIpcOpenMemHandle", [&] {
    return result = calls->ipc_open_mem_handle(&opened_at, given, cuda::kIpcLazyEnablePeerAccess);
  });
  if (!opened && result == cuda::kInvalidContext) {
    opened.error().hint =
        "the process that exported this memory has the same PID number as this one, each in its "
        "own PID "
        "namespace, or it is this process: a process with another PID can open it";
  } else if (!opened) {
    opened.error().hint =
        "the memory was freed, its process has ended, or its GPU is out of reach from here";
  }
  RETURN_IF_ERROR(std::move(opened));
  AddressRange range{DeviceAddress{opened_at}, 0};
  auto memory = [&] {
    return std::make_unique<OwnedMemory>(range, kStaysOnGpu, [primary = primary_, opened_at] {
      return primary->Run("releasing memory",
                          [&] { return primary->calls()->ipc_close_mem_handle(opened_at); });
    });
  };
  cuda::DevicePtr base = 0;
  size_t size = 0;
  const Status known = primary_->Run("cuMemGetAddressRange", [&] {
    return calls->mem_get_address_range(&base, &size, opened_at);
  });
  if (!known || base != opened_at) {
    memory();  // closes it
    RETURN_IF_ERROR(known);
    return Fail(ErrorCode::kDeviceError,
                "a handle was opened in the middle of what is mapped: where its allocation begins "
                "is not certain");
  }
  range.size = size;
  return memory();
}

Result<std::unique_ptr<GpuMemory>> CudaContext::MapDmaBuf(const DmaBufPart&) {
  return Fail(ErrorCode::kPathUnavailable, "the NVIDIA driver maps no dma-buf of another process",
              "share memory of cudaMalloc by its handle, and virtual memory by its pieces");
}

Result<std::unique_ptr<GpuMemory>> CudaContext::MapPieces(std::span<const PieceFd> pieces) {
  return CudaPieces::Map(primary_, pieces);
}

Result<std::unique_ptr<GpuMemory>> CudaContext::AllocatePieces(uint64_t bytes,
                                                               uint64_t piece_bytes) {
  return CudaPieces::Allocate(primary_, bytes, piece_bytes);
}

Result<std::unique_ptr<GpuMemory>> CudaContext::AllocateOn(int ordinal, uint64_t bytes) {
  return CudaPieces::AllocateOn(primary_, ordinal, bytes);
}

Result<std::unique_ptr<GpuHostMemory>> CudaContext::RegisterHost(void* data, uint64_t bytes) {
  const cuda::Calls& calls = primary_->calls();
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kHostRegister));
  RETURN_IF_ERROR(primary_->Run("cuMemHostRegister", [&] {
    return calls->mem_host_register(data, bytes,
                                    cuda::kHostRegisterPortable | cuda::kHostRegisterMapped);
  }));
  cuda::DevicePtr address = 0;
  const Status known = primary_->Run("cuMemHostGetDevicePointer", [&] {
    return calls->mem_host_get_device_pointer(&address, data, 0);
  });
  auto memory = std::make_unique<OwnedMemory>(
      AddressRange{DeviceAddress{address}, bytes}, kStaysPinned, [primary = primary_, data] {
        return primary->Run("cuMemHostUnregister",
                            [&] { return primary->calls()->mem_host_unregister(data); });
      });
  RETURN_IF_ERROR(known);
  return memory;
}

// A stack of 1 KiB for each thread that the multiprocessors can hold is 264 MiB of a device with
// 132 of them. The driver gives a kernel that has a stack one when it is launched.
Status CudaContext::TrimForCopies() {
  const cuda::Calls& calls = primary_->calls();
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kContextLimits));
  return primary_->Run("cuCtxSetLimit", [&] {
    for (const int limit : {cuda::kLimitPrintfFifoSize, cuda::kLimitMallocHeapSize}) {
      static_cast<void>(calls->ctx_set_limit(limit, 0));  // they are small, and have a least size
    }
    return calls->ctx_set_limit(cuda::kLimitStackSize, 0);
  });
}

Status CudaContext::EnablePeerAccess(GpuContext& other) {
  const cuda::Calls& calls = primary_->calls();
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kPeerAccess));
  const CudaPrimary& peer = *static_cast<CudaContext&>(other).primary_;
  if (peer.device() == primary_->device()) return {};
  int can = 0;
  RETURN_IF_ERROR(
      calls.Check(calls->device_can_access_peer(&can, primary_->device(), peer.device()),
                  "cuDeviceCanAccessPeer"));
  if (can == 0) {
    return Fail(ErrorCode::kPathUnavailable,
                "GPU " + device().uuid + " has no way to the memory of GPU " + peer.info().uuid +
                    ": no NVLink or PCIe peer access");
  }
  return primary_->Run("cuCtxEnablePeerAccess", [&] {
    const cuda::Result result = calls->enable_peer_access(peer.context(), 0);
    return result == cuda::kPeerAccessAlreadyEnabled ? cuda::kSuccess : result;
  });
}

Result<std::unique_ptr<GpuStream>> CudaContext::NewStream() { return CudaStream::Create(primary_); }

Result<std::unique_ptr<GpuEvent>> CudaContext::NewEvent() { return CudaEvent::Create(primary_); }

}  // namespace gantry::gpu
