// The part of the CUDA driver's ABI that Gantry calls, declared from its documentation so that no
// toolkit is needed to build. tests/lib/gpu/cuda/cuda_abi_check.cc compares it with the vendor's
// header where one is installed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/gpu/shared/vendor_abi.h"

namespace gantry::gpu::cuda {

using namespace abi;

using Result = int;  // an enumeration in C: an int to callers
using Device = int;
using DevicePtr = unsigned long long;
using MemHandle = unsigned long long;
using Context = struct ContextTag*;

// cuDeviceGetAttribute
inline constexpr int kMultiprocessorCount = 16;
inline constexpr int kComputeMajor = 75;
inline constexpr int kComputeMinor = 76;
inline constexpr int kPosixFdSupported = 103;
inline constexpr int kRdmaWritesOrdering = 118;
inline constexpr int kCanUse64BitStreamMemOps = 122;
inline constexpr int kDmaBufSupported = 124;

inline constexpr int kRdmaWritesOrderedForOwner = 100;  // of kRdmaWritesOrdering; less: for nobody

// cuPointerGetAttribute
inline constexpr int kPointerContext = 1;
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerBufferId = 7;
inline constexpr int kPointerIsManaged = 8;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr int kPointerIsLegacyIpcCapable = 10;
inline constexpr int kPointerRangeStart = 11;
inline constexpr int kPointerRangeSize = 12;
inline constexpr int kPointerMempool = 17;
inline constexpr int kPointerMappingSize = 18;
inline constexpr int kPointerMappingBase = 19;

inline constexpr unsigned kMemoryTypeHost = 1;
inline constexpr unsigned kMemoryTypeDevice = 2;
inline constexpr int kMemoryTypeUnified = 4;

inline constexpr int kRangeHandleTypeDmaBuf = 1;
inline constexpr unsigned kIpcLazyEnablePeerAccess = 1;
inline constexpr int kSourceAccessOrderStream = 1;
inline constexpr int kLimitStackSize = 0;  // of cuCtxSetLimit, as the next two
inline constexpr int kLimitPrintfFifoSize = 1;
inline constexpr int kLimitMallocHeapSize = 2;

struct Uuid {
  char bytes[16];
};
struct MemAllocationProp {
  int type;
  int requested_handle_types;
  MemLocation location;
  void* win32_metadata;
  struct {
    unsigned char compression_type;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};
struct MemcpyAttributes {
  int source_access_order;
  MemLocation source_hint;
  MemLocation destination_hint;
  unsigned flags;
};
using Array = struct ArrayTag*;
// One side of a copy of rows.
struct Memcpy2dSide {
  size_t x_bytes;
  size_t y;
  int memory_type;
  void* host;
  DevicePtr device;
  Array array;
  size_t pitch;
};
struct Memcpy2d {
  Memcpy2dSide from;
  Memcpy2dSide to;
  size_t width_bytes;
  size_t height;
};

// The functions, in the groups of cuda::Feature, by name without "cu"; where every vendor has one,
// by the name that lib/gpu/shared calls it by. Null when missing.
struct Functions {
  // kCore
  Result (*driver_get_version)(int* version);
  Result (*get_error_name)(Result error, const char** name);
  Result (*get_error_string)(Result error, const char** text);
  Result (*device_get_count)(int* count);
  Result (*device_get)(Device* device, int ordinal);
  Result (*device_get_name)(char* name, int length, Device device);
  Result (*device_get_uuid)(Uuid* uuid, Device device);
  Result (*device_get_pci_bus_id)(char* text, int length, Device device);
  Result (*device_total_mem)(size_t* bytes, Device device);
  Result (*device_get_attribute)(int* value, int attribute, Device device);
  Result (*primary_ctx_retain)(Context* context, Device device);
  Result (*primary_ctx_release)(Device device);
  Result (*ctx_push_current)(Context context);
  Result (*ctx_pop_current)(Context* context);
  Result (*mem_get_info)(size_t* free, size_t* total);
  Result (*mem_alloc)(DevicePtr* address, size_t bytes);
  Result (*mem_free)(DevicePtr address);
  Result (*pointer_get_attributes)(unsigned count, int* attributes, void** values,
                                   DevicePtr address);
  Result (*mem_get_address_range)(DevicePtr* base, size_t* size, DevicePtr address);
  Result (*memcpy_async)(DevicePtr to, DevicePtr from, size_t bytes, Stream stream);
  Result (*memcpy_htod_async)(DevicePtr to, const void* from, size_t bytes, Stream stream);
  Result (*memcpy_dtoh_async)(void* to, DevicePtr from, size_t bytes, Stream stream);
  Result (*thread_exchange_stream_capture_mode)(int* mode);
  Result (*memset_async)(DevicePtr to, unsigned char value, size_t bytes, Stream stream);
  Result (*stream_create)(Stream* stream, unsigned flags);
  Result (*stream_destroy)(Stream stream);
  Result (*stream_synchronize)(Stream stream);
  Result (*event_create)(Event* event, unsigned flags);
  Result (*event_destroy)(Event event);
  Result (*event_record)(Event event, Stream stream);
  Result (*event_query)(Event event);
  Result (*event_synchronize)(Event event);
  // kIpc
  Result (*ipc_get_mem_handle)(IpcMemHandle* handle, DevicePtr address);
  Result (*ipc_open_mem_handle)(DevicePtr* address, IpcMemHandle handle, unsigned flags);
  Result (*ipc_close_mem_handle)(DevicePtr address);
  // kVirtualMemory
  Result (*mem_address_reserve)(DevicePtr* address, size_t bytes, size_t alignment, DevicePtr hint,
                                unsigned long long flags);
  Result (*mem_address_free)(DevicePtr address, size_t bytes);
  Result (*mem_create)(MemHandle* handle, size_t bytes, const MemAllocationProp* wanted,
                       unsigned long long flags);
  Result (*mem_map)(DevicePtr address, size_t bytes, size_t offset, MemHandle handle,
                    unsigned long long flags);
  Result (*mem_unmap)(DevicePtr address, size_t bytes);
  Result (*mem_release)(MemHandle handle);
  Result (*mem_set_access)(DevicePtr address, size_t bytes, const MemAccessDesc* accesses,
                           size_t count);
  Result (*mem_retain_allocation_handle)(MemHandle* handle, void* address);
  Result (*mem_export_to_shareable_handle)(void* shareable, MemHandle handle, int type,
                                           unsigned long long flags);
  Result (*mem_import_from_shareable_handle)(MemHandle* handle, void* shareable, int type);
  // kDmaBuf
  Result (*mem_get_handle_for_address_range)(void* handle, DevicePtr address, size_t bytes,
                                             int type, unsigned long long flags);
  // kBatchCopy: one of the two
  Result (*memcpy_batch_12080)(DevicePtr* to, DevicePtr* from, size_t* bytes, size_t count,
                               MemcpyAttributes* attributes, size_t* attribute_starts,
                               size_t attribute_count, size_t* failed, Stream stream);
  Result (*memcpy_batch_13000)(const DevicePtr* to, const DevicePtr* from, const size_t* bytes,
                               size_t count, MemcpyAttributes* attributes, size_t* attribute_starts,
                               size_t attribute_count, Stream stream);
  // kRowCopy
  Result (*memcpy_2d_async)(const Memcpy2d* copy, Stream stream);
  // kHostRegister
  Result (*mem_host_register)(void* address, size_t bytes, unsigned flags);
  Result (*mem_host_unregister)(void* address);
  Result (*mem_host_get_device_pointer)(DevicePtr* address, void* host, unsigned flags);
  // kPeerAccess
  Result (*device_can_access_peer)(int* can, Device device, Device peer);
  Result (*enable_peer_access)(Context peer, unsigned flags);
  // kKernels
  Result (*module_load_data)(Module* module, const void* image);
  Result (*module_unload)(Module module);
  Result (*module_get_function)(Function* function, Module module, const char* name);
  Result (*launch_kernel)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned shared_bytes, Stream stream, void** arguments, void** extra);
  // kContextLimits
  Result (*ctx_set_limit)(int limit, size_t value);  // of the current one
  // kStreamWrites
  Result (*stream_write_value_64)(Stream stream, DevicePtr address, uint64_t value, unsigned flags);
  Result (*stream_is_capturing)(Stream stream, int* status);
  Result (*stream_get_ctx)(Stream stream, Context* context);
  Result (*stream_get_id)(Stream stream, unsigned long long* id);
  Result (*ctx_get_current)(Context* context);
  Result (*ctx_get_device)(Device* device);  // of the current one
  Result (*ctx_get_id)(Context context, unsigned long long* id);
};

}  // namespace gantry::gpu::cuda
