#include "lib/gpu/hip/hip_context.h"

#include <cstring>
#include <utility>

#include "lib/base/byte_range.h"
#include "lib/base/log.h"
#include "lib/gpu/hip/hip_attach.h"
#include "lib/gpu/hip/hip_pieces.h"
#include "lib/gpu/hip/hip_stream.h"
#include "lib/gpu/shared/owned_memory.h"

namespace gantry::gpu {
namespace {

// Part of a dma-buf.
class HipSharedMemory final : public GpuMemory {
 public:
  explicit HipSharedMemory(std::shared_ptr<const HipDevice> device) : device_(std::move(device)) {}
  HipSharedMemory(const HipSharedMemory&) = delete;
  HipSharedMemory& operator=(const HipSharedMemory&) = delete;
  ~HipSharedMemory() override {
    const hip::Calls& calls = device_->calls();
    const Status released = device_->Run("releasing a dma-buf", [&] {
      // The buffer and the memory are two references to the mapping.
      const hip::Result freed = mapped_ == nullptr ? hip::kSuccess : calls->mem_free(mapped_);
      const hip::Result destroyed =
          memory_ == nullptr ? hip::kSuccess : calls->destroy_external_memory(memory_);
      return freed == hip::kSuccess ? destroyed : freed;
    });
    if (!released) log::Warning(kStaysOnGpu, {{"error", released.error()}});
  }

  // Once, before anything else.
  Status Map(const DmaBufPart& part) {
    const hip::Calls& calls = device_->calls();
    hip::ExternalMemoryHandleDesc wanted = {};
    wanted.type = hip::kExternalMemoryOpaqueFd;
    wanted.handle.fd = part.fd;
    wanted.size = part.offset + part.size;
    RETURN_IF_ERROR(device_->Run("hipImportExternalMemory",
                                 [&] { return calls->import_external_memory(&memory_, &wanted); }));
    // From the beginning: the runtime looks copies' bounds up by the address that it answers here,
    // as if that were the first byte of all.
    hip::ExternalMemoryBufferDesc all = {};
    all.size = wanted.size;
    RETURN_IF_ERROR(device_->Run("hipExternalMemoryGetMappedBuffer", [&] {
      return calls->external_memory_get_mapped_buffer(&mapped_, memory_, &all);
    }));
    range_ = {AddressOf(mapped_) + part.offset, part.size};
    return {};
  }
  AddressRange range() const override { return range_; }

 private:
  const std::shared_ptr<const HipDevice> device_;
  hip::ExternalMemory memory_ = nullptr;
  void* mapped_ = nullptr;
  AddressRange range_;
};

}  // namespace

Result<std::unique_ptr<GpuContext>> HipContext::Open(std::shared_ptr<const hip::Calls> calls,
                                                     const DeviceInfo& info) {
  ASSIGN_OR_RETURN(auto device, HipDevice::Open(std::move(calls), info));
  std::unique_ptr<HipContext> context(new HipContext(std::move(device)));
  const hip::Calls& use = context->device_->calls();
  int count = 0;
  if (use.Require(hip::Feature::kPeerAccess)) {
    RETURN_IF_ERROR(use.Check(use->device_get_count(&count), "hipGetDeviceCount"));
  }
  for (int peer = 0; peer < count; ++peer) {
    int can = 0;
    if (peer == info.ordinal ||
        use->device_can_access_peer(&can, info.ordinal, peer) != hip::kSuccess || can == 0) {
      continue;
    }
    RETURN_IF_ERROR(context->EnableAccessTo(peer));
  }
  return context;
}

Result<MemoryAmount> HipContext::Memory() {
  size_t free = 0;
  size_t total = 0;
  RETURN_IF_ERROR(
      device_->Run("hipMemGetInfo", [&] { return device_->calls()->mem_get_info(&free, &total); }));
  return MemoryAmount{free, total};
}

Result<std::unique_ptr<GpuMemory>> HipContext::Allocate(uint64_t bytes) {
  void* base = nullptr;
  RETURN_IF_ERROR(device_->Run("allocating GPU memory",
                               [&] { return device_->calls()->mem_alloc(&base, bytes); }));
  return std::make_unique<OwnedMemory>(
      AddressRange{AddressOf(base), bytes}, kStaysOnGpu, [device = device_, base] {
        return device->Run("releasing memory", [&] { return device->calls()->mem_free(base); });
      });
}

Result<std::unique_ptr<GpuMemory>> HipContext::OpenIpc(const IpcHandle& handle) {
  const hip::Calls& calls = device_->calls();
  RETURN_IF_ERROR(calls.Require(hip::Feature::kIpc));
  hip::IpcMemHandle given = {};
  std::memcpy(&given, handle.bytes.data(), sizeof(given));
  const MutexLock lock(AttachMutex());
  void* opened_at = nullptr;
  auto opened = device_->Run("hipIpcOpenMemHandle", [&] {
    return calls->ipc_open_mem_handle(&opened_at, given,
                                      hip::LazyEnablePeerAccessOf(calls.version()));
  });
  if (!opened) {
    opened.error().hint =
        "the memory was freed, its process has ended or is in another pod, or its GPU is out of "
        "reach from here";
  }
  RETURN_IF_ERROR(std::move(opened));
  AddressRange range{AddressOf(opened_at), 0};
  auto memory = [&] {
    return std::make_unique<OwnedMemory>(range, kStaysOnGpu, [device = device_, opened_at] {
      return device->Run("releasing memory",
                         [&] { return device->calls()->ipc_close_mem_handle(opened_at); });
    });
  };
  void* base = nullptr;
  size_t size = 0;
  const Status known = device_->Run("hipMemGetAddressRange", [&] {
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

Result<std::unique_ptr<GpuMemory>> HipContext::MapDmaBuf(const DmaBufPart& part) {
  RETURN_IF_ERROR(device_->calls().Require(hip::Feature::kExternalMemory));
  RETURN_IF_ERROR(CheckDmaBufHolds(part.fd, part.offset, part.size));
  const MutexLock lock(AttachMutex());
  auto memory = std::make_unique<HipSharedMemory>(device_);
  RETURN_IF_ERROR(memory->Map(part));
  return memory;
}

Result<std::unique_ptr<GpuMemory>> HipContext::MapPieces(std::span<const PieceFd> pieces) {
  return HipPieces::Map(device_, pieces);
}

Result<std::unique_ptr<GpuMemory>> HipContext::AllocatePieces(uint64_t bytes,
                                                              uint64_t piece_bytes) {
  return HipPieces::Allocate(device_, bytes, piece_bytes);
}

// What it is for, to keep the links between GPUs awake, nobody has seen these need.
Result<std::unique_ptr<GpuMemory>> HipContext::AllocateOn(int /*ordinal*/, uint64_t /*bytes*/) {
  return Fail(ErrorCode::kPathUnavailable, "no memory of another AMD GPU is made from here");
}

Result<std::unique_ptr<GpuHostMemory>> HipContext::RegisterHost(void* data, uint64_t bytes) {
  const hip::Calls& calls = device_->calls();
  RETURN_IF_ERROR(calls.Require(hip::Feature::kHostRegister));
  RETURN_IF_ERROR(device_->Run("hipHostRegister", [&] {
    return calls->mem_host_register(data, bytes,
                                    hip::kHostRegisterPortable | hip::kHostRegisterMapped);
  }));
  void* address = nullptr;
  const Status known = device_->Run("hipHostGetDevicePointer", [&] {
    return calls->mem_host_get_device_pointer(&address, data, 0);
  });
  auto memory = std::make_unique<OwnedMemory>(
      AddressRange{AddressOf(address), bytes}, kStaysPinned, [device = device_, data] {
        return device->Run("hipHostUnregister",
                           [&] { return device->calls()->mem_host_unregister(data); });
      });
  RETURN_IF_ERROR(known);
  return memory;
}

Status HipContext::EnableAccessTo(int peer) {
  return device_->Run("hipDeviceEnablePeerAccess", [&] {
    const hip::Result result = device_->calls()->enable_peer_access(peer, 0);
    return result == hip::kPeerAccessAlreadyEnabled ? hip::kSuccess : result;
  });
}

Status HipContext::EnablePeerAccess(GpuContext& other) {
  const hip::Calls& calls = device_->calls();
  RETURN_IF_ERROR(calls.Require(hip::Feature::kPeerAccess));
  const DeviceInfo& peer = other.device();
  if (peer.ordinal == device_->ordinal()) return {};
  int can = 0;
  RETURN_IF_ERROR(calls.Check(calls->device_can_access_peer(&can, device_->ordinal(), peer.ordinal),
                              "hipDeviceCanAccessPeer"));
  if (can == 0) {
    return Fail(ErrorCode::kPathUnavailable, "GPU " + device().uuid +
                                                 " has no way to the memory of GPU " + peer.uuid +
                                                 ": no XGMI or PCIe peer access");
  }
  return EnableAccessTo(peer.ordinal);
}

Result<std::unique_ptr<GpuStream>> HipContext::NewStream() { return HipStream::Create(device_); }

Result<std::unique_ptr<GpuEvent>> HipContext::NewEvent() { return HipEvent::Create(device_); }

}  // namespace gantry::gpu
