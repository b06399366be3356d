// Our declarations of HIP, HSA and HIPRTC beside those of ROCm 6 and 7, as data: their headers are
// not to be had from the distribution. Of hip_runtime_api.h and hiprtc.h: what AMD's own bindings
// hip-python 6.2.0, 6.4.4 and 7.1.1 were compiled with (chip.pxd, chiprtc.pxd). Of hsa.h and
// hsa_ext_amd.h: ROCR-Runtime of ROCm 6, rocr-runtime in rocm-systems of ROCm 7.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <type_traits>

#include "lib/gpu/hip/hip_abi.h"

namespace gantry::gpu {
namespace {

constexpr int kRocm62 = 60241133;  // HIP_VERSION of the three
constexpr int kRocm64 = 60443484;
constexpr int kRocm71 = 70152802;

struct Value {
  const char* name;
  long long ours;
  long long rocm62, rocm64, rocm71;
};
constexpr Value kValues[] = {
    {"hipSuccess", hip::kSuccess, 0, 0, 0},
    {"hipErrorInvalidValue", hip::kInvalidValue, 1, 1, 1},
    {"hipErrorOutOfMemory", hip::kOutOfMemory, 2, 2, 2},
    {"hipErrorNotInitialized", hip::kNotInitialized, 3, 3, 3},
    {"hipErrorDeinitialized", hip::kDeinitialized, 4, 4, 4},
    {"hipErrorInvalidDevicePointer", hip::kInvalidDevicePointer, 17, 17, 17},
    {"hipErrorNoDevice", hip::kNoDevice, 100, 100, 100},
    {"hipErrorInvalidDevice", hip::kInvalidDevice, 101, 101, 101},
    {"hipErrorInvalidContext", hip::kInvalidContext, 201, 201, 201},
    {"hipErrorInvalidHandle", hip::kInvalidHandle, 400, 400, 400},
    {"hipErrorNotReady", hip::kNotReady, 600, 600, 600},
    {"hipErrorPeerAccessAlreadyEnabled", hip::kPeerAccessAlreadyEnabled, 704, 704, 704},
    {"hipErrorContextIsDestroyed", hip::kContextIsDestroyed, 709, 709, 709},
    {"hipErrorHostMemoryAlreadyRegistered", hip::kHostMemoryAlreadyRegistered, 712, 712, 712},
    {"hipErrorHostMemoryNotRegistered", hip::kHostMemoryNotRegistered, 713, 713, 713},
    {"hipErrorNotSupported", hip::kNotSupported, 801, 801, 801},
    {"hipErrorStreamCaptureUnsupported", hip::kStreamCaptureUnsupported, 900, 900, 900},
    {"hipErrorStreamCaptureInvalidated", hip::kStreamCaptureInvalidated, 901, 901, 901},
    {"hipErrorStreamCaptureImplicit", hip::kStreamCaptureImplicit, 906, 906, 906},
    {"hipDeviceAttributeComputeCapabilityMajor", hip::kComputeMajor, 23, 23, 23},
    {"hipDeviceAttributeComputeCapabilityMinor", hip::kComputeMinor, 61, 61, 61},
    {"hipDeviceAttributeMultiprocessorCount", hip::kMultiprocessorCount, 63, 63, 63},
    {"hipDeviceAttributeWarpSize", hip::kWarpSize, 87, 87, 87},
    {"hipDeviceAttributeVirtualMemoryManagementSupported", hip::kVirtualMemorySupported, 89, 89,
     89},
    {"hipDeviceAttributeIsLargeBar", hip::kIsLargeBar, 10011, 10011, 10011},
    {"hipDeviceAttributeCanUseStreamWaitValue", hip::kCanUseStreamWaitValue, 10013, 10013, 10013},
    {"HIP_POINTER_ATTRIBUTE_MEMORY_TYPE", hip::kPointerMemoryType, 2, 2, 2},
    {"HIP_POINTER_ATTRIBUTE_BUFFER_ID", hip::kPointerBufferId, 7, 7, 7},
    {"HIP_POINTER_ATTRIBUTE_IS_MANAGED", hip::kPointerIsManaged, 8, 8, 8},
    {"HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL", hip::kPointerDeviceOrdinal, 9, 9, 9},
    {"HIP_POINTER_ATTRIBUTE_MEMPOOL_HANDLE", hip::kPointerMempool, 17, 17, 17},
    {"hipMemoryTypeHost", hip::MemoryTypesOf(kRocm62).host, 1, 1, 1},
    {"hipMemoryTypeDevice", hip::MemoryTypesOf(kRocm62).device, 2, 2, 2},
    {"hipMemoryTypeManaged", hip::MemoryTypesOf(kRocm62).managed, 3, 3, 3},
    {"hipMemHandleTypePosixFileDescriptor", hip::kHandleTypePosixFd, 1, 1, 1},
    {"hipMemAllocationTypePinned", hip::kAllocationTypePinned, 1, 1, 1},
    {"hipMemLocationTypeDevice", hip::kLocationTypeDevice, 1, 1, 1},
    {"hipMemAccessFlagsProtReadWrite", hip::kAccessReadWrite, 3, 3, 3},
    {"hipExternalMemoryHandleTypeOpaqueFd", hip::kExternalMemoryOpaqueFd, 1, 1, 1},
    {"hipMemcpyDefault", hip::kMemcpyDefault, 4, 4, 4},
    {"hipStreamCaptureModeRelaxed", hip::kCaptureModeRelaxed, 2, 2, 2},
    {"hipStreamCaptureStatusNone", hip::kNotCaptured, 0, 0, 0},
    {"hipStreamCaptureStatusActive", hip::kCaptured, 1, 1, 1},
    {"hipStreamCaptureStatusInvalidated", hip::kCaptureSpoilt, 2, 2, 2},
    {"hipStreamNonBlocking", hip::kStreamNonBlocking, 1, 1, 1},
    {"hipEventDisableTiming", hip::kEventDisableTiming, 2, 2, 2},
    {"hipHostRegisterPortable", hip::kHostRegisterPortable, 1, 1, 1},
    {"hipHostRegisterMapped", hip::kHostRegisterMapped, 2, 2, 2},
    {"hipIpcMemLazyEnablePeerAccess", hip::LazyEnablePeerAccessOf(kRocm62), 1, 1, 1},
    {"HIPRTC_SUCCESS", hiprtc::kSuccess, 0, 0, 0},
    {"HIPRTC_ERROR_INVALID_INPUT", hiprtc::kErrorInvalidInput, 3, 3, 3},
    {"HIPRTC_ERROR_COMPILATION", hiprtc::kErrorCompilation, 6, 6, 6},
};

TEST(HipReleases, NumbersAreThoseOfRocm6And7) {
  for (const int version : {kRocm64, kRocm71}) {
    EXPECT_EQ(hip::MemoryTypesOf(version).host, hip::MemoryTypesOf(kRocm62).host);
    EXPECT_EQ(hip::MemoryTypesOf(version).device, hip::MemoryTypesOf(kRocm62).device);
    EXPECT_EQ(hip::MemoryTypesOf(version).managed, hip::MemoryTypesOf(kRocm62).managed);
    EXPECT_EQ(hip::LazyEnablePeerAccessOf(version), hip::LazyEnablePeerAccessOf(kRocm62));
  }
  for (const Value& value : kValues) {
    EXPECT_EQ(value.ours, value.rocm62) << value.name;
    EXPECT_EQ(value.ours, value.rocm64) << value.name;
    EXPECT_EQ(value.ours, value.rocm71) << value.name;
  }
}

// hsa.h and hsa_ext_amd.h: the same in both.
constexpr struct {
  const char* name;
  long long ours, theirs;
} kHsaValues[] = {
    {"HSA_STATUS_SUCCESS", hsa::kSuccess, 0},
    {"HSA_STATUS_ERROR_INVALID_ARGUMENT", hsa::kErrorInvalidArgument, 0x1001},
    {"HSA_STATUS_ERROR_INVALID_ALLOCATION", hsa::kErrorInvalidAllocation, 0x1003},
    {"HSA_STATUS_ERROR_INVALID_AGENT", hsa::kErrorInvalidAgent, 0x1004},
    {"HSA_STATUS_ERROR_OUT_OF_RESOURCES", hsa::kErrorOutOfResources, 0x1008},
    {"HSA_STATUS_ERROR_NOT_INITIALIZED", hsa::kErrorNotInitialized, 0x100b},
    {"HSA_SYSTEM_INFO_VERSION_MAJOR", hsa::kSystemInfoVersionMajor, 0},
    {"HSA_AMD_SYSTEM_INFO_DMABUF_SUPPORTED", hsa::kSystemInfoDmaBufSupported, 0x204},
    {"HSA_EXT_POINTER_TYPE_GRAPHICS", hsa::kPointerOfGraphics, 3},
    {"HSA_EXT_POINTER_TYPE_IPC", hsa::kPointerOfIpc, 4},
};

TEST(HipReleases, NumbersOfHsaAreThoseOfRocm6And7) {
  for (const auto& value : kHsaValues) EXPECT_EQ(value.ours, value.theirs) << value.name;
}

// How the processor's calling convention passes a value: p: a pointer, i: four bytes in a register,
// l: eight, h: a handle of 64 bytes on the stack.
template <typename T>
constexpr char PassedAs() {
  if constexpr (std::is_pointer_v<T>) {
    return 'p';
  } else if constexpr (std::is_class_v<T>) {
    return sizeof(T) == 64 ? 'h' : '?';
  } else {
    return sizeof(T) == 4 ? 'i' : sizeof(T) == 8 ? 'l' : '?';
  }
}
template <typename R, typename... A>
std::string PassedBy(R (*)(A...)) {
  return std::string{PassedAs<R>(), '(', PassedAs<A>()..., ')'};
}

struct Call {
  const char* name;
  std::string ours;
  const char* theirs;
};
#define CALL(library, ours, name, theirs) \
  { name, PassedBy(decltype(library::Functions::ours)()), theirs }
// Those of 6.2, 6.4 and 7.1 differ in const alone.
const Call kCalls[] = {
    CALL(hip, runtime_get_version, "hipRuntimeGetVersion", "i(p)"),
    CALL(hip, get_error_name, "hipGetErrorName", "p(i)"),
    CALL(hip, get_error_string, "hipGetErrorString", "p(i)"),
    CALL(hip, get_last_error, "hipGetLastError", "i()"),
    CALL(hip, peek_at_last_error, "hipPeekAtLastError", "i()"),
    CALL(hip, device_get_count, "hipGetDeviceCount", "i(p)"),
    CALL(hip, get_device, "hipGetDevice", "i(p)"),
    CALL(hip, set_device, "hipSetDevice", "i(i)"),
    CALL(hip, device_get_name, "hipDeviceGetName", "i(pii)"),
    CALL(hip, device_get_pci_bus_id, "hipDeviceGetPCIBusId", "i(pii)"),
    CALL(hip, device_total_mem, "hipDeviceTotalMem", "i(pi)"),
    CALL(hip, device_get_attribute, "hipDeviceGetAttribute", "i(pii)"),
    CALL(hip, mem_get_info, "hipMemGetInfo", "i(pp)"),
    CALL(hip, mem_alloc, "hipMalloc", "i(pl)"),
    CALL(hip, mem_free, "hipFree", "i(p)"),
    CALL(hip, pointer_get_attribute, "hipPointerGetAttribute", "i(pip)"),
    CALL(hip, mem_get_address_range, "hipMemGetAddressRange", "i(ppp)"),
    CALL(hip, memcpy_async, "hipMemcpyAsync", "i(pplip)"),
    CALL(hip, memset_async, "hipMemsetAsync", "i(pilp)"),
    CALL(hip, thread_exchange_stream_capture_mode, "hipThreadExchangeStreamCaptureMode", "i(p)"),
    CALL(hip, stream_create, "hipStreamCreateWithFlags", "i(pi)"),
    CALL(hip, stream_destroy, "hipStreamDestroy", "i(p)"),
    CALL(hip, stream_synchronize, "hipStreamSynchronize", "i(p)"),
    CALL(hip, event_create, "hipEventCreateWithFlags", "i(pi)"),
    CALL(hip, event_destroy, "hipEventDestroy", "i(p)"),
    CALL(hip, event_record, "hipEventRecord", "i(pp)"),
    CALL(hip, event_query, "hipEventQuery", "i(p)"),
    CALL(hip, event_synchronize, "hipEventSynchronize", "i(p)"),
    CALL(hip, device_get_uuid, "hipDeviceGetUuid", "i(pi)"),
    CALL(hip, ipc_get_mem_handle, "hipIpcGetMemHandle", "i(pp)"),
    CALL(hip, ipc_open_mem_handle, "hipIpcOpenMemHandle", "i(phi)"),
    CALL(hip, ipc_close_mem_handle, "hipIpcCloseMemHandle", "i(p)"),
    CALL(hip, mem_address_reserve, "hipMemAddressReserve", "i(pllpl)"),
    CALL(hip, mem_address_free, "hipMemAddressFree", "i(pl)"),
    CALL(hip, mem_create, "hipMemCreate", "i(plpl)"),
    CALL(hip, mem_map, "hipMemMap", "i(pllpl)"),
    CALL(hip, mem_unmap, "hipMemUnmap", "i(pl)"),
    CALL(hip, mem_release, "hipMemRelease", "i(p)"),
    CALL(hip, mem_set_access, "hipMemSetAccess", "i(plpl)"),
    CALL(hip, mem_retain_allocation_handle, "hipMemRetainAllocationHandle", "i(pp)"),
    CALL(hip, mem_export_to_shareable_handle, "hipMemExportToShareableHandle", "i(ppil)"),
    CALL(hip, mem_import_from_shareable_handle, "hipMemImportFromShareableHandle", "i(ppi)"),
    CALL(hip, import_external_memory, "hipImportExternalMemory", "i(pp)"),
    CALL(hip, external_memory_get_mapped_buffer, "hipExternalMemoryGetMappedBuffer", "i(ppp)"),
    CALL(hip, destroy_external_memory, "hipDestroyExternalMemory", "i(p)"),
    CALL(hip, memcpy_batch_async, "hipMemcpyBatchAsync", "i(ppplpplpp)"),  // since 7.1
    CALL(hip, memcpy_2d_async, "hipMemcpy2DAsync", "i(plplllip)"),
    CALL(hip, mem_host_register, "hipHostRegister", "i(pli)"),
    CALL(hip, mem_host_unregister, "hipHostUnregister", "i(p)"),
    CALL(hip, mem_host_get_device_pointer, "hipHostGetDevicePointer", "i(ppi)"),
    CALL(hip, device_can_access_peer, "hipDeviceCanAccessPeer", "i(pii)"),
    CALL(hip, enable_peer_access, "hipDeviceEnablePeerAccess", "i(ii)"),
    CALL(hip, module_load_data, "hipModuleLoadData", "i(pp)"),
    CALL(hip, module_unload, "hipModuleUnload", "i(p)"),
    CALL(hip, module_get_function, "hipModuleGetFunction", "i(ppp)"),
    CALL(hip, launch_kernel, "hipModuleLaunchKernel", "i(piiiiiiippp)"),
    CALL(hip, stream_write_value_64, "hipStreamWriteValue64", "i(ppli)"),
    CALL(hip, stream_is_capturing, "hipStreamIsCapturing", "i(pp)"),
    CALL(hip, stream_get_device, "hipStreamGetDevice", "i(pp)"),
    CALL(hip, stream_get_id, "hipStreamGetId", "i(pp)"),  // since 7.1
    CALL(hiprtc, get_error_string, "hiprtcGetErrorString", "p(i)"),
    CALL(hiprtc, create_program, "hiprtcCreateProgram", "i(pppipp)"),
    CALL(hiprtc, destroy_program, "hiprtcDestroyProgram", "i(p)"),
    CALL(hiprtc, compile_program, "hiprtcCompileProgram", "i(pip)"),
    CALL(hiprtc, get_program_log_size, "hiprtcGetProgramLogSize", "i(pp)"),
    CALL(hiprtc, get_program_log, "hiprtcGetProgramLog", "i(pp)"),
    CALL(hiprtc, get_code_size, "hiprtcGetCodeSize", "i(pp)"),
    CALL(hiprtc, get_code, "hiprtcGetCode", "i(pp)"),
    // hsa.h, and hsa_ext_amd.h since its interface 1.1, which are the same in 6 and 7.
    CALL(hsa, system_get_info, "hsa_system_get_info", "i(ip)"),
    CALL(hsa, amd_pointer_info, "hsa_amd_pointer_info", "i(ppppp)"),
    CALL(hsa, status_string, "hsa_status_string", "i(ip)"),
    CALL(hsa, amd_portable_export_dmabuf, "hsa_amd_portable_export_dmabuf", "i(plpp)"),
};

TEST(HipReleases, CallsArePassedAsThoseOfRocm6And7) {
  for (const Call& call : kCalls) EXPECT_EQ(call.ours, call.theirs) << call.name;
}

struct Place {
  const char* name;
  size_t ours, theirs;
};
#define SIZE(ours, name, theirs) \
  { name, sizeof(ours), theirs }
#define FIELD(ours, field, name, theirs) \
  { name, offsetof(ours, field), theirs }
// The same in 6.2, 6.4 and 7.1; since 7.0 requestedHandleTypes is another name for the same place.
const Place kPlaces[] = {
    SIZE(hip::Uuid, "hipUUID", 16),
    SIZE(hip::IpcMemHandle, "hipIpcMemHandle_t", 64),
    SIZE(hip::MemLocation, "hipMemLocation", 8),
    FIELD(hip::MemLocation, type, "hipMemLocation.type", 0),
    FIELD(hip::MemLocation, id, "hipMemLocation.id", 4),
    SIZE(hip::MemAccessDesc, "hipMemAccessDesc", 12),
    FIELD(hip::MemAccessDesc, location, "hipMemAccessDesc.location", 0),
    FIELD(hip::MemAccessDesc, flags, "hipMemAccessDesc.flags", 8),
    SIZE(hip::MemAllocationProp, "hipMemAllocationProp", 32),
    FIELD(hip::MemAllocationProp, type, "hipMemAllocationProp.type", 0),
    FIELD(hip::MemAllocationProp, requested_handle_types,
          "hipMemAllocationProp.requestedHandleType", 4),
    FIELD(hip::MemAllocationProp, location, "hipMemAllocationProp.location", 8),
    FIELD(hip::MemAllocationProp, win32_metadata, "hipMemAllocationProp.win32HandleMetaData", 16),
    FIELD(hip::MemAllocationProp, flags.compression_type,
          "hipMemAllocationProp.allocFlags.compressionType", 24),
    FIELD(hip::MemAllocationProp, flags.gpu_direct_rdma_capable,
          "hipMemAllocationProp.allocFlags.gpuDirectRDMACapable", 25),
    FIELD(hip::MemAllocationProp, flags.usage, "hipMemAllocationProp.allocFlags.usage", 26),
    SIZE(hip::ExternalMemoryHandleDesc, "hipExternalMemoryHandleDesc", 104),
    FIELD(hip::ExternalMemoryHandleDesc, type, "hipExternalMemoryHandleDesc.type", 0),
    FIELD(hip::ExternalMemoryHandleDesc, handle, "hipExternalMemoryHandleDesc.handle", 8),
    FIELD(hip::ExternalMemoryHandleDesc, size, "hipExternalMemoryHandleDesc.size", 24),
    FIELD(hip::ExternalMemoryHandleDesc, flags, "hipExternalMemoryHandleDesc.flags", 32),
    FIELD(hip::ExternalMemoryHandleDesc, reserved, "hipExternalMemoryHandleDesc.reserved", 36),
    SIZE(hip::ExternalMemoryBufferDesc, "hipExternalMemoryBufferDesc", 88),
    FIELD(hip::ExternalMemoryBufferDesc, offset, "hipExternalMemoryBufferDesc.offset", 0),
    FIELD(hip::ExternalMemoryBufferDesc, size, "hipExternalMemoryBufferDesc.size", 8),
    FIELD(hip::ExternalMemoryBufferDesc, flags, "hipExternalMemoryBufferDesc.flags", 16),
    FIELD(hip::ExternalMemoryBufferDesc, reserved, "hipExternalMemoryBufferDesc.reserved", 20),
    // hsa_ext_amd.h with its interface 1.13 (ROCm 7); before, it ends with global_flags, and
    // later ones append: the runtime writes no more than the size that it is given.
    SIZE(hsa::PointerInfo, "hsa_amd_pointer_info_t", 56),
    FIELD(hsa::PointerInfo, size, "hsa_amd_pointer_info_t.size", 0),
    FIELD(hsa::PointerInfo, type, "hsa_amd_pointer_info_t.type", 4),
    FIELD(hsa::PointerInfo, agent_base, "hsa_amd_pointer_info_t.agentBaseAddress", 8),
    FIELD(hsa::PointerInfo, host_base, "hsa_amd_pointer_info_t.hostBaseAddress", 16),
    FIELD(hsa::PointerInfo, bytes, "hsa_amd_pointer_info_t.sizeInBytes", 24),
    FIELD(hsa::PointerInfo, user_data, "hsa_amd_pointer_info_t.userData", 32),
    FIELD(hsa::PointerInfo, agent_owner, "hsa_amd_pointer_info_t.agentOwner", 40),
    FIELD(hsa::PointerInfo, global_flags, "hsa_amd_pointer_info_t.global_flags", 48),
    FIELD(hsa::PointerInfo, registered, "hsa_amd_pointer_info_t.registered", 52),
};

TEST(HipReleases, StructuresAreLaidOutAsThoseOfRocm6And7) {
  for (const Place& place : kPlaces) EXPECT_EQ(place.ours, place.theirs) << place.name;
}

}  // namespace
}  // namespace gantry::gpu
