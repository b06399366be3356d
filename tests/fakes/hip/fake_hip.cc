// libamdhip64 of machines without a GPU: the calls that Gantry and its tests make, with what AMD's
// runtime is documented to answer. Here devices, errors, and what an address is.
#include "tests/fakes/hip/fake_hip.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/fakes/hip/fake_hsa.h"

namespace gantry::fake_hip {

thread_local int current_device = 0;
thread_local hip::Result last_error = hip::kSuccess;

hip::Result UseContext(FakeContext** context) {
  if (!IsDevice(current_device)) return hip::kNoDevice;
  if (const int failure = Gpus().FailureOf("primary_context"); failure != 0) return failure;
  const std::lock_guard lock(fake_gpu::ContextsMutex());
  FakeContext* const held = fake_gpu::ContextOf(current_device);
  if (held != nullptr && held->id != 0) {
    *context = held;
    return held->error;
  }
  return fake_gpu::Retain(current_device, context);
}

namespace {

namespace hsa = gpu::hsa;

hsa::Status ExportDmaBuf(const void* address, size_t bytes, int* fd, uint64_t* offset) {
  if (const int failure = Gpus().FailureOf("hsa_amd_portable_export_dmabuf"); failure != 0)
    return failure;
  const Address at = AddressOf(address);
  const auto block = Memory().Around(at);
  const int file = block ? Memory().FileOf(*block) : -1;
  if (file < 0) return hsa::kErrorInvalidAllocation;
  if (bytes == 0 || bytes > block->base + block->size - at) return hsa::kErrorInvalidArgument;
  *fd = fake_gpu::Duplicate(file);
  *offset = block->lead + (at - block->base);
  return *fd < 0 ? hsa::kErrorOutOfResources : hsa::kSuccess;
}

hsa::Status GetPointerInfo(const void* address, hsa::PointerInfo* info) {
  constexpr int kUnknown = 0, kOfHsa = 1, kLocked = 2;
  const auto block = Memory().Around(AddressOf(address));
  info->type = !block                                  ? kUnknown
               : block->kind == BlockKind::kRegistered ? kLocked
               : block->kind != BlockKind::kImported   ? kOfHsa
               : block->file.empty()                   ? hsa::kPointerOfGraphics
                                                       : hsa::kPointerOfIpc;
  if (!block) return hsa::kSuccess;
  info->agent_base = PointerTo(block->base);
  info->bytes = block->size;
  return hsa::kSuccess;
}

std::optional<int> AttributeOf(int attribute) {
  switch (attribute) {
    case hip::kComputeMajor:
      return 9;
    case hip::kComputeMinor:
      return 0;
    case hip::kMultiprocessorCount:
      return 8;
    case hip::kWarpSize:
      return 64;
    case hip::kIsLargeBar:
      return 1;
    case hip::kCanUseStreamWaitValue:
      return Gpus().SettingOf("lack_stream_writes") == 0;
    case hip::kVirtualMemorySupported:
      if (kVersion < hip::VersionOf(5, 3)) return std::nullopt;
      return 1;
    default:
      return std::nullopt;
  }
}

}  // namespace
}  // namespace gantry::fake_hip

using namespace gantry::fake_hip;
namespace hip = gantry::gpu::hip;
namespace fake_gpu = gantry::fake_gpu;

extern "C" {

hip::Result hipInit(unsigned) {
  return Call("hipInit", [] {
    static const HsaCalls calls = {ExportDmaBuf, GetPointerInfo,
                                   Gpus().SettingOf("lack_dma_bufs") == 0};
    fake_hsa_begin(&calls);
    return Gpus().visible().empty() ? hip::kNoDevice : hip::kSuccess;
  });
}
hip::Result hipRuntimeGetVersion(int* answer) {
  *answer = kVersion;
  return hip::kSuccess;
}
const char* hipGetErrorName(hip::Result error) {
  static const std::map<int, const char*> names = {{0, "hipSuccess"},
                                                   {1, "hipErrorInvalidValue"},
                                                   {2, "hipErrorOutOfMemory"},
                                                   {17, "hipErrorInvalidDevicePointer"},
                                                   {100, "hipErrorNoDevice"},
                                                   {101, "hipErrorInvalidDevice"},
                                                   {201, "hipErrorInvalidContext"},
                                                   {217, "hipErrorPeerAccessUnsupported"},
                                                   {400, "hipErrorInvalidHandle"},
                                                   {600, "hipErrorNotReady"},
                                                   {801, "hipErrorNotSupported"},
                                                   {999, "hipErrorUnknown"}};
  const auto found = names.find(error);
  return found == names.end() ? "hipErrorUnknown" : found->second;
}
const char* hipGetErrorString(hip::Result error) { return hipGetErrorName(error); }
hip::Result hipGetLastError() { return std::exchange(last_error, hip::kSuccess); }
hip::Result hipPeekAtLastError() { return last_error; }

hip::Result hipGetDeviceCount(int* count) {
  return Call("hipGetDeviceCount", [&] {
    *count = static_cast<int>(Gpus().visible().size());
    return *count == 0 ? hip::kNoDevice : hip::kSuccess;
  });
}
hip::Result hipGetDevice(int* ordinal) {
  return Call("hipGetDevice", [&] {
    *ordinal = current_device;
    return hip::kSuccess;
  });
}
hip::Result hipSetDevice(int ordinal) {
  return Call("hipSetDevice", [&] {
    if (!IsDevice(ordinal)) return hip::kInvalidDevice;
    current_device = ordinal;
    return hip::kSuccess;
  });
}
hip::Result hipDeviceReset() {
  return Call("hipDeviceReset", [] {
    const std::lock_guard lock(fake_gpu::ContextsMutex());
    Memory().UnregisterAll();
    if (FakeContext* const held = fake_gpu::ContextOf(current_device)) fake_gpu::End(*held);
    return hip::kSuccess;
  });
}
hip::Result hipDeviceGetName(char* name, int length, hip::Device) {
  std::snprintf(name, static_cast<size_t>(length), "Fake AMD GPU");
  return hip::kSuccess;
}
hip::Result hipDeviceGetUuid(hip::Uuid* uuid, hip::Device device) {
  return Call("hipDeviceGetUuid", [&] {
    if (!IsDevice(device)) return hip::kInvalidDevice;
    char text[sizeof(uuid->bytes) + 1];
    std::snprintf(text, sizeof(text), "fafafafafafafa%02x", static_cast<unsigned>(GpuAt(device)));
    std::memcpy(uuid->bytes, text, sizeof(uuid->bytes));
    return hip::kSuccess;
  });
}
hip::Result hipDeviceGetPCIBusId(char* text, int length, int device) {
  if (!IsDevice(device)) return hip::kInvalidDevice;
  std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", 0xa + 0x11 * GpuAt(device));
  return hip::kSuccess;
}
hip::Result hipDeviceTotalMem(size_t* bytes, hip::Device) {
  *bytes = Gpus().total_bytes();
  return hip::kSuccess;
}
hip::Result hipDeviceGetAttribute(int* value, int attribute, int device) {
  return Call("hipDeviceGetAttribute", [&]() -> hip::Result {
    if (!IsDevice(device)) return hip::kInvalidDevice;
    const auto known = AttributeOf(attribute);
    if (!known) return hip::kInvalidValue;
    *value = *known;
    return hip::kSuccess;
  });
}
hip::Result hipDeviceCanAccessPeer(int* can, int device, int peer) {
  return Call("hipDeviceCanAccessPeer", [&] {
    if (!IsDevice(device) || !IsDevice(peer)) return hip::kInvalidDevice;
    *can = device != peer && Gpus().Reaches(GpuAt(device), GpuAt(peer));
    return hip::kSuccess;
  });
}
hip::Result hipDeviceEnablePeerAccess(int peer, unsigned) {
  return CallOnDevice("hipDeviceEnablePeerAccess", [&](FakeContext& context) -> hip::Result {
    if (!IsDevice(peer) || peer == context.ordinal) return hip::kInvalidDevice;
    return fake_gpu::EnablePeer(context, GpuAt(peer));
  });
}
hip::Result hipMemGetInfo(size_t* free, size_t* total) {
  return CallOnDevice("hipMemGetInfo", [&](FakeContext& context) {
    *free = Gpus().FreeBytes(context.gpu);
    *total = Gpus().total_bytes();
    return hip::kSuccess;
  });
}

hip::Result hipPointerGetAttribute(void* value, int attribute, void* address) {
  return Call("hipPointerGetAttribute", [&]() -> hip::Result {
    const auto block = Memory().Around(AddressOf(address));
    if (!block) return hip::kInvalidValue;
    const auto put32 = [&](int number) { std::memcpy(value, &number, sizeof(number)); };
    const bool is_hosts =
        block->kind == BlockKind::kPinned || block->kind == BlockKind::kRegistered;
    const hip::MemoryTypes types = hip::MemoryTypesOf(kVersion);
    const bool is_managed = block->kind == BlockKind::kManaged;
    switch (attribute) {
      case hip::kPointerMemoryType:
        put32(is_hosts                           ? types.host
              : is_managed && types.managed >= 0 ? types.managed
                                                 : types.device);
        return hip::kSuccess;
      case hip::kPointerBufferId:
        put32(static_cast<int>(block->buffer_id - 1));  // from 0 on
        return hip::kSuccess;
      case hip::kPointerIsManaged:
        std::memcpy(value, &is_managed, sizeof(is_managed));
        return hip::kSuccess;
      case hip::kPointerDeviceOrdinal:
        put32(fake_gpu::OrdinalOf(block->gpu));
        return hip::kSuccess;
      case hip::kPointerMempool:
        return hip::kNotSupported;
      default:
        return hip::kInvalidValue;
    }
  });
}
hip::Result hipMemGetAddressRange(void** base, size_t* size, void* address) {
  return Call("hipMemGetAddressRange", [&] {
    const auto block = Memory().Around(AddressOf(address));
    if (!block) return hip::kInvalidDevicePointer;
    *base = PointerTo(block->base);
    *size = block->size;
    return hip::kSuccess;
  });
}

}  // extern "C"
