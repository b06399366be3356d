#include "tests/contracts/hip_allocations.h"

#include <string>
#include <utility>

#include "lib/gpu/hip/hip_calls.h"

namespace gantry::testing {

namespace hip = gpu::hip;

namespace {

Status CheckHip(hip::Result result, const char* what) {
  if (result == hip::kSuccess) return {};
  return Fail(ErrorCode::kDeviceError, std::string(what) + ": error " + std::to_string(result));
}

void* PointerTo(uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

Result<DynamicLibrary> HipAllocations::OpenLibrary() {
  for (const char* const name : hip::kLibraries) {
    auto loaded = DynamicLibrary::OpenLoaded(name);
    if (loaded) return loaded;
  }
  return Fail(ErrorCode::kNotFound, "no libamdhip64 is loaded");
}

Result<std::unique_ptr<GpuAllocations>> HipAllocations::On(int ordinal) {
  ASSIGN_OR_RETURN(DynamicLibrary library, OpenLibrary());
  std::unique_ptr<HipAllocations> made(new HipAllocations(std::move(library), ordinal));
  RETURN_IF_ERROR(made->Bind());
  return made;
}

Status HipAllocations::Bind() {
  RETURN_IF_ERROR(library_.Bind("hipRuntimeGetVersion", &call_.runtime_get_version));
  RETURN_IF_ERROR(library_.Bind("hipGetDevice", &call_.get_device));
  RETURN_IF_ERROR(library_.Bind("hipSetDevice", &call_.set_device));
  RETURN_IF_ERROR(library_.Bind("hipMalloc", &call_.mem_alloc));
  RETURN_IF_ERROR(library_.Bind("hipFree", &call_.mem_free));
  RETURN_IF_ERROR(library_.Bind("hipMallocAsync", &malloc_async_));
  RETURN_IF_ERROR(library_.Bind("hipMallocManaged", &malloc_managed_));
  RETURN_IF_ERROR(library_.Bind("hipHostMalloc", &host_malloc_));
  RETURN_IF_ERROR(library_.Bind("hipHostFree", &host_free_));
  RETURN_IF_ERROR(library_.Bind("hipMemAddressReserve", &call_.mem_address_reserve));
  RETURN_IF_ERROR(library_.Bind("hipMemAddressFree", &call_.mem_address_free));
  RETURN_IF_ERROR(library_.Bind("hipMemCreate", &call_.mem_create));
  RETURN_IF_ERROR(library_.Bind("hipMemRelease", &call_.mem_release));
  RETURN_IF_ERROR(library_.Bind("hipMemMap", &call_.mem_map));
  RETURN_IF_ERROR(library_.Bind("hipMemUnmap", &call_.mem_unmap));
  RETURN_IF_ERROR(library_.Bind("hipMemSetAccess", &call_.mem_set_access));
  RETURN_IF_ERROR(library_.Bind("hipStreamCreateWithFlags", &call_.stream_create));
  RETURN_IF_ERROR(library_.Bind("hipStreamDestroy", &call_.stream_destroy));
  RETURN_IF_ERROR(library_.Bind("hipStreamBeginCapture", &begin_capture_));
  RETURN_IF_ERROR(library_.Bind("hipStreamEndCapture", &end_capture_));
  return CheckHip(call_.runtime_get_version(&version_), "hipRuntimeGetVersion");
}

HipAllocations::~HipAllocations() { FreeAll(); }

Result<uint64_t> HipAllocations::Allocate(gpu::MemoryOrigin origin, uint64_t bytes) {
  void* address = nullptr;
  hip::Result result = hip::kInvalidValue;
  constexpr unsigned kAttachGlobal = 1;
  switch (origin) {
    case gpu::MemoryOrigin::kDevice:
      result = call_.mem_alloc(&address, bytes);
      break;
    case gpu::MemoryOrigin::kPool:
      result = malloc_async_(&address, bytes, nullptr);
      break;
    case gpu::MemoryOrigin::kManaged:
      result = malloc_managed_(&address, bytes, kAttachGlobal);
      break;
    case gpu::MemoryOrigin::kPinned:
      result = host_malloc_(&address, bytes, 0);
      break;
    default:
      break;
  }
  RETURN_IF_ERROR(CheckHip(result, "allocating"));
  return reinterpret_cast<uint64_t>(address);
}

Status HipAllocations::Release(gpu::MemoryOrigin origin, uint64_t address) {
  if (origin == gpu::MemoryOrigin::kPinned) {
    return CheckHip(host_free_(PointerTo(address)), "hipHostFree");
  }
  return CheckHip(call_.mem_free(PointerTo(address)), "hipFree");
}

Result<uint64_t> HipAllocations::Reserve(uint64_t bytes) {
  void* base = nullptr;
  RETURN_IF_ERROR(
      CheckHip(call_.mem_address_reserve(&base, bytes, 0, nullptr, 0), "hipMemAddressReserve"));
  return reinterpret_cast<uint64_t>(base);
}

Status HipAllocations::Unreserve(uint64_t address, uint64_t bytes) {
  return CheckHip(call_.mem_address_free(PointerTo(address), bytes), "hipMemAddressFree");
}

hip::Result HipAllocations::Create(uint64_t bytes, bool exportable, hip::MemHandle* piece) {
  const hip::MemLocation location = {hip::kLocationTypeDevice, device_};
  const int handle_type = exportable ? hip::kHandleTypePosixFd : 0;
  if (version_ < hip::kVersionTypeFirst) {
    hip::MemAllocationPropOld wanted = {};
    wanted.type = hip::kAllocationTypePinned;
    wanted.requested_handle_type = handle_type;
    wanted.location = location;
    return call_.mem_create(piece, bytes, &wanted, 0);
  }
  hip::MemAllocationProp wanted = {};
  wanted.type = hip::kAllocationTypePinned;
  wanted.requested_handle_types = handle_type;
  wanted.location = location;
  return call_.mem_create(piece, bytes, &wanted, 0);
}

Status HipAllocations::MapPiece(uint64_t address, uint64_t bytes, bool exportable) {
  hip::MemAccessDesc access = {};
  access.location = {hip::kLocationTypeDevice, device_};
  access.flags = hip::kAccessReadWrite;
  hip::MemHandle piece = nullptr;
  RETURN_IF_ERROR(CheckHip(Create(bytes, exportable, &piece), "hipMemCreate"));
  RETURN_IF_ERROR(CheckHip(call_.mem_map(PointerTo(address), bytes, 0, piece, 0), "hipMemMap"));
  RETURN_IF_ERROR(CheckHip(call_.mem_release(piece), "hipMemRelease"));  // the mapping keeps it
  return CheckHip(call_.mem_set_access(PointerTo(address), bytes, &access, 1), "hipMemSetAccess");
}

Status HipAllocations::Unmap(uint64_t address, uint64_t bytes) {
  return CheckHip(call_.mem_unmap(PointerTo(address), bytes), "hipMemUnmap");
}

Status HipAllocations::BeginCapture() {
  constexpr int kModeGlobal = 0;
  RETURN_IF_ERROR(PushCurrent());
  auto begun = CheckHip(call_.stream_create(&captured_, hip::kStreamNonBlocking),
                        "hipStreamCreateWithFlags");
  if (begun) begun = CheckHip(begin_capture_(captured_, kModeGlobal), "hipStreamBeginCapture");
  PopCurrent();
  return begun;
}

Status HipAllocations::EndCapture() {
  void* graph = nullptr;  // an empty one, which is left to the driver
  RETURN_IF_ERROR(PushCurrent());
  const auto ended = CheckHip(end_capture_(captured_, &graph), "hipStreamEndCapture");
  call_.stream_destroy(captured_);
  PopCurrent();
  return ended;
}

uint64_t HipAllocations::Current() const {
  int ordinal = -1;
  call_.get_device(&ordinal);
  return static_cast<uint64_t>(ordinal);
}

Status HipAllocations::PushCurrent() const {
  before_.push_back(static_cast<int>(Current()));
  return CheckHip(call_.set_device(device_), "hipSetDevice");
}

void HipAllocations::PopCurrent() const {
  call_.set_device(before_.back());
  before_.pop_back();
}

}  // namespace gantry::testing
