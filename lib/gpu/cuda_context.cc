#include "lib/gpu/cuda_context.h"

#include <cstring>
#include <utility>
#include <vector>

#include "lib/base/log.h"
#include "lib/gpu/cuda_stream.h"

namespace gantry::gpu {
namespace {

// Memory that one call releases: allocated, opened or registered.
class CudaMemory final : public GpuMemory {
 public:
  using Release = cuda::Result (*)(const cuda::Calls& calls, DeviceAddress base, void* host);

  CudaMemory(std::shared_ptr<const CudaPrimary> primary, AddressRange range, void* host,
             Release release)
      : primary_(std::move(primary)), range_(range), host_(host), release_(release) {}
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory() override {
    const Status released = primary_->Run(
        "releasing memory", [&] { return release_(primary_->calls(), range_.base, host_); });
    if (!released) log::Warning("gpu memory could not be released", {{"error", released.error()}});
  }
  AddressRange range() const override { return range_; }

 private:
  const std::shared_ptr<const CudaPrimary> primary_;
  const AddressRange range_;
  void* const host_;  // of registered memory
  const Release release_;
};

// Pieces of virtual memory at one reserved address.
class CudaPieces final : public GpuMemory {
 public:
  explicit CudaPieces(std::shared_ptr<const CudaPrimary> primary) : primary_(std::move(primary)) {}
  CudaPieces(const CudaPieces&) = delete;
  CudaPieces& operator=(const CudaPieces&) = delete;
  ~CudaPieces() override {
    const Status released = primary_->Run("unmapping pieces", [&] { return Unmap(); });
    if (!released) log::Warning("gpu memory could not be released", {{"error", released.error()}});
  }
  AddressRange range() const override { return {DeviceAddress{base_}, size_}; }

  Status Map(std::span<const PieceFd> pieces) {
    for (const PieceFd& piece : pieces) {
      if (piece.size == 0 || size_ + piece.size < size_) {
        return Fail(ErrorCode::kInvalidArgument, "pieces of no or of impossible length");
      }
      size_ += piece.size;
    }
    const cuda::Calls& calls = primary_->calls();
    RETURN_IF_ERROR(primary_->Run(
        "cuMemAddressReserve", [&] { return calls->mem_address_reserve(&base_, size_, 0, 0, 0); }));
    for (const PieceFd& piece : pieces) RETURN_IF_ERROR(MapOne(piece));
    cuda::MemAccessDesc access = {};
    access.location = {cuda::kLocationTypeDevice, primary_->device()};
    access.flags = cuda::kAccessReadWrite;
    return primary_->Run("cuMemSetAccess",
                         [&] { return calls->mem_set_access(base_, size_, &access, 1); });
  }

 private:
  Status MapOne(const PieceFd& piece) {
    const cuda::Calls& calls = primary_->calls();
    cuda::MemHandle handle = 0;
    RETURN_IF_ERROR(primary_->Run("cuMemImportFromShareableHandle", [&] {
      // The driver takes the number of a descriptor as a pointer here.
      return calls->mem_import_from_shareable_handle(
          &handle, reinterpret_cast<void*>(static_cast<intptr_t>(piece.fd)),
          cuda::kHandleTypePosixFd);
    }));
    const Status mapped = primary_->Run(
        "cuMemMap", [&] { return calls->mem_map(base_ + mapped_, piece.size, 0, handle, 0); });
    calls->mem_release(handle);  // the mapping keeps the piece
    RETURN_IF_ERROR(mapped);
    mapped_ += piece.size;
    sizes_.push_back(piece.size);
    return {};
  }
  // Goes on past failures and returns the first.
  cuda::Result Unmap() {
    const cuda::Calls& calls = primary_->calls();
    cuda::Result first = cuda::kSuccess;
    const auto keep = [&](cuda::Result result) {
      if (first == cuda::kSuccess) first = result;
    };
    uint64_t at = base_;
    for (const uint64_t size : sizes_) {
      keep(calls->mem_unmap(at, size));
      at += size;
    }
    if (base_ != 0) keep(calls->mem_address_free(base_, size_));
    return first;
  }

  const std::shared_ptr<const CudaPrimary> primary_;
  cuda::DevicePtr base_ = 0;
  uint64_t size_ = 0;
  uint64_t mapped_ = 0;
  std::vector<uint64_t> sizes_;  // of what is mapped
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
  return std::make_unique<CudaMemory>(primary_, AddressRange{DeviceAddress{base}, bytes}, nullptr,
                                      [](const cuda::Calls& calls, DeviceAddress address, void*) {
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
    return std::make_unique<CudaMemory>(primary_, range, nullptr,
                                        [](const cuda::Calls& use, DeviceAddress address, void*) {
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

Result<std::unique_ptr<GpuMemory>> CudaContext::MapPieces(std::span<const PieceFd> pieces) {
  RETURN_IF_ERROR(primary_->calls().Require(cuda::Feature::kVirtualMemory));
  if (pieces.empty()) return Fail(ErrorCode::kInvalidArgument, "no pieces to map");
  auto made = std::make_unique<CudaPieces>(primary_);
  RETURN_IF_ERROR(made->Map(pieces));
  return made;
}

Result<std::unique_ptr<GpuMemory>> CudaContext::RegisterHost(void* data, uint64_t bytes) {
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
      std::make_unique<CudaMemory>(primary_, AddressRange{DeviceAddress{address}, bytes}, data,
                                   [](const cuda::Calls& use, DeviceAddress, void* host) {
                                     return use->mem_host_unregister(host);
                                   });
  RETURN_IF_ERROR(known);
  return memory;
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
