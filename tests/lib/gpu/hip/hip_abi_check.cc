// Compares our declarations of the ABI of HIP and HSA with the vendor's headers, where some are
// installed (tools/hip-headers has Debian's): when this compiles they agree. It holds no code.
#if __has_include(<hip/hip_runtime_api.h>) && __has_include(<hsa/hsa_ext_amd.h>)

// NOLINTNEXTLINE(bugprone-reserved-identifier): the vendor's headers ask for it
#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <type_traits>

#include "lib/gpu/hip/hip_abi.h"

namespace gantry::gpu::hip {
namespace {

template <typename Ours, typename Theirs>
inline constexpr bool kSamePlace =
    sizeof(Ours) == sizeof(Theirs) &&  // NOLINT(misc-redundant-expression): of two types
    alignof(Ours) == alignof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
requires(sizeof...(A) == sizeof...(B)) struct SameCall<R (*)(A...), S (*)(B...)>
    : std::bool_constant<kSamePlace<R, S> && (kSamePlace<A, B> && ...)> {
};

#define SAME_CALL(ours, theirs) \
  static_assert(SameCall<decltype(Functions::ours), decltype(&theirs)>::value, #theirs)
// Some have templates of the same name for C++ beside them.
#define SAME_C_CALL(ours, theirs, type)                                                           \
  static_assert(SameCall<decltype(Functions::ours), decltype(static_cast<type>(&theirs))>::value, \
                #theirs)

SAME_CALL(runtime_get_version, hipRuntimeGetVersion);
SAME_CALL(get_error_name, hipGetErrorName);
SAME_CALL(get_error_string, hipGetErrorString);
SAME_CALL(get_last_error, hipGetLastError);
SAME_CALL(peek_at_last_error, hipPeekAtLastError);
SAME_CALL(device_get_count, hipGetDeviceCount);
SAME_CALL(get_device, hipGetDevice);
SAME_CALL(set_device, hipSetDevice);
SAME_CALL(device_get_name, hipDeviceGetName);
SAME_CALL(device_get_uuid, hipDeviceGetUuid);
SAME_CALL(device_get_pci_bus_id, hipDeviceGetPCIBusId);
SAME_CALL(device_total_mem, hipDeviceTotalMem);
SAME_CALL(device_get_attribute, hipDeviceGetAttribute);
SAME_CALL(mem_get_info, hipMemGetInfo);
SAME_C_CALL(mem_alloc, hipMalloc, hipError_t (*)(void**, size_t));
SAME_CALL(mem_free, hipFree);
SAME_CALL(pointer_get_attribute, hipPointerGetAttribute);
SAME_CALL(mem_get_address_range, hipMemGetAddressRange);
SAME_CALL(memcpy_async, hipMemcpyAsync);
SAME_CALL(memset_async, hipMemsetAsync);
SAME_CALL(thread_exchange_stream_capture_mode, hipThreadExchangeStreamCaptureMode);
SAME_CALL(stream_create, hipStreamCreateWithFlags);
SAME_CALL(stream_destroy, hipStreamDestroy);
SAME_CALL(stream_synchronize, hipStreamSynchronize);
SAME_CALL(event_create, hipEventCreateWithFlags);
SAME_CALL(event_destroy, hipEventDestroy);
SAME_CALL(event_record, hipEventRecord);
SAME_CALL(event_query, hipEventQuery);
SAME_CALL(event_synchronize, hipEventSynchronize);
SAME_CALL(ipc_get_mem_handle, hipIpcGetMemHandle);
SAME_CALL(ipc_open_mem_handle, hipIpcOpenMemHandle);
SAME_CALL(ipc_close_mem_handle, hipIpcCloseMemHandle);
SAME_CALL(mem_address_reserve, hipMemAddressReserve);
SAME_CALL(mem_address_free, hipMemAddressFree);
SAME_CALL(mem_create, hipMemCreate);
SAME_CALL(mem_map, hipMemMap);
SAME_CALL(mem_unmap, hipMemUnmap);
SAME_CALL(mem_release, hipMemRelease);
SAME_CALL(mem_set_access, hipMemSetAccess);
SAME_CALL(mem_retain_allocation_handle, hipMemRetainAllocationHandle);
SAME_CALL(mem_export_to_shareable_handle, hipMemExportToShareableHandle);
SAME_CALL(mem_import_from_shareable_handle, hipMemImportFromShareableHandle);
SAME_CALL(import_external_memory, hipImportExternalMemory);
SAME_CALL(external_memory_get_mapped_buffer, hipExternalMemoryGetMappedBuffer);
SAME_CALL(destroy_external_memory, hipDestroyExternalMemory);
SAME_CALL(memcpy_2d_async, hipMemcpy2DAsync);
SAME_CALL(mem_host_register, hipHostRegister);
SAME_CALL(mem_host_unregister, hipHostUnregister);
SAME_CALL(mem_host_get_device_pointer, hipHostGetDevicePointer);
SAME_CALL(device_can_access_peer, hipDeviceCanAccessPeer);
SAME_CALL(enable_peer_access, hipDeviceEnablePeerAccess);
SAME_CALL(module_load_data, hipModuleLoadData);
SAME_CALL(module_unload, hipModuleUnload);
SAME_CALL(module_get_function, hipModuleGetFunction);
SAME_CALL(launch_kernel, hipModuleLaunchKernel);
SAME_CALL(stream_write_value_64, hipStreamWriteValue64);
SAME_CALL(stream_is_capturing, hipStreamIsCapturing);

#define SAME_STRUCT(ours, theirs) static_assert(kSamePlace<ours, theirs>, #theirs)
#define SAME_FIELD(ours, our_field, theirs, their_field) \
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field), #their_field)
#define SAME_VALUE(ours, theirs) \
  static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs), #theirs)

SAME_STRUCT(Result, hipError_t);
SAME_STRUCT(Uuid, hipUUID);
SAME_STRUCT(IpcMemHandle, hipIpcMemHandle_t);
SAME_STRUCT(MemLocation, hipMemLocation);
SAME_STRUCT(MemAccessDesc, hipMemAccessDesc);
SAME_FIELD(MemAccessDesc, flags, hipMemAccessDesc, flags);
SAME_FIELD(ExternalMemoryHandleDesc, handle, hipExternalMemoryHandleDesc, handle);
SAME_FIELD(ExternalMemoryHandleDesc, size, hipExternalMemoryHandleDesc, size);
SAME_FIELD(ExternalMemoryHandleDesc, flags, hipExternalMemoryHandleDesc, flags);
SAME_FIELD(ExternalMemoryBufferDesc, size, hipExternalMemoryBufferDesc, size);
SAME_FIELD(ExternalMemoryBufferDesc, flags, hipExternalMemoryBufferDesc, flags);
static_assert(sizeof(ExternalMemoryHandleDesc) >= sizeof(hipExternalMemoryHandleDesc));
static_assert(sizeof(ExternalMemoryBufferDesc) >= sizeof(hipExternalMemoryBufferDesc));

SAME_VALUE(kSuccess, hipSuccess);
SAME_VALUE(kInvalidValue, hipErrorInvalidValue);
SAME_VALUE(kOutOfMemory, hipErrorOutOfMemory);
SAME_VALUE(kNotInitialized, hipErrorNotInitialized);
SAME_VALUE(kDeinitialized, hipErrorDeinitialized);
SAME_VALUE(kInvalidDevicePointer, hipErrorInvalidDevicePointer);
SAME_VALUE(kNoDevice, hipErrorNoDevice);
SAME_VALUE(kInvalidDevice, hipErrorInvalidDevice);
SAME_VALUE(kInvalidContext, hipErrorInvalidContext);
SAME_VALUE(kInvalidHandle, hipErrorInvalidHandle);
SAME_VALUE(kNotReady, hipErrorNotReady);
SAME_VALUE(kPeerAccessAlreadyEnabled, hipErrorPeerAccessAlreadyEnabled);
SAME_VALUE(kContextIsDestroyed, hipErrorContextIsDestroyed);
SAME_VALUE(kHostMemoryAlreadyRegistered, hipErrorHostMemoryAlreadyRegistered);
SAME_VALUE(kHostMemoryNotRegistered, hipErrorHostMemoryNotRegistered);
SAME_VALUE(kNotSupported, hipErrorNotSupported);
SAME_VALUE(kStreamCaptureUnsupported, hipErrorStreamCaptureUnsupported);
SAME_VALUE(kStreamCaptureInvalidated, hipErrorStreamCaptureInvalidated);
SAME_VALUE(kStreamCaptureImplicit, hipErrorStreamCaptureImplicit);
SAME_VALUE(kComputeMajor, hipDeviceAttributeComputeCapabilityMajor);
SAME_VALUE(kComputeMinor, hipDeviceAttributeComputeCapabilityMinor);
SAME_VALUE(kMultiprocessorCount, hipDeviceAttributeMultiprocessorCount);
SAME_VALUE(kWarpSize, hipDeviceAttributeWarpSize);
SAME_VALUE(kIsLargeBar, hipDeviceAttributeIsLargeBar);
SAME_VALUE(kCanUseStreamWaitValue, hipDeviceAttributeCanUseStreamWaitValue);
SAME_VALUE(kPointerMemoryType, HIP_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME_VALUE(kPointerBufferId, HIP_POINTER_ATTRIBUTE_BUFFER_ID);
SAME_VALUE(kPointerIsManaged, HIP_POINTER_ATTRIBUTE_IS_MANAGED);
SAME_VALUE(kPointerDeviceOrdinal, HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME_VALUE(kPointerMempool, HIP_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
SAME_VALUE(MemoryTypesOf(HIP_VERSION).host, hipMemoryTypeHost);
SAME_VALUE(MemoryTypesOf(HIP_VERSION).device, hipMemoryTypeDevice);
SAME_VALUE(LazyEnablePeerAccessOf(HIP_VERSION), hipIpcMemLazyEnablePeerAccess);
SAME_VALUE(kHandleTypePosixFd, hipMemHandleTypePosixFileDescriptor);
SAME_VALUE(kAllocationTypePinned, hipMemAllocationTypePinned);
SAME_VALUE(kLocationTypeDevice, hipMemLocationTypeDevice);
SAME_VALUE(kAccessReadWrite, hipMemAccessFlagsProtReadWrite);
SAME_VALUE(kExternalMemoryOpaqueFd, hipExternalMemoryHandleTypeOpaqueFd);
SAME_VALUE(kMemcpyDefault, hipMemcpyDefault);
SAME_VALUE(kStreamNonBlocking, hipStreamNonBlocking);
SAME_VALUE(kEventDisableTiming, hipEventDisableTiming);
SAME_VALUE(kHostRegisterPortable, hipHostRegisterPortable);
SAME_VALUE(kHostRegisterMapped, hipHostRegisterMapped);
SAME_VALUE(kCaptureModeRelaxed, hipStreamCaptureModeRelaxed);
SAME_VALUE(kNotCaptured, hipStreamCaptureStatusNone);
SAME_VALUE(kCaptured, hipStreamCaptureStatusActive);
SAME_VALUE(kCaptureSpoilt, hipStreamCaptureStatusInvalidated);

#if HIP_VERSION_MAJOR >= 6
SAME_VALUE(MemoryTypesOf(HIP_VERSION).managed, hipMemoryTypeManaged);
SAME_VALUE(kVirtualMemorySupported, hipDeviceAttributeVirtualMemoryManagementSupported);
SAME_CALL(stream_get_device, hipStreamGetDevice);
#endif
#if HIP_VERSION >= 50500000  // kVersionTypeFirst
using TheirProp = MemAllocationProp;
SAME_FIELD(TheirProp, requested_handle_types, hipMemAllocationProp, requestedHandleType);
SAME_FIELD(TheirProp, flags, hipMemAllocationProp, allocFlags);
#else
using TheirProp = MemAllocationPropOld;
SAME_FIELD(TheirProp, requested_handle_type, hipMemAllocationProp, requestedHandleType);
#endif
SAME_STRUCT(TheirProp, hipMemAllocationProp);
SAME_FIELD(TheirProp, type, hipMemAllocationProp, type);
SAME_FIELD(TheirProp, location, hipMemAllocationProp, location);
SAME_FIELD(TheirProp, win32_metadata, hipMemAllocationProp, win32HandleMetaData);
#if HIP_VERSION >= 70100000
SAME_CALL(stream_get_id, hipStreamGetId);
SAME_CALL(memcpy_batch_async, hipMemcpyBatchAsync);
#endif

}  // namespace
}  // namespace gantry::gpu::hip

namespace gantry::gpu::hsa {
namespace {

SAME_VALUE(kSuccess, HSA_STATUS_SUCCESS);
SAME_VALUE(kErrorInvalidArgument, HSA_STATUS_ERROR_INVALID_ARGUMENT);
SAME_VALUE(kErrorInvalidAllocation, HSA_STATUS_ERROR_INVALID_ALLOCATION);
SAME_VALUE(kErrorInvalidAgent, HSA_STATUS_ERROR_INVALID_AGENT);
SAME_VALUE(kErrorOutOfResources, HSA_STATUS_ERROR_OUT_OF_RESOURCES);
SAME_VALUE(kErrorNotInitialized, HSA_STATUS_ERROR_NOT_INITIALIZED);
SAME_VALUE(kSystemInfoVersionMajor, HSA_SYSTEM_INFO_VERSION_MAJOR);
SAME_VALUE(kPointerOfGraphics, HSA_EXT_POINTER_TYPE_GRAPHICS);
SAME_VALUE(kPointerOfIpc, HSA_EXT_POINTER_TYPE_IPC);
static_assert(sizeof(PointerInfo) >= sizeof(hsa_amd_pointer_info_t));
static_assert(offsetof(PointerInfo, type) == offsetof(hsa_amd_pointer_info_t, type));
#if HIP_VERSION_MAJOR >= 6
SAME_VALUE(kSystemInfoDmaBufSupported, HSA_AMD_SYSTEM_INFO_DMABUF_SUPPORTED);
static_assert(hip::SameCall<decltype(Functions::amd_portable_export_dmabuf),
                            decltype(&hsa_amd_portable_export_dmabuf)>::value);
#endif
static_assert(
    hip::SameCall<decltype(Functions::amd_pointer_info), decltype(&hsa_amd_pointer_info)>::value);
static_assert(
    hip::SameCall<decltype(Functions::system_get_info), decltype(&hsa_system_get_info)>::value);

}  // namespace
}  // namespace gantry::gpu::hsa

#endif
