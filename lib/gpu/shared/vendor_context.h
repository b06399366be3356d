// The use of one GPU by this process for copies: what is the same for every vendor. Thread-safe.
#pragma once

#include <cstring>
#include <memory>
#include <utility>

#include "lib/gpu/shared/gpu_driver.h"
#include "lib/gpu/shared/owned_memory.h"
#include "lib/gpu/shared/vendor_host_copies.h"
#include "lib/gpu/shared/vendor_pieces.h"
#include "lib/gpu/shared/vendor_stream.h"

namespace gantry::gpu {

template <typename Api>
class VendorContext : public GpuContext {
 public:
  using Device = typename Api::Device;
  using Functions = typename Api::Functions;
  using Address = typename Api::Address;

  const DeviceInfo& device() const override { return device_->info(); }

  Result<MemoryAmount> Memory() override {
    size_t free = 0;
    size_t total = 0;
    RETURN_IF_ERROR(device_->Call(&Functions::mem_get_info, &free, &total));
    return MemoryAmount{free, total};
  }

  Result<std::unique_ptr<GpuMemory>> Allocate(uint64_t bytes) override {
    Address base = {};
    RETURN_IF_ERROR(device_->Run("allocating GPU memory",
                                 [&] { return device_->calls()->mem_alloc(&base, bytes); }));
    return std::make_unique<OwnedMemory>(
        AddressRange{AddressOf(base), bytes}, kStaysOnGpu, [device = device_, base] {
          return device->Run("releasing memory", [&] { return device->calls()->mem_free(base); });
        });
  }

  Result<std::unique_ptr<GpuMemory>> OpenIpc(const IpcHandle& handle) override {
    const auto& calls = device_->calls();
    RETURN_IF_ERROR(calls.Require(Api::Feature::kIpc));
    abi::IpcMemHandle given = {};
    std::memcpy(&given, handle.bytes.data(), sizeof(given));
    Address opened_at = {};
    int result = abi::kSuccess;
    auto opened = device_->Run(&Functions::ipc_open_mem_handle, [&] {
      return result = calls->ipc_open_mem_handle(&opened_at, given, Api::IpcFlags(calls));
    });
    if (!opened) opened.error().hint = Api::WhyNotOpened(result);
    RETURN_IF_ERROR(std::move(opened));
    AddressRange range{AddressOf(opened_at), 0};
    auto memory = [&] {
      return std::make_unique<OwnedMemory>(range, kStaysOnGpu, [device = device_, opened_at] {
        return device->Run("releasing memory",
                           [&] { return device->calls()->ipc_close_mem_handle(opened_at); });
      });
    };
    Address base = {};
    size_t size = 0;
    const Status known = device_->Call(&Functions::mem_get_address_range, &base, &size, opened_at);
    if (!known || base != opened_at) {
      memory();  // closes it
      RETURN_IF_ERROR(known);
      return Fail(ErrorCode::kDeviceError,
                  "a handle was opened in the middle of what is mapped: where its allocation "
                  "begins is not certain");
    }
    range.size = size;
    return memory();
  }

  Result<std::unique_ptr<GpuMemory>> MapPieces(std::span<const PieceFd> pieces) override {
    return VendorPieces<Api>::Map(device_, pieces);
  }
  Result<std::unique_ptr<GpuMemory>> AllocatePieces(uint64_t bytes, uint64_t piece_bytes) override {
    return VendorPieces<Api>::Allocate(device_, bytes, piece_bytes);
  }

  Result<std::unique_ptr<GpuHostMemory>> RegisterHost(void* data, uint64_t bytes) override {
    RETURN_IF_ERROR(device_->calls().Require(Api::Feature::kHostRegister));
    RETURN_IF_ERROR(device_->Call(&Functions::mem_host_register, data, bytes,
                                  abi::kHostRegisterPortable | abi::kHostRegisterMapped));
    Address address = {};
    const Status known = device_->Call(&Functions::mem_host_get_device_pointer, &address, data, 0);
    auto memory = std::make_unique<OwnedMemory>(
        AddressRange{AddressOf(address), bytes}, kStaysPinned,
        [device = device_, data] { return device->Call(&Functions::mem_host_unregister, data); });
    RETURN_IF_ERROR(known);
    return memory;
  }

  Status EnablePeerAccess(GpuContext& other) override {
    const auto& calls = device_->calls();
    RETURN_IF_ERROR(calls.Require(Api::Feature::kPeerAccess));
    const Device& peer = *static_cast<VendorContext&>(other).device_;
    if (peer.device() == device_->device()) return {};
    int can = 0;
    RETURN_IF_ERROR(
        calls.Check(calls->device_can_access_peer(&can, device_->device(), peer.device()),
                    calls.NameOf(&Functions::device_can_access_peer)));
    if (can == 0) {
      return Fail(ErrorCode::kPathUnavailable,
                  "GPU " + device().uuid + " has no way to the memory of GPU " + peer.info().uuid +
                      ": no " + Api::kLink + " or PCIe peer access");
    }
    return EnableAccessTo(peer.place());
  }

  Status LoadKernels() override { return device_->LoadKernels(); }
  Result<std::unique_ptr<GpuStream>> NewStream() override {
    return VendorStream<Api>::Create(device_);
  }
  Result<std::unique_ptr<GpuEvent>> NewEvent() override {
    return VendorEvent<Api>::Create(device_);
  }
  Status CopyFromHost(DeviceAddress to, const void* from, uint64_t bytes) override {
    return host_copies_.CopyFromHost(to, from, bytes);
  }
  Status CopyToHost(void* to, DeviceAddress from, uint64_t bytes) override {
    return host_copies_.CopyToHost(to, from, bytes);
  }

 protected:
  explicit VendorContext(std::shared_ptr<const Device> device)
      : device_(device), host_copies_(std::move(device)) {}

  // Kernels of this device may then follow addresses of the peer's memory. No error when they may
  // already.
  Status EnableAccessTo(typename Api::Place peer) {
    const auto& calls = device_->calls();
    return device_->Run(&Functions::enable_peer_access, [&] {
      const int result = calls->enable_peer_access(peer, 0);
      return result == abi::kPeerAccessAlreadyEnabled ? abi::kSuccess : result;
    });
  }

  const std::shared_ptr<const Device> device_;

 private:
  VendorHostCopies<Api> host_copies_;
};

}  // namespace gantry::gpu
