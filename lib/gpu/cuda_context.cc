#include "lib/gpu/cuda_context.h"

#include <cstring>
#include <utility>

#include "lib/base/log.h"
#include "lib/gpu/cuda_pieces.h"
#include "lib/gpu/cuda_stream.h"

namespace gantry::gpu {
namespace {

// Memory that one call releases: allocated or opened.
class CudaMemory final : public GpuMemory {
 public:
  using Release = cuda::Result (*)(const cuda::Calls& calls, DeviceAddress base);

  CudaMemory(std::shared_ptr<const CudaPrimary> primary, AddressRange range, Release release)
      : primary_(std::move(primary)), range_(range), release_(release) {}
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory() override {
    const Status released =
        primary_->Run("releasing memory", [&] { return release_(primary_->calls(), range_.base); });
    if (!released) log::Warning("gpu memory could not be released", {{"error", released.error()}});
  }
  AddressRange range() const override { return range_; }

 private:
  const std::shared_ptr<const CudaPrimary> primary_;
  const AddressRange range_;
  const Release release_;
};

class CudaHostMemory final : public GpuHostMemory {
 public:
  CudaHostMemory(std::shared_ptr<const CudaPrimary> primary, AddressRange range, void* host)
      : primary_(std::move(primary)), range_(range), host_(host) {}
  CudaHostMemory(const CudaHostMemory&) = delete;
  CudaHostMemory& operator=(const CudaHostMemory&) = delete;
  ~CudaHostMemory() override {
    const Status forgotten = Unregister();
    if (!forgotten) log::Warning("host memory stays pinned", {{"error", forgotten.error()}});
  }
  AddressRange range() const override { return range_; }
  Status Unregister() override {
    void* const host = std::exchange(host_, nullptr);
    if (host == nullptr) return {};
    return primary_->Run("cuMemHostUnregister",
                         [&] { return primary_->calls()->mem_host_unregister(host); });
  }

 private:
  const std::shared_ptr<const CudaPrimary> primary_;
  const AddressRange range_;
  void* host_;  // null: that was tried
};

}  // namespace

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
  return std::make_unique<CudaMemory>(primary_, AddressRange{DeviceAddress{base}, bytes},
                                      [](const cuda::Calls& calls, DeviceAddress address) {
                                        return calls->mem_free(NumberOf(address));
                                      });
}

Result<std::unique_ptr<GpuMemory>> CudaContext::OpenIpc(const IpcHandle& handle) {
  const cuda::Calls& calls = primary_->calls();
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kIpc));
  cuda::IpcMemHandle given = {};
  std::memcpy(&given, handle.bytes.data(), sizeof(given));
  cuda::DevicePtr base = 0;
  cuda::Result result = cuda::kSuccess;
  auto opened = primary_->Run("cuIpcOpenMemHandle", [&] {
    return result = calls->ipc_open_mem_handle(&base, given, cuda::kIpcLazyEnablePeerAccess);
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
  AddressRange range{DeviceAddress{base}, 0};
  auto memory = [&] {
    return std::make_unique<CudaMemory>(primary_, range,
                                        [](const cuda::Calls& use, DeviceAddress address) {
                                          return use->ipc_close_mem_handle(NumberOf(address));
                                        });
  };
  size_t size = 0;
  const Status known = primary_->Run("cuMemGetAddressRange", [&] {
    return calls->mem_get_address_range(&base, &size, NumberOf(range.base));
  });
  if (!known || base != NumberOf(range.base)) {
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

Result<std::unique_ptr<GpuHostMemory>> CudaContext::RegisterHost(void* data, uint64_t bytes) {
  const cuda::Calls& calls = primary_->calls();
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kHostRegister));
  RETURN_IF_ERROR(primary_->Run("cuMemHostRegister", [&] {
    return calls->mem_host_register(data, bytes,
                                    cuda::kHostRegisterPortable | cuda::kHostRegisterDeviceMap);
  }));
  cuda::DevicePtr address = 0;
  const Status known = primary_->Run("cuMemHostGetDevicePointer", [&] {
    return calls->mem_host_get_device_pointer(&address, data, 0);
  });
  auto memory =
      std::make_unique<CudaHostMemory>(primary_, AddressRange{DeviceAddress{address}, bytes}, data);
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
    const cuda::Result result = calls->ctx_enable_peer_access(peer.context(), 0);
    return result == cuda::kPeerAccessAlreadyEnabled ? cuda::kSuccess : result;
  });
}

Result<std::unique_ptr<GpuStream>> CudaContext::NewStream() { return CudaStream::Create(primary_); }

Result<std::unique_ptr<GpuEvent>> CudaContext::NewEvent() { return CudaEvent::Create(primary_); }

}  // namespace gantry::gpu
