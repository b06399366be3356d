// Compares our declarations of the CUDA driver's ABI with the vendor's header, where one is
// installed: when this compiles they agree. It holds no code.
#if __has_include(<cuda.h>)

#include <cuda.h>
#endif

// Older ones, and the kernel's header of the same name, have nothing to compare with.
#if defined(CUDA_VERSION) && CUDA_VERSION >= 12000

#include <type_traits>

#include "lib/gpu/cuda/cuda_abi.h"

namespace gantry::gpu::cuda {
namespace {

template <typename Ours, typename Theirs>
inline constexpr bool kSamePlace =
    sizeof(Ours) == sizeof(Theirs) &&
    alignof(Ours) == alignof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
requires(sizeof...(A) == sizeof...(B)) struct SameCall<R (*)(A...), S (*)(B...)>
    : std::bool_constant<kSamePlace<R, S> && (kSamePlace<A, B> && ...)> {
};

#define SAME_CALL(ours, theirs) \
  static_assert(SameCall<decltype(Functions::ours), decltype(&theirs)>::value, #theirs)

SAME_CALL(driver_get_version, cuDriverGetVersion);
SAME_CALL(get_error_name, cuGetErrorName);
SAME_CALL(get_error_string, cuGetErrorString);
SAME_CALL(device_get_count, cuDeviceGetCount);
SAME_CALL(device_get, cuDeviceGet);
SAME_CALL(device_get_name, cuDeviceGetName);
SAME_CALL(device_get_uuid, cuDeviceGetUuid);
SAME_CALL(device_get_pci_bus_id, cuDeviceGetPCIBusId);
SAME_CALL(device_total_mem, cuDeviceTotalMem);
SAME_CALL(device_get_attribute, cuDeviceGetAttribute);
SAME_CALL(primary_ctx_retain, cuDevicePrimaryCtxRetain);
SAME_CALL(primary_ctx_release, cuDevicePrimaryCtxRelease);
SAME_CALL(ctx_push_current, cuCtxPushCurrent);
SAME_CALL(ctx_pop_current, cuCtxPopCurrent);
SAME_CALL(mem_get_info, cuMemGetInfo);
SAME_CALL(mem_alloc, cuMemAlloc);
SAME_CALL(mem_free, cuMemFree);
SAME_CALL(pointer_get_attributes, cuPointerGetAttributes);
SAME_CALL(mem_get_address_range, cuMemGetAddressRange);
SAME_CALL(memcpy_async, cuMemcpyAsync);
SAME_CALL(memcpy_htod_async, cuMemcpyHtoDAsync);
SAME_CALL(memcpy_dtoh_async, cuMemcpyDtoHAsync);
SAME_CALL(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode);
SAME_CALL(memset_async, cuMemsetD8Async);
SAME_CALL(stream_create, cuStreamCreate);
SAME_CALL(stream_destroy, cuStreamDestroy);
SAME_CALL(stream_synchronize, cuStreamSynchronize);
SAME_CALL(event_create, cuEventCreate);
SAME_CALL(event_destroy, cuEventDestroy);
SAME_CALL(event_record, cuEventRecord);
SAME_CALL(event_query, cuEventQuery);
SAME_CALL(event_synchronize, cuEventSynchronize);
SAME_CALL(ipc_get_mem_handle, cuIpcGetMemHandle);
SAME_CALL(ipc_open_mem_handle, cuIpcOpenMemHandle);
SAME_CALL(ipc_close_mem_handle, cuIpcCloseMemHandle);
SAME_CALL(mem_address_reserve, cuMemAddressReserve);
SAME_CALL(mem_address_free, cuMemAddressFree);
SAME_CALL(mem_create, cuMemCreate);
SAME_CALL(mem_map, cuMemMap);
SAME_CALL(mem_unmap, cuMemUnmap);
SAME_CALL(mem_release, cuMemRelease);
SAME_CALL(mem_set_access, cuMemSetAccess);
SAME_CALL(mem_retain_allocation_handle, cuMemRetainAllocationHandle);
SAME_CALL(mem_export_to_shareable_handle, cuMemExportToShareableHandle);
SAME_CALL(mem_import_from_shareable_handle, cuMemImportFromShareableHandle);
SAME_CALL(mem_get_handle_for_address_range, cuMemGetHandleForAddressRange);
SAME_CALL(mem_host_register, cuMemHostRegister);
SAME_CALL(mem_host_unregister, cuMemHostUnregister);
SAME_CALL(mem_host_get_device_pointer, cuMemHostGetDevicePointer);
SAME_CALL(device_can_access_peer, cuDeviceCanAccessPeer);
SAME_CALL(enable_peer_access, cuCtxEnablePeerAccess);
SAME_CALL(module_load_data, cuModuleLoadData);
SAME_CALL(module_unload, cuModuleUnload);
SAME_CALL(module_get_function, cuModuleGetFunction);
SAME_CALL(launch_kernel, cuLaunchKernel);
SAME_CALL(memcpy_2d_async, cuMemcpy2DAsync);
SAME_CALL(ctx_set_limit, cuCtxSetLimit);
SAME_CALL(stream_write_value_64, cuStreamWriteValue64);
SAME_CALL(stream_is_capturing, cuStreamIsCapturing);
SAME_CALL(stream_get_id, cuStreamGetId);
SAME_CALL(ctx_get_current, cuCtxGetCurrent);
SAME_CALL(ctx_get_id, cuCtxGetId);
#if CUDA_VERSION < 13000  // later headers may mean its next version, which has one argument more
SAME_CALL(stream_get_ctx, cuStreamGetCtx);
SAME_CALL(ctx_get_device, cuCtxGetDevice);
#endif
#if CUDA_VERSION >= 13000
SAME_CALL(memcpy_batch_13000, cuMemcpyBatchAsync);
#elif CUDA_VERSION >= 12080
SAME_CALL(memcpy_batch_12080, cuMemcpyBatchAsync);
#endif

#define SAME_STRUCT(ours, theirs) static_assert(kSamePlace<ours, theirs>, #theirs)
SAME_STRUCT(Result, CUresult);
SAME_STRUCT(Device, CUdevice);
SAME_STRUCT(DevicePtr, CUdeviceptr);
SAME_STRUCT(MemHandle, CUmemGenericAllocationHandle);
SAME_STRUCT(Uuid, CUuuid);
SAME_STRUCT(IpcMemHandle, CUipcMemHandle);
SAME_STRUCT(MemLocation, CUmemLocation);
SAME_STRUCT(MemAllocationProp, CUmemAllocationProp);
SAME_STRUCT(MemAccessDesc, CUmemAccessDesc);
SAME_STRUCT(Memcpy2d, CUDA_MEMCPY2D);
#define SAME_FIELD(ours, our_field, theirs, their_field) \
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field), #their_field)
SAME_FIELD(MemAllocationProp, requested_handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(MemAllocationProp, location, CUmemAllocationProp, location);
SAME_FIELD(MemAllocationProp, flags, CUmemAllocationProp, allocFlags);
SAME_FIELD(MemAccessDesc, flags, CUmemAccessDesc, flags);
SAME_FIELD(Memcpy2d, from.memory_type, CUDA_MEMCPY2D, srcMemoryType);
SAME_FIELD(Memcpy2d, from.device, CUDA_MEMCPY2D, srcDevice);
SAME_FIELD(Memcpy2d, from.pitch, CUDA_MEMCPY2D, srcPitch);
SAME_FIELD(Memcpy2d, to.memory_type, CUDA_MEMCPY2D, dstMemoryType);
SAME_FIELD(Memcpy2d, to.device, CUDA_MEMCPY2D, dstDevice);
SAME_FIELD(Memcpy2d, to.pitch, CUDA_MEMCPY2D, dstPitch);
SAME_FIELD(Memcpy2d, width_bytes, CUDA_MEMCPY2D, WidthInBytes);
SAME_FIELD(Memcpy2d, height, CUDA_MEMCPY2D, Height);
#if CUDA_VERSION >= 12080
SAME_STRUCT(MemcpyAttributes, CUmemcpyAttributes);
SAME_FIELD(MemcpyAttributes, source_hint, CUmemcpyAttributes, srcLocHint);
SAME_FIELD(MemcpyAttributes, flags, CUmemcpyAttributes, flags);
static_assert(kSourceAccessOrderStream == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
#endif

#define SAME_VALUE(ours, theirs) \
  static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs), #theirs)
SAME_VALUE(kSuccess, CUDA_SUCCESS);
SAME_VALUE(kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
SAME_VALUE(kLimitStackSize, CU_LIMIT_STACK_SIZE);
SAME_VALUE(kLimitPrintfFifoSize, CU_LIMIT_PRINTF_FIFO_SIZE);
SAME_VALUE(kLimitMallocHeapSize, CU_LIMIT_MALLOC_HEAP_SIZE);
SAME_VALUE(kInvalidValue, CUDA_ERROR_INVALID_VALUE);
SAME_VALUE(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(kNoDevice, CUDA_ERROR_NO_DEVICE);
SAME_VALUE(kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
SAME_VALUE(kInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
SAME_VALUE(kNotReady, CUDA_ERROR_NOT_READY);
SAME_VALUE(kPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
SAME_VALUE(kDeinitialized, CUDA_ERROR_DEINITIALIZED);
SAME_VALUE(kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME_VALUE(kHostMemoryAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME_VALUE(kHostMemoryNotRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME_VALUE(kStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME_VALUE(kStreamCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME_VALUE(kStreamCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME_VALUE(kNotCaptured, CU_STREAM_CAPTURE_STATUS_NONE);
SAME_VALUE(kCaptured, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME_VALUE(kCaptureSpoilt, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SAME_VALUE(kStreamWriteValueDefault, CU_STREAM_WRITE_VALUE_DEFAULT);
SAME_VALUE(kCanUse64BitStreamMemOps, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
SAME_VALUE(kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
SAME_VALUE(kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_VALUE(kComputeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(kComputeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(kPosixFdSupported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME_VALUE(kDmaBufSupported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
SAME_VALUE(kRdmaWritesOrdering, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
SAME_VALUE(kRdmaWritesOrderedForOwner, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
SAME_VALUE(kPointerContext, CU_POINTER_ATTRIBUTE_CONTEXT);
SAME_VALUE(kPointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME_VALUE(kPointerBufferId, CU_POINTER_ATTRIBUTE_BUFFER_ID);
SAME_VALUE(kPointerIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME_VALUE(kPointerDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME_VALUE(kPointerIsLegacyIpcCapable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
SAME_VALUE(kPointerRangeStart, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME_VALUE(kPointerRangeSize, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME_VALUE(kPointerMempool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
SAME_VALUE(kPointerMappingSize, CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
SAME_VALUE(kPointerMappingBase, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
SAME_VALUE(kMemoryTypeHost, CU_MEMORYTYPE_HOST);
SAME_VALUE(kMemoryTypeDevice, CU_MEMORYTYPE_DEVICE);
SAME_VALUE(kMemoryTypeUnified, CU_MEMORYTYPE_UNIFIED);
SAME_VALUE(kHandleTypePosixFd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME_VALUE(kRangeHandleTypeDmaBuf, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
SAME_VALUE(kAllocationTypePinned, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME_VALUE(kLocationTypeDevice, CU_MEM_LOCATION_TYPE_DEVICE);
SAME_VALUE(kAccessReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME_VALUE(kIpcLazyEnablePeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SAME_VALUE(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
SAME_VALUE(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
SAME_VALUE(kHostRegisterPortable, CU_MEMHOSTREGISTER_PORTABLE);
SAME_VALUE(kHostRegisterMapped, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME_VALUE(kCaptureModeRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);

}  // namespace
}  // namespace gantry::gpu::cuda

#endif
