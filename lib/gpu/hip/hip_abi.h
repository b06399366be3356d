// The part of the ABI of HIP, HSA and HIPRTC that Gantry calls, declared from their documentation
// so that no ROCm is needed to build. What changed between ROCm 5, 6 and 7 is chosen by the version
// that hipRuntimeGetVersion answers. tests/lib/gpu/hip/hip_abi_check.cc compares it with vendor
// headers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/gpu/shared/vendor_abi.h"

namespace gantry::gpu::hip {

using namespace abi;

using Result = int;  // an enumeration in C: an int to callers
using Device = int;
using MemHandle = struct MemHandleTag*;
using ExternalMemory = struct ExternalMemoryTag*;

// As hipRuntimeGetVersion answers: 50221153 is 5.2.
constexpr int VersionOf(int major, int minor) { return major * 10'000'000 + minor * 100'000; }
inline constexpr int kVersion6 = VersionOf(6, 0);
// From this one on hipMemAllocationProp begins with its type: headers of 5.2.3, 5.5.0 and 5.7.1.
inline constexpr int kVersionTypeFirst = VersionOf(5, 5);
// From this one on an imported descriptor is given by value.
inline constexpr int kVersionImportByValue = VersionOf(7, 1);

inline constexpr Result kInvalidDevicePointer = 17;
inline constexpr Result kInvalidDevice = 101;

// hipDeviceGetAttribute
inline constexpr int kComputeMajor = 23;
inline constexpr int kComputeMinor = 61;
inline constexpr int kMultiprocessorCount = 63;
inline constexpr int kWarpSize = 87;
inline constexpr int kVirtualMemorySupported = 89;  // from ROCm 5.3 on; an invalid value before
inline constexpr int kIsLargeBar = 10011;
inline constexpr int kCanUseStreamWaitValue = 10013;

// hipPointerGetAttribute. The size of a range comes as 32 bits, whatever its size:
// hipMemGetAddressRange tells it.
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerBufferId = 7;   // 32 bits
inline constexpr int kPointerIsManaged = 8;  // a bool
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr int kPointerMempool = 17;  // not supported up to ROCm 7.1 at least

// hipMemoryType, which was renumbered.
struct MemoryTypes {
  int host;
  int device;
  int managed;  // -1: there is none
};
constexpr MemoryTypes MemoryTypesOf(int version) {
  return version < kVersion6 ? MemoryTypes{0, 1, -1} : MemoryTypes{1, 2, 3};
}
// hipIpcMemLazyEnablePeerAccess, without which no handle is opened.
constexpr unsigned LazyEnablePeerAccessOf(int version) { return version < kVersion6 ? 0 : 1; }

inline constexpr int kExternalMemoryOpaqueFd = 1;
inline constexpr int kMemcpyDefault = 4;

struct Uuid {
  char bytes[16];  // the 16 hexadecimal digits of what rocminfo prints behind "GPU-", as text
};
// From kVersionTypeFirst on.
struct MemAllocationProp {
  int type;
  int requested_handle_types;
  MemLocation location;
  void* win32_metadata;
  struct {
    unsigned char compression_type;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;
  } flags;
};
// Before; at the same place in both only when nothing is.
struct MemAllocationPropOld {
  unsigned char compression_type;
  MemLocation location;
  int requested_handle_type;
  int type;
  unsigned short usage;
  void* win32_metadata;
};
// The last member came with ROCm 6: earlier versions read what is before it.
struct ExternalMemoryHandleDesc {
  int type;
  union {
    int fd;
    struct {
      void* handle;
      const void* name;
    } win32;
  } handle;
  unsigned long long size;
  unsigned flags;
  unsigned reserved[16];
};
struct ExternalMemoryBufferDesc {
  unsigned long long offset;
  unsigned long long size;
  unsigned flags;
  unsigned reserved[16];  // likewise
};

// The functions, in the groups of hip::Feature, by name without "hip"; where every vendor has one,
// by the name that lib/gpu/shared calls it by. Null when missing.
struct Functions {
  // kCore
  Result (*runtime_get_version)(int* version);
  const char* (*get_error_name)(Result error);
  const char* (*get_error_string)(Result error);
  // Every call that fails leaves its error for the thread's next hipGetLastError, which takes it.
  Result (*get_last_error)();
  Result (*peek_at_last_error)();
  Result (*device_get_count)(int* count);
  Result (*get_device)(int* ordinal);
  Result (*set_device)(int ordinal);
  Result (*device_get_name)(char* name, int length, Device device);
  Result (*device_get_pci_bus_id)(char* text, int length, int ordinal);
  Result (*device_total_mem)(size_t* bytes, Device device);
  Result (*device_get_attribute)(int* value, int attribute, int ordinal);
  Result (*mem_get_info)(size_t* free, size_t* total);
  Result (*mem_alloc)(void** address, size_t bytes);
  Result (*mem_free)(void* address);
  Result (*pointer_get_attribute)(void* value, int attribute, void* address);
  Result (*mem_get_address_range)(void** base, size_t* size, void* address);
  Result (*memcpy_async)(void* to, const void* from, size_t bytes, int kind, Stream stream);
  Result (*memset_async)(void* to, int value, size_t bytes, Stream stream);
  Result (*thread_exchange_stream_capture_mode)(int* mode);
  Result (*stream_create)(Stream* stream, unsigned flags);
  Result (*stream_destroy)(Stream stream);
  Result (*stream_synchronize)(Stream stream);
  Result (*event_create)(Event* event, unsigned flags);
  Result (*event_destroy)(Event event);
  Result (*event_record)(Event event, Stream stream);
  Result (*event_query)(Event event);
  Result (*event_synchronize)(Event event);
  // kUuid
  Result (*device_get_uuid)(Uuid* uuid, Device device);
  // kIpc
  Result (*ipc_get_mem_handle)(IpcMemHandle* handle, void* address);
  Result (*ipc_open_mem_handle)(void** address, IpcMemHandle handle, unsigned flags);
  Result (*ipc_close_mem_handle)(void* address);
  // kVirtualMemory
  Result (*mem_address_reserve)(void** address, size_t bytes, size_t alignment, void* hint,
                                unsigned long long flags);
  Result (*mem_address_free)(void* address, size_t bytes);
  Result (*mem_create)(MemHandle* handle, size_t bytes, const void* prop,  // by version
                       unsigned long long flags);
  Result (*mem_map)(void* address, size_t bytes, size_t offset, MemHandle handle,
                    unsigned long long flags);
  Result (*mem_unmap)(void* address, size_t bytes);
  Result (*mem_release)(MemHandle handle);
  Result (*mem_set_access)(void* address, size_t bytes, const MemAccessDesc* accesses,
                           size_t count);
  Result (*mem_retain_allocation_handle)(MemHandle* handle, void* address);
  Result (*mem_export_to_shareable_handle)(void* shareable, MemHandle handle, int type,
                                           unsigned long long flags);
  // `shareable` is the address of an int that holds the descriptor before kVersionImportByValue,
  // and the descriptor itself from then on.
  Result (*mem_import_from_shareable_handle)(MemHandle* handle, void* shareable, int type);
  // kExternalMemory
  Result (*import_external_memory)(ExternalMemory* memory, const ExternalMemoryHandleDesc* wanted);
  Result (*external_memory_get_mapped_buffer)(void** address, ExternalMemory memory,
                                              const ExternalMemoryBufferDesc* wanted);
  Result (*destroy_external_memory)(ExternalMemory memory);
  // kBatchCopy, from ROCm 7.1 on: attributes are not supported, and none are given.
  Result (*memcpy_batch_async)(void** to, void** from, size_t* bytes, size_t count,
                               void* attributes, size_t* attribute_starts, size_t attribute_count,
                               size_t* failed, Stream stream);
  // kRowCopy
  Result (*memcpy_2d_async)(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                            size_t width_bytes, size_t height, int kind, Stream stream);
  // kHostRegister
  Result (*mem_host_register)(void* address, size_t bytes, unsigned flags);
  Result (*mem_host_unregister)(void* address);
  Result (*mem_host_get_device_pointer)(void** address, void* host, unsigned flags);
  // kPeerAccess
  Result (*device_can_access_peer)(int* can, int ordinal, int peer);
  Result (*enable_peer_access)(int peer, unsigned flags);
  // kKernels
  Result (*module_load_data)(Module* module, const void* image);
  Result (*module_unload)(Module module);
  Result (*module_get_function)(Function* function, Module module, const char* name);
  Result (*launch_kernel)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned shared_bytes, Stream stream, void** arguments, void** extra);
  // kStreamWrites
  Result (*stream_write_value_64)(Stream stream, void* address, uint64_t value, unsigned flags);
  Result (*stream_is_capturing)(Stream stream, int* status);
  Result (*stream_get_device)(Stream stream, Device* device);      // from ROCm 5.6 on
  Result (*stream_get_id)(Stream stream, unsigned long long* id);  // from ROCm 7 on
};

}  // namespace gantry::gpu::hip

// libhsa-runtime64.so.1, under HIP; by name without "hsa".
namespace gantry::gpu::hsa {

using Status = int;
inline constexpr Status kSuccess = 0;
inline constexpr Status kErrorInvalidArgument = 0x1001;
inline constexpr Status kErrorInvalidAllocation = 0x1003;
inline constexpr Status kErrorInvalidAgent = 0x1004;
inline constexpr Status kErrorOutOfResources = 0x1008;
inline constexpr Status kErrorNotInitialized = 0x100b;
// hsa_system_get_info. Any answers kErrorNotInitialized until the process has used HIP.
inline constexpr int kSystemInfoVersionMajor = 0;         // 16 bits
inline constexpr int kSystemInfoDmaBufSupported = 0x204;  // a bool

// hsa_amd_pointer_info: what memory is that this process has from elsewhere.
inline constexpr int kPointerOfGraphics = 3;  // imported as a dma-buf
inline constexpr int kPointerOfIpc = 4;       // opened by a handle

struct PointerInfo {
  uint32_t size;  // of this structure, before the call
  int type;
  void* agent_base;
  void* host_base;
  size_t bytes;
  void* user_data;
  uint64_t agent_owner;
  uint32_t global_flags;
  bool registered;  // the last that ROCm 7 knows; earlier versions write less
};

struct Functions {
  Status (*system_get_info)(int attribute, void* value);
  Status (*amd_pointer_info)(const void* address, PointerInfo* info, void* (*allocate)(size_t),
                             uint32_t* accessible_count, uint64_t** accessible);
  Status (*status_string)(Status status, const char** text);
  // `offset` is where `address` lies in what the descriptor stands for. From ROCm 5.6 on.
  Status (*amd_portable_export_dmabuf)(const void* address, size_t bytes, int* fd,
                                       uint64_t* offset);
};

}  // namespace gantry::gpu::hsa

// libhiprtc.so, whose functions were in libamdhip64 too before ROCm 7; by name without "hiprtc".
namespace gantry::gpu::hiprtc {

using Result = int;
using Program = struct ProgramTag*;
inline constexpr Result kSuccess = 0;
inline constexpr Result kErrorInvalidInput = 3;
inline constexpr Result kErrorCompilation = 6;

struct Functions {
  const char* (*get_error_string)(Result result);
  Result (*create_program)(Program* program, const char* source, const char* name, int header_count,
                           const char* const* headers, const char* const* header_names);
  Result (*destroy_program)(Program* program);
  Result (*compile_program)(Program program, int option_count, const char* const* options);
  Result (*get_program_log_size)(Program program, size_t* bytes);
  Result (*get_program_log)(Program program, char* log);
  Result (*get_code_size)(Program program, size_t* bytes);
  Result (*get_code)(Program program, char* code);
};

}  // namespace gantry::gpu::hiprtc
