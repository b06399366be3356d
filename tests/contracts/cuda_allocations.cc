#include "tests/contracts/cuda_allocations.h"

#include <string>
#include <utility>

namespace gantry::testing {

namespace cuda = gpu::cuda;

Status CheckCuda(cuda::Result result, const char* what) {
  if (result == cuda::kSuccess) return {};
  return Fail(ErrorCode::kDeviceError, std::string(what) + ": error " + std::to_string(result));
}

Result<std::unique_ptr<GpuAllocations>> CudaAllocations::On(int ordinal) {
  ASSIGN_OR_RETURN(DynamicLibrary library, DynamicLibrary::Open("libcuda.so.1"));
  std::unique_ptr<CudaAllocations> made(new CudaAllocations(std::move(library)));
  RETURN_IF_ERROR(made->Bind(ordinal));
  return made;
}

Status CudaAllocations::Bind(int ordinal) {
  RETURN_IF_ERROR(library_.Bind("cuDeviceGet", &device_get_));
  RETURN_IF_ERROR(library_.Bind("cuDevicePrimaryCtxRetain", &retain_));
  RETURN_IF_ERROR(library_.Bind("cuDevicePrimaryCtxRelease_v2", &release_));
  RETURN_IF_ERROR(library_.Bind("cuCtxPushCurrent_v2", &push_));
  RETURN_IF_ERROR(library_.Bind("cuCtxPopCurrent_v2", &pop_));
  RETURN_IF_ERROR(library_.Bind("cuCtxGetCurrent", &current_));
  RETURN_IF_ERROR(library_.Bind("cuStreamCreate", &stream_create_));
  RETURN_IF_ERROR(library_.Bind("cuStreamDestroy_v2", &stream_destroy_));
  RETURN_IF_ERROR(library_.Bind("cuStreamBeginCapture_v2", &begin_capture_));
  RETURN_IF_ERROR(library_.Bind("cuStreamEndCapture", &end_capture_));
  RETURN_IF_ERROR(library_.Bind("cuMemAlloc_v2", &alloc_));
  RETURN_IF_ERROR(library_.Bind("cuMemFree_v2", &free_));
  RETURN_IF_ERROR(library_.Bind("cuMemAllocAsync", &alloc_async_));
  RETURN_IF_ERROR(library_.Bind("cuMemAllocManaged", &alloc_managed_));
  RETURN_IF_ERROR(library_.Bind("cuMemHostAlloc", &host_alloc_));
  RETURN_IF_ERROR(library_.Bind("cuMemFreeHost", &host_free_));
  RETURN_IF_ERROR(library_.Bind("cuMemCreate", &create_));
  RETURN_IF_ERROR(library_.Bind("cuMemRelease", &release_piece_));
  RETURN_IF_ERROR(library_.Bind("cuMemAddressReserve", &reserve_));
  RETURN_IF_ERROR(library_.Bind("cuMemAddressFree", &unreserve_));
  RETURN_IF_ERROR(library_.Bind("cuMemMap", &map_));
  RETURN_IF_ERROR(library_.Bind("cuMemUnmap", &unmap_));
  RETURN_IF_ERROR(library_.Bind("cuMemSetAccess", &set_access_));
  RETURN_IF_ERROR(CheckCuda(device_get_(&device_, ordinal), "cuDeviceGet"));
  return CheckCuda(retain_(&context_, device_), "cuDevicePrimaryCtxRetain");
}

CudaAllocations::~CudaAllocations() {
  FreeAll();
  if (context_ != nullptr) release_(device_);
}

Result<uint64_t> CudaAllocations::Allocate(gpu::MemoryOrigin origin, uint64_t bytes) {
  cuda::DevicePtr address = 0;
  void* host = nullptr;
  cuda::Result result = cuda::kInvalidValue;
  constexpr unsigned kAttachGlobal = 1;
  switch (origin) {
    case gpu::MemoryOrigin::kDevice:
      result = alloc_(&address, bytes);
      break;
    case gpu::MemoryOrigin::kPool:
      result = alloc_async_(&address, bytes, nullptr);
      break;
    case gpu::MemoryOrigin::kManaged:
      result = alloc_managed_(&address, bytes, kAttachGlobal);
      break;
    case gpu::MemoryOrigin::kPinned:
      result = host_alloc_(&host, bytes, 0);
      address = reinterpret_cast<cuda::DevicePtr>(host);
      break;
    default:
      break;
  }
  RETURN_IF_ERROR(CheckCuda(result, "allocating"));
  return address;
}

Status CudaAllocations::Release(gpu::MemoryOrigin origin, uint64_t address) {
  if (origin == gpu::MemoryOrigin::kPinned) {
    return CheckCuda(host_free_(reinterpret_cast<void*>(address)), "cuMemFreeHost");
  }
  return CheckCuda(free_(address), "cuMemFree");
}

Result<uint64_t> CudaAllocations::Reserve(uint64_t bytes) {
  cuda::DevicePtr base = 0;
  RETURN_IF_ERROR(CheckCuda(reserve_(&base, bytes, 0, 0, 0), "cuMemAddressReserve"));
  return base;
}

Status CudaAllocations::Unreserve(uint64_t address, uint64_t bytes) {
  return CheckCuda(unreserve_(address, bytes), "cuMemAddressFree");
}

Status CudaAllocations::Unmap(uint64_t address, uint64_t bytes) {
  return CheckCuda(unmap_(address, bytes), "cuMemUnmap");
}

Status CudaAllocations::MapPiece(uint64_t address, uint64_t bytes, bool exportable) {
  cuda::MemAllocationProp wanted = {};
  wanted.type = cuda::kAllocationTypePinned;
  wanted.requested_handle_types = exportable ? cuda::kHandleTypePosixFd : 0;
  wanted.location = {cuda::kLocationTypeDevice, device_};
  cuda::MemAccessDesc access = {};
  access.location = wanted.location;
  access.flags = cuda::kAccessReadWrite;
  cuda::MemHandle piece = 0;
  RETURN_IF_ERROR(CheckCuda(create_(&piece, bytes, &wanted, 0), "cuMemCreate"));
  RETURN_IF_ERROR(CheckCuda(map_(address, bytes, 0, piece, 0), "cuMemMap"));
  RETURN_IF_ERROR(CheckCuda(release_piece_(piece), "cuMemRelease"));  // the mapping keeps it
  return CheckCuda(set_access_(address, bytes, &access, 1), "cuMemSetAccess");
}

Status CudaAllocations::BeginCapture() {
  constexpr int kModeGlobal = 0;
  RETURN_IF_ERROR(PushCurrent());
  auto begun = CheckCuda(stream_create_(&captured_, cuda::kStreamNonBlocking), "cuStreamCreate");
  if (begun) begun = CheckCuda(begin_capture_(captured_, kModeGlobal), "cuStreamBeginCapture");
  PopCurrent();
  return begun;
}

Status CudaAllocations::EndCapture() {
  void* graph = nullptr;  // an empty one, which is left to the driver
  RETURN_IF_ERROR(PushCurrent());
  const auto ended = CheckCuda(end_capture_(captured_, &graph), "cuStreamEndCapture");
  stream_destroy_(captured_);
  PopCurrent();
  return ended;
}

uint64_t CudaAllocations::Current() const {
  cuda::Context now = nullptr;
  current_(&now);
  return reinterpret_cast<uint64_t>(now);
}

Status CudaAllocations::PushCurrent() const {
  return CheckCuda(push_(context_), "cuCtxPushCurrent");
}

void CudaAllocations::PopCurrent() const {
  cuda::Context popped = nullptr;
  pop_(&popped);
}

}  // namespace gantry::testing
