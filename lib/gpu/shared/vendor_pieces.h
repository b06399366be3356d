// Pieces of a GPU's virtual memory, any vendor's, side by side at one reserved address: another
// process's or new ones. The mapping is immutable; thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/byte_range.h"
#include "lib/base/log.h"
#include "lib/gpu/shared/gpu_driver.h"
#include "lib/gpu/shared/owned_memory.h"
#include "lib/gpu/shared/vendor_device.h"

namespace gantry::gpu {

template <typename Api>
class VendorPieces final : public GpuMemory {
 public:
  using Device = typename Api::Device;
  using Functions = typename Api::Functions;
  using MemHandle = typename Api::MemHandle;

  // As GpuContext's functions of these names.
  static Result<std::unique_ptr<GpuMemory>> Map(std::shared_ptr<const Device> device,
                                                std::span<const PieceFd> pieces) {
    RETURN_IF_ERROR(device->calls().Require(Api::Feature::kVirtualMemory));
    if (pieces.empty()) return Fail(ErrorCode::kInvalidArgument, "no pieces to map");
    uint64_t bytes = 0;
    for (const PieceFd& piece : pieces) {
      if (piece.size == 0 || !EndOf(bytes, piece.size, &bytes)) {
        return Fail(ErrorCode::kInvalidArgument, "pieces of no or of impossible length");
      }
    }
    std::unique_ptr<VendorPieces> made(new VendorPieces(std::move(device)));
    RETURN_IF_ERROR(made->Reserve(bytes));
    for (const PieceFd& piece : pieces) {
      MemHandle handle = {};
      RETURN_IF_ERROR(Api::ImportPiece(*made->device_, piece, &handle));
      RETURN_IF_ERROR(made->Append(handle, piece.size));
    }
    RETURN_IF_ERROR(made->PermitOwn());
    return made;
  }

  static Result<std::unique_ptr<GpuMemory>> Allocate(std::shared_ptr<const Device> device,
                                                     uint64_t bytes, uint64_t piece_bytes) {
    RETURN_IF_ERROR(device->calls().Require(Api::Feature::kVirtualMemory));
    if (bytes == 0 || piece_bytes == 0 || bytes % piece_bytes != 0) {
      return Fail(
          ErrorCode::kInvalidArgument,
          std::to_string(bytes) + " bytes are no whole pieces of " + std::to_string(piece_bytes));
    }
    std::unique_ptr<VendorPieces> made(new VendorPieces(std::move(device)));
    RETURN_IF_ERROR(made->Reserve(bytes));
    while (made->mapped_ < bytes) {
      RETURN_IF_ERROR(made->Make(made->device_->device(), piece_bytes));
    }
    RETURN_IF_ERROR(made->Permit(made->DevicesWithin()));
    return made;
  }

  // `owner` as the vendor's functions take a device.
  static Result<std::unique_ptr<GpuMemory>> AllocateOn(std::shared_ptr<const Device> device,
                                                       int owner, uint64_t bytes) {
    std::unique_ptr<VendorPieces> made(new VendorPieces(std::move(device)));
    RETURN_IF_ERROR(made->Reserve(bytes));
    RETURN_IF_ERROR(made->Make(owner, bytes));
    RETURN_IF_ERROR(made->PermitOwn());
    return made;
  }

  VendorPieces(const VendorPieces&) = delete;
  VendorPieces& operator=(const VendorPieces&) = delete;
  ~VendorPieces() override {
    const Status released = device_->Run("unmapping pieces", [&] { return Unmap(); });
    if (!released) log::Warning(kStaysOnGpu, {{"error", released.error()}});
  }

  AddressRange range() const override { return {base_, size_}; }

 private:
  explicit VendorPieces(std::shared_ptr<const Device> device) : device_(std::move(device)) {}

  typename Api::Address At(uint64_t offset) const {
    return NativeOf<typename Api::Address>(base_ + offset);
  }

  Status Reserve(uint64_t bytes) {
    typename Api::Address base = {};
    RETURN_IF_ERROR(device_->Call(&Functions::mem_address_reserve, &base, bytes, 0, {}, 0));
    base_ = AddressOf(base);
    size_ = bytes;
    return {};
  }

  // A new piece of the device, behind the pieces that are mapped already.
  Status Make(int owner, uint64_t bytes) {
    MemHandle handle = {};
    RETURN_IF_ERROR(Api::CreatePiece(*device_, owner, bytes, &handle));
    return Append(handle, bytes);
  }

  // Takes the handle, behind the pieces that are mapped already.
  Status Append(MemHandle piece, uint64_t bytes) {
    const Status mapped = device_->Call(&Functions::mem_map, At(mapped_), bytes, 0, piece, 0);
    device_->calls()->mem_release(piece);  // the mapping keeps the piece
    RETURN_IF_ERROR(mapped);
    mapped_ += bytes;
    sizes_.push_back(bytes);
    return {};
  }

  // Readable and writable for these devices.
  Status Permit(std::span<const int> devices) {
    std::vector<abi::MemAccessDesc> accesses;
    for (const int device : devices) {
      accesses.push_back({{abi::kLocationTypeDevice, device}, abi::kAccessReadWrite});
    }
    return device_->Call(&Functions::mem_set_access, At(0), size_, accesses.data(),
                         accesses.size());
  }
  Status PermitOwn() {
    const int own[] = {device_->device()};
    return Permit(own);
  }

  // This device, and those whose kernels reach it.
  std::vector<int> DevicesWithin() const {
    const auto& calls = device_->calls();
    std::vector<int> devices = {device_->device()};
    int count = 0;
    if (!calls.Require(Api::Feature::kPeerAccess) ||
        calls->device_get_count(&count) != abi::kSuccess) {
      return devices;
    }
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      int other = 0;
      int can = 0;
      if (Api::DeviceOf(calls, ordinal, &other) == abi::kSuccess && other != device_->device() &&
          calls->device_can_access_peer(&can, other, device_->device()) == abi::kSuccess &&
          can != 0) {
        devices.push_back(other);
      }
    }
    return devices;
  }

  // Goes on past failures and returns the first.
  int Unmap() const {
    const auto& calls = device_->calls();
    int first = abi::kSuccess;
    const auto keep = [&](int result) {
      if (first == abi::kSuccess) first = result;
    };
    uint64_t offset = 0;
    for (const uint64_t size : sizes_) {
      keep(calls->mem_unmap(At(offset), size));
      offset += size;
    }
    if (NumberOf(base_) != 0) keep(calls->mem_address_free(At(0), size_));
    return first;
  }

  const std::shared_ptr<const Device> device_;
  DeviceAddress base_{};
  uint64_t size_ = 0;
  uint64_t mapped_ = 0;
  std::vector<uint64_t> sizes_;  // of what is mapped
};

}  // namespace gantry::gpu
