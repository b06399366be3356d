// libcuda.so.1 of machines without a GPU: copies, streams, events, and memory of other processes.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/cuda/fake_cuda.h"

namespace gantry::fake_cuda {
namespace {

constexpr std::chrono::milliseconds kUploadDelay{2};
constexpr size_t kStagedBytesMax = 64 << 10;  // which the vendor's driver takes along and returns

FakeEvent* Of(cuda::Event event) { return reinterpret_cast<FakeEvent*>(event); }

cuda::Result CheckCopy(cuda::DevicePtr to, cuda::DevicePtr from, size_t bytes) {
  if (const auto result = Memory().CheckCopy(to, bytes); result != cuda::kSuccess) return result;
  return Memory().CheckCopy(from, bytes);
}

// Nothing, or the error of one side of a copy of rows: from its first byte to its last one the
// memory is one that the driver knows.
cuda::Result CheckRows(const cuda::Memcpy2dSide& side, size_t width, size_t height) {
  constexpr size_t kPitchMax = 2147483647;  // as cuDeviceGetAttribute would say
  if (side.memory_type != cuda::kMemoryTypeUnified || side.x_bytes != 0 || side.y != 0 ||
      side.pitch < width || side.pitch > kPitchMax || !Memory().Around(side.device)) {
    return cuda::kInvalidValue;
  }
  size_t last_row = 0;
  size_t bytes = 0;
  if (__builtin_mul_overflow(side.pitch, height - 1, &last_row) ||
      __builtin_add_overflow(last_row, width, &bytes)) {
    return cuda::kInvalidValue;
  }
  return Memory().CheckCopy(side.device, bytes);
}

void Move(cuda::DevicePtr to, cuda::DevicePtr from, size_t bytes) {
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
}

}  // namespace
}  // namespace gantry::fake_cuda

using namespace gantry::fake_cuda;
namespace cuda = gantry::gpu::cuda;

extern "C" {

cuda::Result cuMemcpyAsync(cuda::DevicePtr to, cuda::DevicePtr from, size_t bytes,
                           cuda::Stream stream) {
  FAKE_CALL_IN_CONTEXT(cuMemcpyAsync);
  if (const auto result = CheckCopy(to, from, bytes); result != cuda::kSuccess) return result;
  Of(stream)->Submit([=] { Move(to, from, bytes); });
  return cuda::kSuccess;
}
cuda::Result cuMemcpyBatchAsync(const cuda::DevicePtr* to, const cuda::DevicePtr* from,
                                const size_t* bytes, size_t count, cuda::MemcpyAttributes*, size_t*,
                                size_t attribute_count, cuda::Stream stream) {
  FAKE_CALL_IN_CONTEXT(cuMemcpyBatchAsync);
  if (count == 0 || attribute_count == 0 || stream == nullptr) return cuda::kInvalidValue;
  std::vector<std::array<uint64_t, 3>> items;
  for (size_t i = 0; i < count; ++i) {
    if (bytes[i] == 0) return cuda::kInvalidValue;
    if (const auto result = CheckCopy(to[i], from[i], bytes[i]); result != cuda::kSuccess)
      return result;
    items.push_back({to[i], from[i], bytes[i]});
  }
  const double takes = static_cast<double>(count) * Gpus().SpeedOf("block");
  if (takes > 0) {
    Of(stream)->Submit([] {}, takes);
    return cuda::kSuccess;
  }
  Of(stream)->Submit([items = std::move(items)] {
    // In an order that nobody may rely on.
    for (auto item = items.rbegin(); item != items.rend(); ++item)
      Move((*item)[0], (*item)[1], (*item)[2]);
  });
  return cuda::kSuccess;
}
cuda::Result cuMemcpy2DAsync_v2(const cuda::Memcpy2d* copy, cuda::Stream stream) {
  FAKE_CALL_IN_CONTEXT(cuMemcpy2DAsync);
  if (copy->width_bytes == 0 || copy->height == 0) return cuda::kSuccess;
  for (const cuda::Memcpy2dSide* side : {&copy->to, &copy->from}) {
    const auto result = CheckRows(*side, copy->width_bytes, copy->height);
    if (result != cuda::kSuccess) return result;
  }
  const double row_takes =
      Gpus().SpeedOf("row") + static_cast<double>(copy->width_bytes) * Gpus().SpeedOf("row_byte");
  if (row_takes > 0) {
    Of(stream)->Submit([] {}, static_cast<double>(copy->height) * row_takes);
    return cuda::kSuccess;
  }
  Of(stream)->Submit([rows = *copy] {
    for (size_t row = rows.height; row-- > 0;) {  // in an order that nobody may rely on
      Move(rows.to.device + row * rows.to.pitch, rows.from.device + row * rows.from.pitch,
           rows.width_bytes);
    }
  });
  return cuda::kSuccess;
}
cuda::Result cuMemcpyHtoDAsync_v2(cuda::DevicePtr to, const void* from, size_t bytes,
                                  cuda::Stream stream) {
  FAKE_CALL_IN_CONTEXT(cuMemcpyHtoDAsync);
  if (const auto result = Memory().CheckCopy(to, bytes); result != cuda::kSuccess) return result;
  const auto* data = static_cast<const char*>(from);
  Of(stream)->Submit([to, taken = std::vector<char>(data, data + bytes)] {
    std::this_thread::sleep_for(kUploadDelay);
    std::memcpy(reinterpret_cast<void*>(to), taken.data(), taken.size());
  });
  if (bytes > kStagedBytesMax) Of(stream)->Synchronize();
  return cuda::kSuccess;
}
cuda::Result cuMemcpyDtoHAsync_v2(void* to, cuda::DevicePtr from, size_t bytes,
                                  cuda::Stream stream) {
  FAKE_CALL_IN_CONTEXT(cuMemcpyDtoHAsync);
  if (const auto result = Memory().CheckCopy(from, bytes); result != cuda::kSuccess) return result;
  Of(stream)->Submit([=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
  return cuda::kSuccess;
}
cuda::Result cuMemsetD8Async(cuda::DevicePtr to, unsigned char value, size_t bytes,
                             cuda::Stream stream) {
  FAKE_CALL_IN_CONTEXT(cuMemsetD8Async);
  if (const auto result = Memory().CheckCopy(to, bytes); result != cuda::kSuccess) return result;
  Of(stream)->Submit([=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
  return cuda::kSuccess;
}

cuda::Result cuEventCreate(cuda::Event* event, unsigned) {
  FAKE_CALL_IN_CONTEXT(cuEventCreate);
  *event = reinterpret_cast<cuda::Event>(new FakeEvent);
  return cuda::kSuccess;
}
cuda::Result cuEventDestroy_v2(cuda::Event event) {
  delete Of(event);
  return ErrorOfCurrent();
}
cuda::Result cuEventRecord(cuda::Event event, cuda::Stream stream) {
  FAKE_CALL_IN_CONTEXT(cuEventRecord);
  Of(event)->Record(HolderOf(stream));
  return cuda::kSuccess;
}
cuda::Result cuEventQuery(cuda::Event event) {
  FAKE_CALL_IN_CONTEXT(cuEventQuery);
  return Of(event)->IsDone() ? ErrorOfCurrent() : cuda::kNotReady;
}
cuda::Result cuEventSynchronize(cuda::Event event) {
  Of(event)->Wait();
  return ErrorOfCurrent();
}

cuda::Result cuIpcGetMemHandle(cuda::IpcMemHandle* handle, cuda::DevicePtr address) {
  FAKE_CALL_IN_CONTEXT(cuIpcGetMemHandle);
  gantry::fake_gpu::MemoryName name;
  const cuda::Result result = Memory().NameOf(address, &name);
  name.offset = 0;  // nothing of where `address` is inside of it
  if (result == cuda::kSuccess) Encode(name, handle->reserved);
  return result;
}
cuda::Result cuIpcOpenMemHandle_v2(cuda::DevicePtr* address, cuda::IpcMemHandle handle,
                                   unsigned flags) {
  FAKE_CALL_IN_CONTEXT(cuIpcOpenMemHandle);
  gantry::fake_gpu::MemoryName name;
  if (!Decode(handle.reserved, &name)) return cuda::kInvalidValue;
  if (name.exporter == ::getpid()) return cuda::kInvalidContext;
  const int gpu = current.back()->gpu;
  if (!Gpus().Reaches(gpu, name.gpu)) return gantry::fake_gpu::kPeerAccessUnsupported;
  // Nobody may touch it whose access was not asked for.
  constexpr int kNobody = 1 << 20;
  const bool follows = flags == cuda::kIpcLazyEnablePeerAccess || name.gpu == gpu;
  return Memory().Attach(name, Gpus().Open(name.gpu, name.file),
                         {follows ? gpu : kNobody, /*is_shared=*/true}, address);
}
cuda::Result cuIpcCloseMemHandle(cuda::DevicePtr address) {
  FAKE_CALL(cuIpcCloseMemHandle);
  if (const int error = ErrorOfCurrent(); error != 0) return error;
  return Memory().Detach(address);
}

cuda::Result cuMemCreate(cuda::MemHandle* piece, size_t bytes,
                         const cuda::MemAllocationProp* wanted, unsigned long long) {
  FAKE_CALL(cuMemCreate);
  if (!IsDevice(wanted->location.id)) return kInvalidDevice;
  return Memory().CreatePiece(GpuAt(wanted->location.id), bytes,
                              (wanted->requested_handle_types & cuda::kHandleTypePosixFd) != 0,
                              piece);
}
cuda::Result cuMemRelease(cuda::MemHandle piece) {
  FAKE_CALL(cuMemRelease);
  return Memory().ReleasePiece(piece);
}
cuda::Result cuMemAddressReserve(cuda::DevicePtr* address, size_t bytes, size_t, cuda::DevicePtr,
                                 unsigned long long) {
  FAKE_CALL(cuMemAddressReserve);
  return Memory().Reserve(bytes, address);
}
cuda::Result cuMemAddressFree(cuda::DevicePtr address, size_t bytes) {
  return Memory().FreeReservation(address, bytes);
}
cuda::Result cuMemMap(cuda::DevicePtr address, size_t bytes, size_t offset, cuda::MemHandle piece,
                      unsigned long long) {
  FAKE_CALL(cuMemMap);
  return offset == 0 ? Memory().Map(address, bytes, piece) : cuda::kInvalidValue;
}
cuda::Result cuMemUnmap(cuda::DevicePtr address, size_t bytes) {
  return Memory().Unmap(address, bytes);
}
cuda::Result cuMemSetAccess(cuda::DevicePtr address, size_t bytes,
                            const cuda::MemAccessDesc* accesses, size_t count) {
  FAKE_CALL(cuMemSetAccess);
  std::set<int> gpus;
  for (size_t i = 0; i < count; ++i) {
    if (!IsDevice(accesses[i].location.id)) return kInvalidDevice;
    gpus.insert(GpuAt(accesses[i].location.id));
  }
  return Memory().SetAccess(address, bytes, gpus);
}
cuda::Result cuMemRetainAllocationHandle(cuda::MemHandle* piece, void* address) {
  return Memory().RetainPiece(reinterpret_cast<cuda::DevicePtr>(address), piece);
}
cuda::Result cuMemExportToShareableHandle(void* shareable, cuda::MemHandle piece, int type,
                                          unsigned long long) {
  FAKE_CALL(cuMemExportToShareableHandle);
  if (type != cuda::kHandleTypePosixFd) return cuda::kInvalidValue;
  return Memory().ExportPiece(piece, static_cast<int*>(shareable));
}
cuda::Result cuMemImportFromShareableHandle(cuda::MemHandle* piece, void* shareable, int type) {
  FAKE_CALL(cuMemImportFromShareableHandle);
  if (type != cuda::kHandleTypePosixFd) return cuda::kInvalidValue;
  return Memory().ImportPiece(static_cast<int>(reinterpret_cast<intptr_t>(shareable)), piece);
}

cuda::Result cuMemGetHandleForAddressRange(void* handle, cuda::DevicePtr address, size_t bytes,
                                           int type, unsigned long long) {
  FAKE_CALL_IN_CONTEXT(cuMemGetHandleForAddressRange);
  const auto block = Memory().Around(address);
  const int fd = block ? Memory().FileOf(*block) : -1;
  if (fd < 0 || type != cuda::kRangeHandleTypeDmaBuf || address != WholePages(address) ||
      bytes != WholePages(bytes) || bytes > block->base + WholePages(block->size) - address) {
    return cuda::kInvalidValue;
  }
  *static_cast<int*>(handle) = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  return cuda::kSuccess;
}

cuda::Result cuMemHostRegister_v2(void* host, size_t bytes, unsigned flags) {
  FAKE_CALL_IN_CONTEXT(cuMemHostRegister);
  // Without these, memory has no address for devices, and is pinned for one context alone.
  constexpr unsigned kNeeded = cuda::kHostRegisterPortable | cuda::kHostRegisterMapped;
  if (flags != kNeeded) return cuda::kInvalidValue;
  return Memory().Register(host, bytes);
}
cuda::Result cuMemHostUnregister(void* host) {
  FAKE_CALL_IN_CONTEXT(cuMemHostUnregister);
  return Memory().Unregister(host);
}
cuda::Result cuMemHostGetDevicePointer_v2(cuda::DevicePtr* address, void* host, unsigned) {
  FAKE_CALL(cuMemHostGetDevicePointer);
  const auto at = reinterpret_cast<cuda::DevicePtr>(host);
  const auto block = Memory().Around(at);
  if (!block) return cuda::kInvalidValue;
  *address = block->kind == BlockKind::kRegistered ? block->on_device + (at - block->base) : at;
  return cuda::kSuccess;
}

}  // extern "C"
