#include "lib/gpu/hip/hip_context.h"

#include <utility>

#include "lib/base/log.h"
#include "lib/gpu/hip/hip_attach.h"

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
    hip::ExternalMemoryHandleDesc wanted = {};
    wanted.type = hip::kExternalMemoryOpaqueFd;
    wanted.handle.fd = part.fd;
    wanted.size = part.offset + part.size;
    RETURN_IF_ERROR(device_->Call(&hip::Functions::import_external_memory, &memory_, &wanted));
    // From the beginning: the runtime looks copies' bounds up by the address that it answers here,
    // as if that were the first byte of all.
    hip::ExternalMemoryBufferDesc all = {};
    all.size = wanted.size;
    RETURN_IF_ERROR(
        device_->Call(&hip::Functions::external_memory_get_mapped_buffer, &mapped_, memory_, &all));
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

Result<std::unique_ptr<GpuMemory>> HipContext::OpenIpc(const IpcHandle& handle) {
  const MutexLock lock(AttachMutex());
  return VendorContext::OpenIpc(handle);
}

const char* HipApi::WhyNotOpened(int /*result*/) {
  return "the memory was freed, its process has ended or is in another pod, or its GPU is out of "
         "reach from here";
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
  const MutexLock lock(AttachMutex());
  return VendorContext::MapPieces(pieces);
}

// Memory of another GPU keeps the links between GPUs awake; AMD's were not seen to need it.
Result<std::unique_ptr<GpuMemory>> HipContext::AllocateOn(int /*ordinal*/, uint64_t /*bytes*/) {
  return Fail(ErrorCode::kPathUnavailable, "no memory of another AMD GPU is made from here");
}

}  // namespace gantry::gpu
