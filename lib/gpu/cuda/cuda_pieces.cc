#include "lib/gpu/cuda/cuda_pieces.h"

#include <string>

#include "lib/base/byte_range.h"
#include "lib/base/log.h"

namespace gantry::gpu {
namespace {

Status CheckLength(uint64_t bytes, uint64_t* all) {
  if (bytes != 0 && EndOf(*all, bytes, all)) return {};
  return Fail(ErrorCode::kInvalidArgument, "pieces of no or of impossible length");
}

}  // namespace

Result<std::unique_ptr<GpuMemory>> CudaPieces::Map(std::shared_ptr<const CudaPrimary> primary,
                                                   std::span<const PieceFd> pieces) {
  const cuda::Calls& calls = primary->calls();
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kVirtualMemory));
  if (pieces.empty()) return Fail(ErrorCode::kInvalidArgument, "no pieces to map");
  uint64_t bytes = 0;
  for (const PieceFd& piece : pieces) RETURN_IF_ERROR(CheckLength(piece.size, &bytes));
  std::unique_ptr<CudaPieces> made(new CudaPieces(std::move(primary)));
  const CudaPrimary& context = *made->primary_;
  RETURN_IF_ERROR(made->Reserve(bytes));
  for (const PieceFd& piece : pieces) {
    cuda::MemHandle handle = 0;
    RETURN_IF_ERROR(context.Run("cuMemImportFromShareableHandle", [&] {
      // The driver takes the number of a descriptor as a pointer here.
      return calls->mem_import_from_shareable_handle(
          &handle, reinterpret_cast<void*>(static_cast<intptr_t>(piece.fd)),
          cuda::kHandleTypePosixFd);
    }));
    RETURN_IF_ERROR(made->Append(handle, piece.size));
  }
  const cuda::Device own[] = {context.device()};
  RETURN_IF_ERROR(made->Permit(own));
  return made;
}

Result<std::unique_ptr<GpuMemory>> CudaPieces::Allocate(std::shared_ptr<const CudaPrimary> primary,
                                                        uint64_t bytes, uint64_t piece_bytes) {
  const cuda::Calls& calls = primary->calls();
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kVirtualMemory));
  if (bytes == 0 || piece_bytes == 0 || bytes % piece_bytes != 0) {
    return Fail(
        ErrorCode::kInvalidArgument,
        std::to_string(bytes) + " bytes are no whole pieces of " + std::to_string(piece_bytes));
  }
  std::unique_ptr<CudaPieces> made(new CudaPieces(std::move(primary)));
  const CudaPrimary& context = *made->primary_;
  RETURN_IF_ERROR(made->Reserve(bytes));
  while (made->mapped_ < bytes) RETURN_IF_ERROR(made->Make(context.device(), piece_bytes));
  RETURN_IF_ERROR(made->Permit(made->DevicesWithin()));
  return made;
}

Result<std::unique_ptr<GpuMemory>> CudaPieces::AllocateOn(
    std::shared_ptr<const CudaPrimary> primary, int ordinal, uint64_t bytes) {
  const cuda::Calls& calls = primary->calls();
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kVirtualMemory));
  std::unique_ptr<CudaPieces> made(new CudaPieces(std::move(primary)));
  const CudaPrimary& context = *made->primary_;
  cuda::Device other = 0;
  RETURN_IF_ERROR(context.Run("cuDeviceGet", [&] { return calls->device_get(&other, ordinal); }));
  RETURN_IF_ERROR(made->Reserve(bytes));
  RETURN_IF_ERROR(made->Make(other, bytes));
  const cuda::Device own[] = {context.device()};
  RETURN_IF_ERROR(made->Permit(own));
  return made;
}

CudaPieces::~CudaPieces() {
  const Status released = primary_->Run("unmapping pieces", [&] { return Unmap(); });
  if (!released) log::Warning("gpu memory could not be released", {{"error", released.error()}});
}

Status CudaPieces::Reserve(uint64_t bytes) {
  size_ = bytes;
  return primary_->Run("cuMemAddressReserve", [&] {
    return primary_->calls()->mem_address_reserve(&base_, size_, 0, 0, 0);
  });
}

Status CudaPieces::Make(cuda::Device device, uint64_t bytes) {
  cuda::MemAllocationProp wanted = {};
  wanted.type = cuda::kAllocationTypePinned;
  wanted.requested_handle_types = cuda::kHandleTypePosixFd;
  wanted.location = {cuda::kLocationTypeDevice, device};
  cuda::MemHandle handle = 0;
  RETURN_IF_ERROR(primary_->Run(
      "cuMemCreate", [&] { return primary_->calls()->mem_create(&handle, bytes, &wanted, 0); }));
  return Append(handle, bytes);
}

Status CudaPieces::Append(cuda::MemHandle piece, uint64_t bytes) {
  const cuda::Calls& calls = primary_->calls();
  const Status mapped = primary_->Run(
      "cuMemMap", [&] { return calls->mem_map(base_ + mapped_, bytes, 0, piece, 0); });
  calls->mem_release(piece);  // the mapping keeps the piece
  RETURN_IF_ERROR(mapped);
  mapped_ += bytes;
  sizes_.push_back(bytes);
  return {};
}

Status CudaPieces::Permit(std::span<const cuda::Device> devices) {
  std::vector<cuda::MemAccessDesc> accesses;
  for (const cuda::Device device : devices) {
    accesses.push_back({{cuda::kLocationTypeDevice, device}, cuda::kAccessReadWrite});
  }
  return primary_->Run("cuMemSetAccess", [&] {
    return primary_->calls()->mem_set_access(base_, size_, accesses.data(), accesses.size());
  });
}

std::vector<cuda::Device> CudaPieces::DevicesWithin() const {
  const cuda::Calls& calls = primary_->calls();
  std::vector<cuda::Device> devices = {primary_->device()};
  int count = 0;
  if (!calls.Require(cuda::Feature::kPeerAccess) ||
      calls->device_get_count(&count) != cuda::kSuccess) {
    return devices;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cuda::Device other = 0;
    int can = 0;
    if (calls->device_get(&other, ordinal) == cuda::kSuccess && other != primary_->device() &&
        calls->device_can_access_peer(&can, other, primary_->device()) == cuda::kSuccess &&
        can != 0) {
      devices.push_back(other);
    }
  }
  return devices;
}

// Goes on past failures and returns the first.
cuda::Result CudaPieces::Unmap() const {
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

}  // namespace gantry::gpu
