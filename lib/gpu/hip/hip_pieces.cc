#include "lib/gpu/hip/hip_pieces.h"

#include <string>

#include "lib/base/byte_range.h"
#include "lib/base/log.h"
#include "lib/gpu/hip/hip_attach.h"

namespace gantry::gpu {
namespace {

Status CheckLength(uint64_t bytes, uint64_t* all) {
  if (bytes != 0 && EndOf(*all, bytes, all)) return {};
  return Fail(ErrorCode::kInvalidArgument, "pieces of no or of impossible length");
}

hip::Result Create(const hip::Calls& calls, int ordinal, uint64_t bytes, hip::MemHandle* handle) {
  const hip::MemLocation location = {hip::kLocationTypeDevice, ordinal};
  if (calls.version() < hip::kVersion6) {
    hip::MemAllocationProp5 wanted = {};
    wanted.type = hip::kAllocationTypePinned;
    wanted.requested_handle_type = hip::kHandleTypePosixFd;
    wanted.location = location;
    return calls->mem_create(handle, bytes, &wanted, 0);
  }
  hip::MemAllocationProp6 wanted = {};
  wanted.type = hip::kAllocationTypePinned;
  wanted.requested_handle_types = hip::kHandleTypePosixFd;
  wanted.location = location;
  return calls->mem_create(handle, bytes, &wanted, 0);
}

hip::Result Import(const hip::Calls& calls, int fd, hip::MemHandle* handle) {
  void* shareable = calls.version() < hip::kVersionImportByValue
                        ? static_cast<void*>(&fd)
                        : reinterpret_cast<void*>(static_cast<intptr_t>(fd));
  return calls->mem_import_from_shareable_handle(handle, shareable, hip::kHandleTypePosixFd);
}

}  // namespace

Result<std::unique_ptr<GpuMemory>> HipPieces::Map(std::shared_ptr<const HipDevice> device,
                                                  std::span<const PieceFd> pieces) {
  const hip::Calls& calls = device->calls();
  RETURN_IF_ERROR(calls.Require(hip::Feature::kVirtualMemory));
  if (pieces.empty()) return Fail(ErrorCode::kInvalidArgument, "no pieces to map");
  uint64_t bytes = 0;
  for (const PieceFd& piece : pieces) RETURN_IF_ERROR(CheckLength(piece.size, &bytes));
  const MutexLock lock(AttachMutex());
  std::unique_ptr<HipPieces> made(new HipPieces(std::move(device)));
  RETURN_IF_ERROR(made->Reserve(bytes));
  for (const PieceFd& piece : pieces) {
    RETURN_IF_ERROR(CheckDmaBufHolds(piece.fd, 0, piece.size));
    hip::MemHandle handle = nullptr;
    RETURN_IF_ERROR(made->device_->Run("hipMemImportFromShareableHandle",
                                       [&] { return Import(calls, piece.fd, &handle); }));
    RETURN_IF_ERROR(made->Append(handle, piece.size));
  }
  const int own[] = {made->device_->ordinal()};
  RETURN_IF_ERROR(made->Permit(own));
  return made;
}

Result<std::unique_ptr<GpuMemory>> HipPieces::Allocate(std::shared_ptr<const HipDevice> device,
                                                       uint64_t bytes, uint64_t piece_bytes) {
  const hip::Calls& calls = device->calls();
  RETURN_IF_ERROR(calls.Require(hip::Feature::kVirtualMemory));
  if (bytes == 0 || piece_bytes == 0 || bytes % piece_bytes != 0) {
    return Fail(
        ErrorCode::kInvalidArgument,
        std::to_string(bytes) + " bytes are no whole pieces of " + std::to_string(piece_bytes));
  }
  std::unique_ptr<HipPieces> made(new HipPieces(std::move(device)));
  RETURN_IF_ERROR(made->Reserve(bytes));
  while (made->mapped_ < bytes) {
    hip::MemHandle handle = nullptr;
    RETURN_IF_ERROR(made->device_->Run("hipMemCreate", [&] {
      return Create(calls, made->device_->ordinal(), piece_bytes, &handle);
    }));
    RETURN_IF_ERROR(made->Append(handle, piece_bytes));
  }
  RETURN_IF_ERROR(made->Permit(made->DevicesWithin()));
  return made;
}

HipPieces::~HipPieces() {
  const Status released = device_->Run("unmapping pieces", [&] { return Unmap(); });
  if (!released) log::Warning("gpu memory could not be released", {{"error", released.error()}});
}

Status HipPieces::Reserve(uint64_t bytes) {
  size_ = bytes;
  return device_->Run("hipMemAddressReserve", [&] {
    return device_->calls()->mem_address_reserve(&base_, size_, 0, nullptr, 0);
  });
}

Status HipPieces::Append(hip::MemHandle piece, uint64_t bytes) {
  const hip::Calls& calls = device_->calls();
  const Status mapped =
      device_->Run("hipMemMap", [&] { return calls->mem_map(at(mapped_), bytes, 0, piece, 0); });
  calls->mem_release(piece);  // the mapping keeps the piece
  RETURN_IF_ERROR(mapped);
  mapped_ += bytes;
  sizes_.push_back(bytes);
  return {};
}

Status HipPieces::Permit(std::span<const int> ordinals) {
  std::vector<hip::MemAccessDesc> accesses;
  for (const int ordinal : ordinals) {
    accesses.push_back({{hip::kLocationTypeDevice, ordinal}, hip::kAccessReadWrite});
  }
  return device_->Run("hipMemSetAccess", [&] {
    return device_->calls()->mem_set_access(base_, size_, accesses.data(), accesses.size());
  });
}

std::vector<int> HipPieces::DevicesWithin() const {
  const hip::Calls& calls = device_->calls();
  std::vector<int> ordinals = {device_->ordinal()};
  int count = 0;
  if (!calls.Require(hip::Feature::kPeerAccess) ||
      calls->device_get_count(&count) != hip::kSuccess) {
    return ordinals;
  }
  for (int other = 0; other < count; ++other) {
    int can = 0;
    if (other != device_->ordinal() &&
        calls->device_can_access_peer(&can, other, device_->ordinal()) == hip::kSuccess &&
        can != 0) {
      ordinals.push_back(other);
    }
  }
  return ordinals;
}

// Goes on past failures and returns the first.
hip::Result HipPieces::Unmap() const {
  const hip::Calls& calls = device_->calls();
  hip::Result first = hip::kSuccess;
  const auto keep = [&](hip::Result result) {
    if (first == hip::kSuccess) first = result;
  };
  uint64_t offset = 0;
  for (const uint64_t size : sizes_) {
    keep(calls->mem_unmap(at(offset), size));
    offset += size;
  }
  if (base_ != nullptr) keep(calls->mem_address_free(base_, size_));
  return first;
}

}  // namespace gantry::gpu
