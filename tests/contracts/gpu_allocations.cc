#include "tests/contracts/gpu_allocations.h"

#include <numeric>

#include "tests/contracts/cuda_allocations.h"
#include "tests/contracts/gpu_vendor.h"
#include "tests/contracts/hip_allocations.h"

namespace gantry::testing {

Result<std::unique_ptr<GpuAllocations>> GpuAllocations::On(gpu::GpuContext& context) {
  const int ordinal = context.device().ordinal;
  return IsAmd() ? HipAllocations::On(ordinal) : CudaAllocations::On(ordinal);
}

void GpuAllocations::FreeAll() {
  while (!made_.empty()) static_cast<void>(Free(made_.back().range));
}

Result<gpu::AddressRange> GpuAllocations::Make(gpu::MemoryOrigin origin, uint64_t bytes) {
  RETURN_IF_ERROR(PushCurrent());
  const auto address = Allocate(origin, bytes);
  PopCurrent();
  RETURN_IF_ERROR(address);
  made_.push_back({origin, {gpu::DeviceAddress{*address}, bytes}, {}});
  return made_.back().range;
}

Result<gpu::AddressRange> GpuAllocations::MakeVirtual(const std::vector<uint64_t>& pieces,
                                                      bool exportable) {
  const uint64_t bytes = std::accumulate(pieces.begin(), pieces.end(), uint64_t{0});
  ASSIGN_OR_RETURN(const uint64_t base, Reserve(bytes));
  uint64_t at = base;
  for (const uint64_t size : pieces) {
    RETURN_IF_ERROR(MapPiece(at, size, exportable));
    at += size;
  }
  made_.push_back({gpu::MemoryOrigin::kVirtual, {gpu::DeviceAddress{base}, bytes}, pieces});
  return made_.back().range;
}

Status GpuAllocations::MapAnew(const gpu::AddressRange& range, size_t piece) {
  for (const Made& made : made_) {
    if (made.range != range) continue;
    const auto before = made.pieces.begin() + static_cast<std::ptrdiff_t>(piece);
    const uint64_t at =
        std::accumulate(made.pieces.begin(), before, uint64_t{NumberOf(range.base)});
    RETURN_IF_ERROR(Unmap(at, *before));
    return MapPiece(at, *before, true);
  }
  return Fail(ErrorCode::kNotFound, "not made here");
}

Status GpuAllocations::Free(const gpu::AddressRange& range) {
  for (auto made = made_.begin(); made != made_.end(); ++made) {
    if (made->range == range) {
      const Made found = *made;
      made_.erase(made);
      return Release(found);
    }
  }
  return Fail(ErrorCode::kNotFound, "not made here");
}

Status GpuAllocations::Release(const Made& made) {
  const uint64_t base = NumberOf(made.range.base);
  if (made.origin != gpu::MemoryOrigin::kVirtual) {
    RETURN_IF_ERROR(PushCurrent());
    Status released = Release(made.origin, base);
    PopCurrent();
    return released;
  }
  uint64_t at = base;
  for (const uint64_t size : made.pieces) {
    RETURN_IF_ERROR(Unmap(at, size));
    at += size;
  }
  return Unreserve(base, made.range.size);
}

}  // namespace gantry::testing
