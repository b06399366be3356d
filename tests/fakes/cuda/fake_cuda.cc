// libcuda.so.1 of machines without a GPU: the calls that Gantry and its tests make, with what the
// vendor's driver was seen to answer. Here devices, contexts, and what an address is.
#include "tests/fakes/cuda/fake_cuda.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace gantry {
namespace fake_gpu {

std::vector<int> ChosenGpus(int gpus) {
  std::vector<int> all;
  for (int gpu = 0; gpu < gpus; ++gpu) all.push_back(gpu);
  return ChosenBy("CUDA_VISIBLE_DEVICES", all);
}
std::string DeviceFileOf(int gpu) { return "nvidia" + std::to_string(gpu); }

}  // namespace fake_gpu

namespace fake_cuda {

thread_local std::vector<FakeContext*> current;

namespace {

std::atomic<bool> initialized = false;  // cuInit was called

constexpr int kVersion = 13000;

// "is_mig_slice=1" among the failures: the devices are slices, whose memory has no handle.
bool IsMigSlice() { return gantry::fake_gpu::Gpus().SettingOf("is_mig_slice") != 0; }

}  // namespace
}  // namespace fake_cuda
}  // namespace gantry

using namespace gantry::fake_cuda;
using gantry::fake_gpu::ContextOf;
using gantry::fake_gpu::OrdinalOf;
namespace cuda = gantry::gpu::cuda;

extern "C" {

cuda::Result cuInit(unsigned) {
  FAKE_CALL(cuInit);
  initialized = true;
  return Gpus().visible().empty() ? cuda::kNoDevice : cuda::kSuccess;
}
cuda::Result cuDriverGetVersion(int* version) {
  *version = kVersion;
  return cuda::kSuccess;
}
cuda::Result cuGetErrorName(cuda::Result error, const char** name) {
  static const std::map<int, const char*> names = {{0, "CUDA_SUCCESS"},
                                                   {1, "CUDA_ERROR_INVALID_VALUE"},
                                                   {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                   {100, "CUDA_ERROR_NO_DEVICE"},
                                                   {201, "CUDA_ERROR_INVALID_CONTEXT"},
                                                   {218, "CUDA_ERROR_INVALID_PTX"},
                                                   {400, "CUDA_ERROR_INVALID_HANDLE"},
                                                   {600, "CUDA_ERROR_NOT_READY"},
                                                   {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                   {716, "CUDA_ERROR_MISALIGNED_ADDRESS"},
                                                   {999, "CUDA_ERROR_UNKNOWN"}};
  const auto found = names.find(error);
  if (found == names.end()) return cuda::kInvalidValue;
  *name = found->second;
  return cuda::kSuccess;
}
cuda::Result cuGetErrorString(cuda::Result error, const char** text) {
  return cuGetErrorName(error, text);
}

cuda::Result cuDeviceGetCount(int* count) {
  FAKE_CALL(cuDeviceGetCount);
  *count = static_cast<int>(Gpus().visible().size());
  return cuda::kSuccess;
}
cuda::Result cuDeviceGet(cuda::Device* device, int ordinal) {
  if (!IsDevice(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return cuda::kSuccess;
}
cuda::Result cuDeviceGetName(char* name, int length, cuda::Device) {
  const std::string text = IsMigSlice() ? "Fake GPU MIG 1g.5gb" : "Fake GPU";
  text.copy(name, static_cast<size_t>(length));
  return cuda::kSuccess;
}
cuda::Result cuDeviceGetUuid_v2(cuda::Uuid* uuid, cuda::Device device) {
  if (!IsDevice(device)) return kInvalidDevice;
  std::memset(uuid, 0xfa, sizeof(*uuid));
  uuid->bytes[15] = static_cast<char>(GpuAt(device));
  return cuda::kSuccess;
}
cuda::Result cuDeviceGetPCIBusId(char* text, int length, cuda::Device device) {
  if (!IsDevice(device)) return kInvalidDevice;
  // In capitals, as the vendor's.
  std::snprintf(text, static_cast<size_t>(length), "0000:%02X:00.0", 0xa + 0x11 * GpuAt(device));
  return cuda::kSuccess;
}
cuda::Result cuDeviceTotalMem_v2(size_t* bytes, cuda::Device) {
  *bytes = Gpus().total_bytes();
  return cuda::kSuccess;
}
cuda::Result cuDeviceGetAttribute(int* value, int attribute, cuda::Device device) {
  if (!IsDevice(device)) return kInvalidDevice;
  static const std::map<int, int> values = {{cuda::kMultiprocessorCount, 8},
                                            {cuda::kComputeMajor, 9},
                                            {cuda::kComputeMinor, 0},
                                            {cuda::kPosixFdSupported, 1},
                                            {cuda::kCanUse64BitStreamMemOps, 1},
                                            {cuda::kDmaBufSupported, 1},
                                            {cuda::kRdmaWritesOrdering, 100}};
  if (attribute == cuda::kCanUse64BitStreamMemOps) FAKE_CALL(can_use_64_bit_stream_mem_ops);
  const auto found = values.find(attribute);
  if (found == values.end()) return cuda::kInvalidValue;
  // Set to 1: GPUs without it.
  const bool lacks =
      (attribute == cuda::kDmaBufSupported && Gpus().SettingOf("lack_dma_bufs") != 0) ||
      (attribute == cuda::kRdmaWritesOrdering &&
       Gpus().SettingOf("lack_rdma_writes_ordering") != 0);
  *value = lacks ? 0 : found->second;
  return cuda::kSuccess;
}
cuda::Result cuDeviceCanAccessPeer(int* can, cuda::Device device, cuda::Device peer) {
  *can = device != peer && IsDevice(device) && IsDevice(peer) && Gpus().Reaches(device, peer);
  return cuda::kSuccess;
}

cuda::Result cuDevicePrimaryCtxRetain(cuda::Context* context, cuda::Device device) {
  FAKE_CALL(cuDevicePrimaryCtxRetain);
  if (!IsDevice(device)) return kInvalidDevice;
  const std::lock_guard lock(ContextsMutex());
  FakeContext* retained = nullptr;
  const cuda::Result result = gantry::fake_gpu::Retain(device, &retained);
  *context = reinterpret_cast<cuda::Context>(retained);
  return result;
}
cuda::Result cuDevicePrimaryCtxRelease_v2(cuda::Device device) {
  const std::lock_guard lock(ContextsMutex());
  FakeContext* const held = ContextOf(device);
  if (held == nullptr || held->retained == 0) return cuda::kInvalidContext;
  if (--held->retained == 0) gantry::fake_gpu::End(*held);
  return cuda::kSuccess;
}
cuda::Result cuDevicePrimaryCtxReset_v2(cuda::Device device) {
  const std::lock_guard lock(ContextsMutex());
  FakeContext* const held = ContextOf(device);
  Memory().UnregisterAll();  // of all contexts: a program that resets one has no other here
  if (held != nullptr) gantry::fake_gpu::End(*held);
  return cuda::kSuccess;
}
cuda::Result cuCtxPushCurrent_v2(cuda::Context context) {
  if (context == nullptr) return cuda::kInvalidContext;
  const std::lock_guard lock(ContextsMutex());
  auto* pushed = reinterpret_cast<FakeContext*>(context);
  if (pushed->id == 0) return cuda::kContextIsDestroyed;
  current.push_back(pushed);
  return cuda::kSuccess;
}
cuda::Result cuCtxPopCurrent_v2(cuda::Context* context) {
  if (current.empty()) return cuda::kInvalidContext;
  *context = reinterpret_cast<cuda::Context>(current.back());
  current.pop_back();
  return cuda::kSuccess;
}
cuda::Result cuCtxGetCurrent(cuda::Context* context) {
  if (!initialized) return cuda::kNotInitialized;
  FAKE_CALL(cuCtxGetCurrent);
  *context = current.empty() ? nullptr : reinterpret_cast<cuda::Context>(current.back());
  return cuda::kSuccess;
}
cuda::Result cuCtxGetDevice(cuda::Device* device) {
  FAKE_CALL(cuCtxGetDevice);
  if (current.empty()) return cuda::kInvalidContext;
  *device = current.back()->ordinal;
  return cuda::kSuccess;
}
cuda::Result cuCtxGetId(cuda::Context context, unsigned long long* id) {
  FAKE_CALL(cuCtxGetId);
  if (context == nullptr && current.empty()) return cuda::kInvalidContext;
  *id = (context == nullptr ? current.back() : reinterpret_cast<FakeContext*>(context))->id;
  return *id == 0 ? cuda::kContextIsDestroyed : cuda::kSuccess;
}
// Call stacks are a half of what a context takes.
cuda::Result cuCtxSetLimit(int limit, size_t value) {
  FAKE_CALL_IN_CONTEXT(cuCtxSetLimit);
  if (limit != cuda::kLimitStackSize) return cuda::kSuccess;
  const std::lock_guard lock(ContextsMutex());
  return gantry::fake_gpu::SetStackSize(*current.back(), value);
}
cuda::Result cuCtxEnablePeerAccess(cuda::Context peer, unsigned) {
  FAKE_CALL_IN_CONTEXT(cuCtxEnablePeerAccess);
  const auto* other = reinterpret_cast<const FakeContext*>(peer);
  if (other == current.back()) return cuda::kInvalidContext;
  return gantry::fake_gpu::EnablePeer(*current.back(), other->gpu);
}

cuda::Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  FAKE_CALL_IN_CONTEXT(cuMemGetInfo);
  *free = Gpus().FreeBytes(current.back()->gpu);
  *total = Gpus().total_bytes();
  return cuda::kSuccess;
}
cuda::Result cuMemAlloc_v2(cuda::DevicePtr* address, size_t bytes) {
  FAKE_CALL_IN_CONTEXT(cuMemAlloc);
  return Memory().Allocate(BlockKind::kDevice, current.back()->gpu, bytes, address);
}
cuda::Result cuMemAllocManaged(cuda::DevicePtr* address, size_t bytes, unsigned) {
  FAKE_CALL_IN_CONTEXT(cuMemAllocManaged);
  return Memory().Allocate(BlockKind::kManaged, current.back()->gpu, bytes, address);
}
cuda::Result cuMemAllocAsync(cuda::DevicePtr* address, size_t bytes, cuda::Stream) {
  FAKE_CALL_IN_CONTEXT(cuMemAllocAsync);
  return Memory().Allocate(BlockKind::kPool, current.back()->gpu, bytes, address);
}
cuda::Result cuMemHostAlloc(void** host, size_t bytes, unsigned) {
  FAKE_CALL_IN_CONTEXT(cuMemHostAlloc);
  cuda::DevicePtr address = 0;
  const auto result = Memory().Allocate(BlockKind::kPinned, current.back()->gpu, bytes, &address);
  *host = reinterpret_cast<void*>(address);
  return result;
}
cuda::Result cuMemFree_v2(cuda::DevicePtr address) {
  FAKE_CALL_IN_CONTEXT(cuMemFree);
  return Memory().Free(address);
}
cuda::Result cuMemFreeHost(void* host) {
  return Memory().Free(reinterpret_cast<cuda::DevicePtr>(host));
}

cuda::Result cuPointerGetAttributes(unsigned count, int* attributes, void** values,
                                    cuda::DevicePtr address) {
  FAKE_CALL(cuPointerGetAttributes);
  const auto block = Memory().Around(address);
  for (unsigned i = 0; i < count; ++i) {
    const auto put32 = [&](uint32_t value) { std::memcpy(values[i], &value, sizeof(value)); };
    const auto put64 = [&](uint64_t value) { std::memcpy(values[i], &value, sizeof(value)); };
    const auto put8 = [&](bool value) { std::memcpy(values[i], &value, sizeof(value)); };
    const bool is_host =
        block && (block->kind == BlockKind::kPinned || block->kind == BlockKind::kRegistered);
    switch (attributes[i]) {
      case cuda::kPointerContext: {
        const std::lock_guard lock(ContextsMutex());
        const bool has_one = block && block->kind != BlockKind::kPiece;
        put64(has_one ? reinterpret_cast<uint64_t>(ContextOf(OrdinalOf(block->gpu))) : 0);
        break;
      }
      case cuda::kPointerMemoryType:
        put32(!block ? 0 : is_host ? cuda::kMemoryTypeHost : cuda::kMemoryTypeDevice);
        break;
      case cuda::kPointerBufferId:
        put64(block ? block->buffer_id : 0);
        break;
      case cuda::kPointerIsManaged:
        put8(block && block->kind == BlockKind::kManaged);
        break;
      case cuda::kPointerDeviceOrdinal:
        put32(block ? static_cast<uint32_t>(OrdinalOf(block->gpu)) : static_cast<uint32_t>(-2));
        break;
      case cuda::kPointerIsLegacyIpcCapable:
        put8(block && block->kind == BlockKind::kDevice && !IsMigSlice());
        break;
      case cuda::kPointerRangeStart:
      case cuda::kPointerMappingBase:
        put64(block ? block->base : 0);
        break;
      case cuda::kPointerRangeSize:
      case cuda::kPointerMappingSize:
        put64(block ? block->size : 0);
        break;
      case cuda::kPointerMempool:
        put64(block && block->kind == BlockKind::kPool ? 1 : 0);
        break;
      default:
        return cuda::kInvalidValue;
    }
  }
  return cuda::kSuccess;
}
cuda::Result cuMemGetAddressRange_v2(cuda::DevicePtr* base, size_t* size, cuda::DevicePtr address) {
  FAKE_CALL_IN_CONTEXT(cuMemGetAddressRange);
  const auto block = Memory().Around(address);
  if (!block) return kNotFound;
  *base = block->base;
  *size = block->size;
  return cuda::kSuccess;
}

}  // extern "C"
